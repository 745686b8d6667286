package dataplane

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// maxRules bounds the rules of a session.
const maxRules = 128

// plan is how the tables come to hold a session. Nothing is changed before all
// of it is known to fit.
type plan struct {
	session *Session
	slot    uint32 // 0: it is not there yet
	rules   []plannedRule
	heads   []plannedHead
	members []int // rules of heads, in the order in which they are asked
	filters []abi.Filter
	frames  []abi.FrameFilter // of each of filters
	owner   []int             // rule of each of filters; -1: of none

	meters, hadMeters, freshMeters []uint32
	nextMeter                      []int // place; -1: none
	freshPDRs                      []uint32
	freshRuns                      []uint32
	acquired                       []uint32 // forwardings
	had                            []uint32 // the session's entries
	ended                          []uint32 // forwardings that its rules had
	now                            uint64   // ns, for new meters
	led                            bool     // packets may find the heads
	turning, again                 bool     // see turnSources
}

// plannedRule is a rule and where it goes.
type plannedRule struct {
	*Rule
	chain   []int  // its meters
	had     uint32 // where it is now; 0: nowhere
	at      uint32 // where it will be
	word    uint64 // of its volume, as it goes there
	refused uint64 // of what it refused
	head    int    // the head that may be the rule itself; -1: none
	moves   bool   // another run will lead to it

	forwarding uint32
	out        uint64 // wordPDROut
	do         uint64 // wordPDRDo, without what belongs to a head
}

// plannedHead is a head and what it leads to.
type plannedHead struct {
	headKey
	index   uint32
	had     bool // it leads here already
	where   way
	first   int // of members
	count   int
	from    int // its run in filters
	to      int
	runAt   uint32 // where the run is; 0 if the head is the rule
	local   bool   // each rule's sources are a part of its filters
	flags   uint8
	qfi     uint8 // PDR_FRAMES, where rules are of an Ethernet session
	source4 uint32
	source6 uint64
	do      uint64 // wordPDRDo
}

func (p *plan) reset(s *Session) {
	rules := p.rules[:cap(p.rules)] // whose chains are used again
	*p = plan{
		session: s, rules: rules[:0], heads: p.heads[:0], members: p.members[:0],
		filters: p.filters[:0], frames: p.frames[:0], owner: p.owner[:0],
		meters: p.meters[:0], hadMeters: p.hadMeters[:0], freshMeters: p.freshMeters[:0],
		nextMeter: p.nextMeter[:0], freshPDRs: p.freshPDRs[:0], freshRuns: p.freshRuns[:0],
		acquired: p.acquired[:0], had: p.had[:0], ended: p.ended[:0],
	}
}

func (d *DataPlane) checkSession(s *Session) error {
	if len(s.Rules) > maxRules {
		return fmt.Errorf("%d rules: %w", len(s.Rules), &table.FullError{Table: "rules of a session", Max: maxRules})
	}
	if err := checkEthernet(s); err != nil {
		return err
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if err := d.checkRule(r); err != nil {
			return fmt.Errorf("rule %d: %w", r.ID, err)
		}
		for n := range i {
			if s.Rules[n].ID == r.ID {
				return fmt.Errorf("rule %d: is there twice", r.ID)
			}
		}
	}
	return checkMeters(s)
}

func (d *DataPlane) checkRule(r *Rule) error {
	if r.Ethernet {
		if err := d.checkEthernetRule(r); err != nil {
			return err
		}
	} else if r.TEID == 0 && len(r.Destinations) == 0 {
		return errors.New("want a TEID or a destination")
	}
	for _, p := range r.Destinations {
		if !p.IsValid() {
			return errors.New("a destination is no prefix")
		}
	}
	for _, p := range r.Sources {
		if !p.IsValid() {
			return errors.New("a source is no prefix")
		}
	}
	if r.QFI > 63 {
		return fmt.Errorf("QFI %d: want at most 63", r.QFI)
	}
	switch r.Action {
	case ActionDrop, ActionGate, ActionBuffer:
		return nil
	case ActionForward, ActionHold:
		return d.checkForwarding(&r.Forward)
	}
	return fmt.Errorf("action %d", r.Action)
}

