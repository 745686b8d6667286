package session

import (
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
func findHeads(heads []head, rules []plannedRule, session uint64) []head {
	var buf [2]key
	for i := range rules {
		for _, k := range appendKeys(buf[:0], rules[i].Rule, session) {
			if !slices.ContainsFunc(heads, func(h head) bool { return h.key == k }) {
				heads = append(heads, head{key: k})
			}
		}
	}
	return heads
}

// groupRules appends the members of each head, which are the rules that its key
// leads to, and notes what packets are asked there before any filter.
func groupRules(members []int, heads []head, rules []plannedRule) ([]int, error) {
	for i := range heads {
		h := &heads[i]
		h.first = len(members)
		for n := range rules {
			if h.leadsTo(rules[n].Rule) {
				members = append(members, n)
			}
		}
		h.count = len(members) - h.first
		if err := describeHead(h, members[h.first:], rules); err != nil {
			return members, err
		}
	}
	return members, nil
}

// describeHead notes the direction of a head's members, and their sources where
// all want the same and the head has room for them.
func describeHead(h *head, members []int, rules []plannedRule) error {
	first := rules[members[0]].Rule
	if first.Direction == Downlink {
		h.flags |= flagDownlink
	}
	same := true
	for _, n := range members[1:] {
		r := rules[n].Rule
		if r.Direction != first.Direction {
			return fmt.Errorf("rules %d and %d share %s: want one direction", first.ID, r.ID, h.key)
		}
		same = same && sameSources(first.Sources, r.Sources)
	}
	switch {
	case first.Ethernet:
		h.qfi = Frames
	case h.teid != 0:
		h.local = !same || !h.takeSources(first.Sources)
	}
	return nil
}

func sameSources(a, b []netip.Prefix) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p netip.Prefix) bool { return !slices.Contains(b, p) })
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
func placeHeads(heads []head, slot uint32, v view, res *reservation) error {
	for i := range heads {
		h := &heads[i]
		h.by, h.index, h.had = v.find(h.key)
		if h.had {
			if res.owners.entries[h.index].session != slot {
				return fmt.Errorf("%s %w", h.key, target.ErrTaken)
			}
		} else if err := newHead(h, heads[:i], v, res); err != nil {
			return err
		}
		if h.by == byIndex && h.teid != 0 {
			h.flags |= flagByTEID
		}
	}
	return nil
}

// newHead takes an entry for a head, which others of its session are placed
// before. A TEID has the entry of its low bits if that is free.
func newHead(h *head, placed []head, v view, res *reservation) error {
	o := res.owners
	if h.teid != 0 {
		slot := slotOf(h.teid, o.slots)
		if slot != 0 && o.entries[slot].session == 0 && !isActive(v.loadPDR(slot, wordPDRDo)) &&
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
		if v.steered(h.key) {
			return fmt.Errorf("%s %w: by steering, or by this node", h.key, target.ErrTaken)
		}
	default:
		used := v.count(h.by)
		for i := range placed {
			if placed[i].by == h.by && !placed[i].had {
				used++
			}
		}
		if used >= int(o.most) {
			name := abi.MapPdrByTeid
			if h.by != byTEID {
				name = abi.MapPdrByUe
			}
			return &table.FullError{Table: name, Max: o.most, Limit: "sessions"}
		}
	}
	var err error
	h.index, err = res.takePDR()
	return err
}

// joinLink has the heads of an Ethernet session say of which session and link
// they are.
func joinLink(heads []head, link uint32, session uint64) {
	down := uint32(0)
	for i := range heads {
		if heads[i].by == byLink {
			down = heads[i].index
		}
	}
	for i := range heads {
		h := &heads[i]
		if h.qfi&Frames == 0 {
			continue
		}
		h.flags |= flagSource4 | flagSource6
		h.source6 = session
		switch {
		case h.by == byLink:
			h.source4 = link
		case h.flags&flagDownlink == 0:
			h.source4 = down
		}
	}
}

