package session

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// findHeads appends a head for each key of the rules.
func (p *Plan) findHeads() {
	var buf [2]key
	for i := range p.rules {
		keys := appendKeys(buf[:0], p.rules[i].Rule, p.session.ID)
		for n := range keys {
			if !p.hasHead(&keys[n]) {
				p.heads = append(p.heads, head{key: keys[n]})
			}
		}
	}
}

func (p *Plan) hasHead(k *key) bool {
	for i := range p.heads {
		if p.heads[i].key == *k {
			return true
		}
	}
	return false
}

// groupRules appends the members of each head, which are the rules that its key
// leads to, and notes what packets are asked there before any filter.
func (p *Plan) groupRules() error {
	for i := range p.heads {
		h := &p.heads[i]
		h.first = len(p.members)
		for n := range p.rules {
			if h.leadsTo(p.rules[n].Rule) {
				p.members = append(p.members, n)
			}
		}
		h.count = len(p.members) - h.first
		if err := p.describeHead(h); err != nil {
			return err
		}
	}
	return nil
}

// membersOf are the rules that a head's key leads to, by their place in the plan.
func (p *Plan) membersOf(h *head) []int { return p.members[h.first : h.first+h.count] }

// describeHead notes the direction of a head's members, and their sources where
// all want the same and the head has room for them.
func (p *Plan) describeHead(h *head) error {
	members := p.membersOf(h)
	first := p.rules[members[0]].Rule
	if first.Direction == Downlink {
		h.flags |= flagDownlink
	}
	same := true
	for _, n := range members[1:] {
		r := p.rules[n].Rule
		if r.Direction != first.Direction {
			return fmt.Errorf("%w: rules %d and %d share %s: want one direction", ErrRules, first.ID, r.ID, h.key)
		}
		same = same && len(r.Sources) == len(first.Sources) &&
			!slices.ContainsFunc(first.Sources, func(s netip.Prefix) bool { return !slices.Contains(r.Sources, s) })
	}
	switch {
	case first.Ethernet:
		h.qfi = Frames
	case h.teid != 0:
		h.local = !same || !h.takeSources(first.Sources)
	}
	return nil
}

// takeSources puts sources into a head. It fails where they are more than the
// head holds: one IPv4 address and one IPv6 /64.
func (h *head) takeSources(sources []netip.Prefix) bool {
	var flags uint8
	for _, p := range sources {
		switch {
		case p.Addr().Is4() && p.Bits() == 32 && flags&flagSource4 == 0:
			flags |= flagSource4
			h.source4 = abi.BE32(p.Addr())
		case p.Addr().Is6() && p.Bits() == 64 && flags&flagSource6 == 0:
			flags |= flagSource6
			b := p.Addr().As16()
			h.source6 = binary.NativeEndian.Uint64(b[:8])
		default:
			h.source4, h.source6 = 0, 0
			return false
		}
	}
	h.flags |= flags
	return true
}

// placeHeads finds the entry of each head, or takes one for it. A key of
// another session is target.ErrTaken.
func (p *Plan) placeHeads() error {
	for i := range p.heads {
		h := &p.heads[i]
		h.by, h.index, h.had = p.tables.find(&h.key)
		if h.had {
			if p.owners.entries[h.index].session != p.old.slot {
				return fmt.Errorf("%s %w", h.key, target.ErrTaken)
			}
		} else if err := p.newHead(h, p.heads[:i]); err != nil {
			return err
		}
		if h.by == byIndex && h.teid != 0 {
			at := placeOf(h.teid, p.owners.slots)
			h.flags, h.generation = h.flags|at.flags, at.generation
		}
	}
	return nil
}