// sortRules puts the rules in the order in which they are asked.
func (p *plan) sortRules() {
	for i := range p.session.Rules {
		if len(p.rules) < cap(p.rules) {
			p.rules = p.rules[:len(p.rules)+1]
		} else {
			p.rules = append(p.rules, plannedRule{})
		}
		r := &p.rules[len(p.rules)-1]
		*r = plannedRule{Rule: &p.session.Rules[i], chain: r.chain[:0], head: -1}
	}
	slices.SortFunc(p.rules, func(a, b plannedRule) int {
		return cmp.Or(cmp.Compare(a.Precedence, b.Precedence), cmp.Compare(a.ID, b.ID))
	})
}

// groupRules finds the heads, and which rules each leads to.
func (d *DataPlane) groupRules() error {
	p := &d.sessions.plan
	for i := range p.rules {
		r := p.rules[i].Rule
		if r.TEID != 0 {
			p.addHead(headKey{teid: r.TEID})
			continue
		}
		if r.Ethernet {
			p.addHead(headKey{link: r.Link, session: p.session.ID})
			continue
		}
		for _, to := range r.Destinations {
			p.addHead(headKey{prefix: to.Masked()})
		}
	}
	for i := range p.heads {
		h := &p.heads[i]
		h.first = len(p.members)
		for n := range p.rules {
			if h.leadsTo(p.rules[n].Rule) {
				p.members = append(p.members, n)
			}
		}
		h.count = len(p.members) - h.first
		if err := d.describeHead(h); err != nil {
			return err
		}
		if p.isStraight(h) {
			r := &p.rules[p.members[h.first]]
			if r.head < 0 {
				r.head = i
			}
		}
	}
	return nil
}

func (p *plan) addHead(k headKey) {
	for i := range p.heads {
		if p.heads[i].headKey == k {
			return
		}
	}
	p.heads = append(p.heads, plannedHead{headKey: k})
}

func (k headKey) leadsTo(r *Rule) bool {
	if k.teid != 0 || r.TEID != 0 {
		return k.teid == r.TEID
	}
	if k.session != 0 {
		return true
	}
	return slices.ContainsFunc(r.Destinations, func(to netip.Prefix) bool { return to.Masked() == k.prefix })
}

func (k headKey) String() string {
	if k.teid != 0 {
		return fmt.Sprintf("TEID %#x", k.teid)
	}
	if k.session != 0 {
		return "the link " + k.link.String()
	}
	return k.prefix.String()
}

// describeHead says what packets are asked before any filter: their source,
// where all rules want the same and it fits.
func (d *DataPlane) describeHead(h *plannedHead) error {
	p := &d.sessions.plan
	members := p.members[h.first:]
	first := p.rules[members[0]].Rule
	if first.Direction == Downlink {
		h.flags |= flagDownlink
	}
	same := true
	for _, n := range members[1:] {
		r := p.rules[n].Rule
		if r.Direction != first.Direction {
			return fmt.Errorf("rules %d and %d share %s: want one direction", first.ID, r.ID, h.headKey)
		}
		same = same && sameSources(first.Sources, r.Sources)
	}
	if first.Ethernet {
		h.qfi = pdrFrames
		return nil // what its entry says of the link comes when all have one
	}
	if h.teid == 0 {
		return nil
	}
	h.local = !same || !h.takeSources(first.Sources)
	d.turnSources(h)
	return nil
}

// turnSources: packets look at a head's sources and at what it leads to in two
// words. Where they look at sources that become others, these are a part of the
// rules' filters first, so that one word changes both; then nobody looks at the
// old ones any more, and PutSession puts the session as it shall be.
func (d *DataPlane) turnSources(h *plannedHead) {
	_, index, had := d.findHead(h.headKey)
	if h.local || !had {
		return
	}
	h.index = index
	if used, _ := d.sourcesChange(h); !used {
		return
	}
	h.local, h.flags = true, h.flags&^(flagSource4|flagSource6)
	d.sessions.plan.turning = true
}

func sameSources(a, b []netip.Prefix) bool {
	if len(a) != len(b) {
		return false
	}
	for _, p := range a {
		if !slices.Contains(b, p) {
			return false
		}
	}
	return true
}