// turnSources finds the heads whose sources turn: packets look at a head's
// sources and at what it leads to in two words. Where they look at sources that
// become others, these are a part of the rules' filters first, so that one word
// changes both. The second phase of the plan has them in the head.
func turnSources(heads []head, v view) {
	for i := range heads {
		h := &heads[i]
		if !h.had || h.local || h.teid == 0 || h.qfi&Frames != 0 {
			continue
		}
		if used, _ := sourcesChange(h, v); used {
			h.turns, h.local = true, true
			h.turnedDo = uint64(h.flags) << 40
			h.flags &^= flagSource4 | flagSource6
		}
	}
}

// sourcesChange says whether a head's sources become others: used if packets
// look at them now, unused if they will. A packet is of one family and looks at
// one of them.
func sourcesChange(h *head, v view) (used, unused bool) {
	flags := flagsOf(v.loadPDR(h.index, wordPDRDo))
	check := func(flag uint8, differs bool) {
		if h.flags&flag == 0 || !differs {
			return
		}
		if flags&flag != 0 {
			used = true
		} else {
			unused = true
		}
	}
	check(flagSource4, uint32(v.loadPDR(h.index, wordPDRStop)>>32) != h.source4)
	check(flagSource6, v.loadPDR(h.index, wordPDRSource6) != h.source6)
	return used, unused
}

// chooseHeads finds the head that each rule may be itself: of several one that
// is there already.
func chooseHeads(rules []plannedRule, heads []head, members []int) {
	for i := range heads {
		h := &heads[i]
		if !isStraight(h, members, rules) {
			continue
		}
		if r := &rules[members[h.first]]; r.head < 0 || h.had && !heads[r.head].had {
			r.head = i
		}
	}
}

// isStraight says whether a head may be its rule itself.
func isStraight(h *head, members []int, rules []plannedRule) bool {
	if h.count != 1 {
		return false
	}
	r := rules[members[h.first]].Rule
	return len(r.Filters) == 0 && r.QFIs == 0 && (!h.local || len(r.Sources) == 0)
}

// headOf is the head that a rule may be; nil: none.
func headOf(r *plannedRule, heads []head) *head {
	if r.head < 0 {
		return nil
	}
	return &heads[r.head]
}

// findMoves finds the rules to which another run will lead: what such a rule
// says must not change before the head does, so it may only change elsewhere.
func findMoves(rules []plannedRule, heads []head, members []int, v view, runs *filters) error {
	for i := range rules {
		rules[i].at = rules[i].had
	}
	for i := range heads {
		h := &heads[i]
		was := v.loadPDR(h.index, wordPDRDo)
		if !h.had || actionOf(was) != actionFilters {
			continue
		}
		r, err := appendRun(runs, h, h.local, members, rules)
		if err != nil {
			return err
		}
		same := isRun(moreOf(was), runs, r, v)
		runs.cut(r.from)
		for _, n := range members[h.first : h.first+h.count] {
			rules[n].moves = rules[n].moves || !same
		}
	}
	return nil
}

// ruleWords are what the entry of a rule says of what is done, without what
// belongs to a head.
func ruleWords(r *plannedRule, meters []uint32) (out, do uint64) {
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
	out = uint64(anyLength) << 32
	if r.Action.forwards() {
		out = uint64(r.Forward.TEID) | uint64(r.forwarding)<<32
	}
	return out, doWord(more, pdrActions[r.Action], flags, qfi, 0)
}

var pdrActions = [...]uint8{
	ActionDrop:    uint8(abi.PdrActionPDR_DROP),
	ActionGate:    uint8(abi.PdrActionPDR_GATE),
	ActionForward: uint8(abi.PdrActionPDR_FORWARD),
	ActionBuffer:  uint8(abi.PdrActionPDR_BUFFER),
	ActionHold:    uint8(abi.PdrActionPDR_BUFFER),
}