// newHead takes an entry for a head, which others of its session are placed
// before. A TEID has the entry of its low bits if that is free.
func (p *Plan) newHead(h *head, placed []head) error {
	o := p.owners
	if h.teid != 0 && h.slice == 0 {
		slot := placeOf(h.teid, o.slots).slot
		if slot != 0 && o.entries[slot].session == 0 && !isActive(p.tables.loadDo(slot)) &&
			!slices.ContainsFunc(placed, func(h head) bool { return h.index == slot }) {
			h.by, h.index = byIndex, slot
		}
	}
	switch h.by {
	case byIndex:
		if o.entries[h.index].session != 0 {
			return fmt.Errorf("%s %w", h.key, target.ErrTaken)
		}
		return o.rested(h.index)
	case byPrefix:
		if p.tables.node.Steered(h.prefix) {
			return fmt.Errorf("%s %w: by steering, or by this node", h.key, target.ErrTaken)
		}
	default:
		used, name := p.tables.UEs.Len(), h.by.hash()
		if h.by == byTEID {
			used = p.tables.TEIDs.Len()
		}
		for i := range placed {
			if placed[i].by.hash() == name && !placed[i].had {
				used++
			}
		}
		if most := keysOfSession * o.most; used >= int(most) {
			return &table.FullError{Table: name, Max: most, Limit: "sessions"}
		}
	}
	var err error
	h.index, err = p.takePDR()
	return err
}

// joinLink has the heads of an Ethernet session say of which session and link
// they are.
func (p *Plan) joinLink(link uint32) {
	down := uint32(0)
	for i := range p.heads {
		if p.heads[i].by == byLink {
			down = p.heads[i].index
		}
	}
	for i := range p.heads {
		h := &p.heads[i]
		if h.qfi&Frames == 0 {
			continue
		}
		h.flags |= flagSource4 | flagSource6
		h.source6 = p.session.ID
		switch {
		case h.by == byLink:
			h.source4 = link
		case h.flags&flagDownlink == 0:
			h.source4 = down
		}
	}
}

// joinUE has the heads that lead packets to the UE say whose they are: of which group, and,
// in it, of one UE.
func (p *Plan) joinUE() {
	first := uint32(0)
	for i := range p.heads {
		h := &p.heads[i]
		if group := p.rules[p.members[h.first]].Group; h.isUE() && group != 0 {
			first = cmp.Or(first, h.index)
			h.source4, h.source6 = first, uint64(group)
		}
	}
}

// isUE says whether a head leads packets to a UE, by its address or a network behind it.
func (h *head) isUE() bool { return h.teid == 0 && h.slice == 0 && h.session == 0 }

// sourcesChange says whether a head's sources become others: used if packets
// look at them now, unused if they will. A packet is of one family and looks at
// one of them.
func (t *tables) sourcesChange(h *head) (used, unused bool) {
	changed := uint8(0)
	if t.PDR.LoadHalf(h.index, wordPDRStop, 1) != h.source4 {
		changed = h.flags & flagSource4
	}
	if t.PDR.Load(h.index, wordPDRSource6) != h.source6 {
		changed |= h.flags & flagSource6
	}
	now := flagsOf(t.loadDo(h.index))
	return changed&now != 0, changed&^now != 0
}

// chooseHeads finds the head that each rule may be itself: of several one that
// is there already. Before, it finds the heads whose sources turn: packets look at
// a head's sources and at what it leads to in two words. Where they look at sources
// that become others, these are a part of the rules' filters first, so that one
// word changes both. The second phase of the plan has them in the head.
func (p *Plan) chooseHeads() {
	for i := range p.heads {
		h := &p.heads[i]
		if h.had && !h.local && h.teid != 0 && h.qfi&Frames == 0 {
			if used, _ := p.tables.sourcesChange(h); used {
				h.turns, h.local = true, true
				h.turnedDo = uint64(h.flags) << 40
				h.flags &^= flagSource4 | flagSource6
			}
		}
		if h.count != 1 {
			continue
		}
		r := &p.rules[p.members[h.first]]
		if len(r.Filters) > 0 || r.QFIs != 0 && h.asksQFI() || h.local && len(r.Sources) > 0 {
			continue // packets have to pass a filter first
		}
		if r.head < 0 || h.had && !p.heads[r.head].had {
			r.head = i
		}
	}
}