// takeSources puts sources into the head; it fails where they are more than it
// holds.
func (h *plannedHead) takeSources(sources []netip.Prefix) bool {
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

// isStraight says whether a head may be its rule itself.
func (p *plan) isStraight(h *plannedHead) bool {
	if h.count != 1 {
		return false
	}
	r := p.rules[p.members[h.first]].Rule
	return len(r.Filters) == 0 && r.QFIs == 0 && (!h.local || len(r.Sources) == 0)
}

// planFilters is the run of each head that is not its rule itself, with the
// rules' entries in it.
func (p *plan) planFilters() error {
	for i := range p.heads {
		h := &p.heads[i]
		h.from, h.to = len(p.filters), len(p.filters)
		if h.count == 1 && p.rules[p.members[h.first]].at == h.index {
			continue
		}
		if err := p.addRun(h); err != nil {
			return err
		}
	}
	return nil
}

// addRun adds the filters of a head's rules.
func (p *plan) addRun(h *plannedHead) error {
	h.from = len(p.filters)
	for _, n := range p.members[h.first : h.first+h.count] {
		if p.addFilters(h, n) {
			break // no packet gets to the rest
		}
	}
	if n := len(p.filters) - h.from; n > maxRun {
		return fmt.Errorf("%s: %d filters: %w", h.headKey, n, &table.FullError{Table: "filters of a session", Max: maxRun})
	} else if n == 0 || n < maxRun && !takesAll(&p.filters[len(p.filters)-1]) {
		p.filters, p.frames, p.owner = append(p.filters, abi.Filter{}), append(p.frames, abi.FrameFilter{}), append(p.owner, -1)
	}
	h.to = len(p.filters)
	return nil
}

// findMoves finds the rules to which another run will lead: what such a rule says
// must not change before the head does, so it may only change elsewhere.
func (d *DataPlane) findMoves() error {
	p := &d.sessions.plan
	for i := range p.rules {
		p.rules[i].at = p.rules[i].had
	}
	for i := range p.heads {
		h := &p.heads[i]
		was := d.pdr.Load(h.index, wordPDRDo)
		if !h.had || actionOf(was) != actionFilters {
			continue
		}
		if err := p.addRun(h); err != nil {
			return err
		}
		same := d.sameRun(moreOf(was), p.filters, p.frames)
		p.filters, p.frames, p.owner = p.filters[:0], p.frames[:0], p.owner[:0]
		for _, n := range p.members[h.first : h.first+h.count] {
			p.rules[n].moves = p.rules[n].moves || !same
		}
	}
	return nil
}

// addFilters adds those of a rule, and says whether they take everything.
func (p *plan) addFilters(h *plannedHead, n int) bool {
	r := &p.rules[n]
	locals := []netip.Prefix{{}}
	if h.local && len(r.Sources) > 0 {
		locals = r.Sources
		if slices.ContainsFunc(locals, func(s netip.Prefix) bool { return s.Addr().Is6() }) {
			locals = append(slices.Clone(locals), linkLocal)
		}
	}
	filters := r.Filters
	if len(filters) == 0 {
		filters = anyFilters
	}
	for i := range filters {
		for _, local := range locals {
			e, ok := filterEntry(&filters[i], local, r.Rule)
			if !ok {
				continue
			}
			e.Pdr = r.at
			p.filters, p.frames, p.owner = append(p.filters, e), append(p.frames, frameEntry(filters[i].Frame)), append(p.owner, n)
			if takesAll(&e) {
				return true
			}
			if len(p.filters)-h.from > maxRun {
				return false // too many already
			}
		}
	}
	return false
}

var anyFilters = []Filter{anyFilter}

// words are what the entry of a rule says of what is done, without what belongs
// to a head.
func (p *plan) words(r *plannedRule) (out, do uint64) {
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
		more = p.meterAt(r.chain[0])
	}
	qfi := r.QFI
	if r.RQI {
		qfi |= 1 << 6
	}
	if r.Ethernet {
		qfi |= pdrFrames
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

// doAt is wordPDRDo of a rule that is at an entry.
func (p *plan) doAt(r *plannedRule, at uint32) (do uint64, h *plannedHead) {
	if r.head >= 0 && p.heads[r.head].index == at {
		h = &p.heads[r.head]
		return r.do | uint64(h.flags)<<40 | uint64(h.generation())<<56, h
	}
	return r.do, nil
}

// generation is that of the TEID of a head that it leads to by itself.
func (h *plannedHead) generation() uint8 {
	if h.flags&flagByTEID == 0 {
		return 0
	}
	return uint8(h.teid >> 24)
}