// placeRule chooses a rule's entry: h, which may be the rule, the one that it
// has, or a new one. It stays where it is if it can change there. An entry that
// keys of other rules lead to, or led to, is no place for it.
func placeRule(r *plannedRule, h *head, old *state, v view, res *reservation) (at uint32, err error) {
	straight, behind := uint32(0), r.had != 0 && old.isBehind(r.had)
	if h != nil {
		straight = h.index
	}
	mayBeStraight := straight != 0 && !old.isOther(straight, r.ID)
	switch {
	case r.had == 0:
		if mayBeStraight {
			return straight, res.owners.rested(straight)
		}
	case r.had == straight:
		if fits, err := canChange(r, h, v, res.owners); fits || err != nil {
			return r.had, err
		}
	case straight != 0:
		if behind && v.loadPDR(r.had, wordPDRDo) == r.do && (!r.Action.forwards() || v.loadPDR(r.had, wordPDROut) == r.out) {
			return r.had, nil
		}
		if mayBeStraight {
			return straight, res.owners.rested(straight)
		}
	}
	if behind {
		if fits, err := canChange(r, nil, v, res.owners); fits || err != nil {
			return r.had, err
		}
	}
	return res.takePDR()
}

// canChange says whether a rule's entry, which is the head h or behind filters,
// can become what it shall be where it is: if one word changes of those that
// packets act by, they see it old or new. What they do not look at as long as
// the entry says what it does may be written before, when no packet is left that
// saw it say something else (*busyError). Nothing may change where what leads
// there changes too.
func canChange(r *plannedRule, h *head, v view, o *owners) (fits bool, err error) {
	was, do := v.loadPDR(r.had, wordPDRDo), r.do
	if h != nil {
		do = h.doOf(r)
	}
	changed, before := 0, false
	if was != do {
		changed++
	}
	if r.Action.forwards() && v.loadPDR(r.had, wordPDROut) != r.out {
		if actionOf(was) == actionForward {
			changed++
		} else {
			before = true
		}
	}
	if h != nil {
		_, unused := sourcesChange(h, v)
		before = before || unused
	}
	if changed > 1 || changed == 1 && r.moves {
		return false, nil
	}
	if before {
		return true, o.rested(r.had)
	}
	return true, nil
}

// doOf is wordPDRDo of a rule that is this head.
func (h *head) doOf(r *plannedRule) uint64 {
	return r.do | uint64(h.flags)<<40 | uint64(h.generation())<<56
}

// generation is that of the TEID of a head that it leads to by index.
func (h *head) generation() uint8 {
	if h.flags&flagByTEID == 0 {
		return 0
	}
	return uint8(h.teid >> 24)
}

// placeRuns finds what each head says, and its run if it is not the rule: the one
// that is there if it says the same, or room for a new one.
func placeRuns(heads []head, members []int, rules []plannedRule, v view, runs *filters, res *reservation) error {
	for i := range heads {
		h := &heads[i]
		if r := &rules[members[h.first]]; h.count == 1 && r.at == h.index {
			h.do = h.doOf(r)
			continue
		}
		var err error
		if h.run, err = appendRun(runs, h, h.local, members, rules); err != nil {
			return err
		}
		was := v.loadPDR(h.index, wordPDRDo)
		if h.had && actionOf(was) == actionFilters && isRun(moreOf(was), runs, h.run, v) {
			h.run.at = moreOf(was)
		} else if err = res.takeRun(&h.run); err != nil {
			return err
		}
		h.do = doWord(h.run.at, actionFilters, h.flags, h.qfi, h.generation())
		if _, unused := sourcesChange(h, v); unused && h.had {
			if err := res.owners.rested(h.index); err != nil {
				return err
			}
		}
		if h.turns {
			if err := placeTurned(h, members, rules, runs, res); err != nil {
				return err
			}
		}
	}
	return nil
}

// placeTurned finds room for the run of the second phase. If the table is full,
// the first phase is the last one: packets get the same treatment with one
// lookup more.
func placeTurned(h *head, members []int, rules []plannedRule, runs *filters, res *reservation) (err error) {
	if h.turnedRun, err = appendRun(runs, h, false, members, rules); err != nil {
		return err
	}
	err = res.takeRun(&h.turnedRun)
	var full *table.FullError
	if errors.As(err, &full) {
		runs.cut(h.turnedRun.from)
		h.turns, h.turnedRun = false, filterRun{}
		return nil
	}
	h.turnedDo = doWord(h.turnedRun.at, actionFilters, flagsOf(h.turnedDo), h.qfi, h.generation())
	return err
}