// findMoves finds the rules to which another run will lead: what such a rule
// says must not change before the head does, so it may only change elsewhere.
func (p *Plan) findMoves() error {
	for i := range p.heads {
		h := &p.heads[i]
		was := p.tables.loadDo(h.index)
		if !h.had || actionOf(was) != actionFilters {
			continue
		}
		r, err := p.appendRun(h, h.local)
		if err != nil {
			return err
		}
		same := p.tables.hasRun(moreOf(was), p.runs.entries[r.from:], p.runs.frames[r.from:])
		p.runs.cut(r.from)
		same = same && flagsOf(was)|flagStraight == h.flags|flagStraight // else sources change with the head
		for _, n := range p.membersOf(h) {
			p.rules[n].moves = p.rules[n].moves || !same
		}
	}
	return nil
}

// setWords finds what the entry of a rule says of what is done, without what
// belongs to a head.
func (r *plannedRule) setWords(meters []uint32) {
	flags := uint8(r.Container) << containerShift
	if r.Direction == Downlink {
		flags |= flagDownlink
	}
	if r.Duplicate {
		flags |= flagDuplicate
	}
	more := uint32(0)
	if len(r.chain) > 0 {
		flags |= flagMeters
		more = meters[r.chain[0]]
	}
	qfi := r.QFI
	if r.RQI {
		qfi |= 1 << 6
	}
	if r.Ethernet {
		qfi |= Frames
	}
	r.out = uint64(anyLength) << 32
	if r.Action.forwards() {
		r.out = uint64(r.Forward.TEID) | uint64(r.forwarding)<<32
	}
	r.do = doWord(more, pdrActions[r.Action], flags, qfi, 0)
}

var pdrActions = [...]uint8{
	ActionDrop:    uint8(abi.PdrActionPDR_DROP),
	ActionGate:    uint8(abi.PdrActionPDR_GATE),
	ActionForward: uint8(abi.PdrActionPDR_FORWARD),
	ActionBuffer:  uint8(abi.PdrActionPDR_BUFFER),
	ActionHold:    uint8(abi.PdrActionPDR_BUFFER),
	ActionFull:    uint8(abi.PdrActionPDR_FULL),
}

// placeRule chooses a rule's entry: the head that may be the rule, the one that
// it has, or a new one. It stays where it is if it can change there. An entry that
// keys of other rules lead to, or led to, is no place for it.
func (p *Plan) placeRule(r *plannedRule) (at uint32, err error) {
	var h *head
	straight := uint32(0)
	if r.head >= 0 {
		h = &p.heads[r.head]
		straight = h.index
	}
	other := p.old.at(straight)
	mayBeStraight := straight != 0 && (other.kind&entryRule == 0 || other.rule == r.ID) && !isMarked(p.tables.loadDo(straight))
	behind := r.had != 0 && p.old.at(r.had).kind&entryHead == 0
	switch {
	case r.had == 0:
		if mayBeStraight {
			return straight, p.owners.rested(straight)
		}
	case r.had == straight:
		if fits, err := p.canChange(r, h); fits || err != nil {
			return r.had, err
		}
	case straight != 0:
		pdr := p.tables.PDR
		if behind && pdr.Load(r.had, wordPDRDo) == r.do && (!r.Action.forwards() || pdr.Load(r.had, wordPDROut) == r.out) {
			return r.had, nil
		}
		if mayBeStraight {
			return straight, p.owners.rested(straight)
		}
	}
	if behind {
		if fits, err := p.canChange(r, nil); fits || err != nil {
			return r.had, err
		}
	}
	if at := beside(p, r); at != 0 {
		p.takenPDRs = append(p.takenPDRs, at)
		return at, nil
	}
	return p.takePDR()
}

// beside is the entry beside the TEID that leads to a rule, if it is the last one behind filters there,
// which sessions have for most of their packets; 0: it is not, or that entry is taken.
func beside(p *Plan, r *plannedRule) uint32 {
	o := p.owners
	for i := range p.heads {
		h := &p.heads[i]
		members := p.membersOf(h)
		if h.by != byIndex || h.teid == 0 || len(members) < 2 || p.rules[members[len(members)-1]].ID != r.ID {
			continue
		}
		at := o.pdrFree.end + h.index
		if o.entries[at].session == 0 && !isActive(p.tables.loadDo(at)) && o.rested(at) == nil {
			return at
		}
	}
	return 0
}

// canChange says whether a rule's entry, which is the head h or behind filters,
// can become what it shall be where it is: if one word changes of those that
// packets act by, they see it old or new. What they do not look at as long as
// the entry says what it does may be written before, when no packet is left that
// saw it say something else (*busyError). Nothing may change where what leads
// there changes too.
func (p *Plan) canChange(r *plannedRule, h *head) (fits bool, err error) {
	was, do := p.tables.loadDo(r.had), r.do
	changed, before := 0, false
	if h != nil {
		do = h.doOf(r)
		_, before = p.tables.sourcesChange(h)
	}
	if was != do {
		changed++
	}
	if r.Action.forwards() && p.tables.PDR.Load(r.had, wordPDROut) != r.out {
		if actionOf(was) == actionForward {
			changed++
		} else {
			before = true
		}
	}
	if changed > 1 || changed == 1 && r.moves {
		return false, nil
	}
	if before {
		return true, p.owners.rested(r.had)
	}
	return true, nil
}

// doOf is wordPDRDo of a rule that is this head.
func (h *head) doOf(r *plannedRule) uint64 {
	return r.do | uint64(h.flags)<<40 | uint64(h.generation)<<56
}

// placeRuns finds what each head says, and its run if it is not the rule: the one
// that is there if it says the same, or room for a new one.
func (p *Plan) placeRuns() (err error) {
	for i := range p.heads {
		h := &p.heads[i]
		if r := &p.rules[p.members[h.first]]; h.count == 1 && r.at == h.index {
			h.do = h.doOf(r)
			continue
		}
		if h.run, err = p.appendRun(h, h.local); err != nil {
			return err
		}
		was := p.tables.loadDo(h.index)
		if h.had && actionOf(was) == actionFilters && p.tables.hasRun(moreOf(was), p.runs.entries[h.run.from:], p.runs.frames[h.run.from:]) {
			h.run.at = moreOf(was)
		} else if err = p.takeRun(&h.run); err != nil {
			return err
		}
		p.findStraight(h, h.run)
		h.do = doWord(h.run.at, actionFilters, h.flags, h.qfi, h.generation)
		if _, unused := p.tables.sourcesChange(h); unused && h.had {
			if err := p.owners.rested(h.index); err != nil {
				return err
			}
		}
		if h.turns {
			if err := p.placeTurned(h); err != nil {
				return err
			}
		}
	}
	return nil
}

// placeTurned finds room for the run of the second phase. If the table is full,
// the first phase is the last one: packets get the same treatment with one
// lookup more.
func (p *Plan) placeTurned(h *head) (err error) {
	if h.turnedRun, err = p.appendRun(h, false); err != nil {
		return err
	}
	err = p.takeRun(&h.turnedRun)
	var full *table.FullError
	if errors.As(err, &full) {
		p.runs.cut(h.turnedRun.from)
		h.turns, h.turnedRun = false, filterRun{}
		return nil
	}
	p.findStraight(h, h.turnedRun)
	h.turnedDo = doWord(h.turnedRun.at, actionFilters, flagsOf(h.turnedDo)|h.flags&flagStraight, h.qfi, h.generation)
	return err
}
