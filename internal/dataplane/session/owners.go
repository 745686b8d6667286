package session

import (
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	sessions "github.com/culvert-net/culvert/internal/session"
)

// Words of an entry of pdr (bpf/def/tables.h), after its volume.
const (
	wordPDROut     = 2 // teid, forwarding
	wordPDRDo      = 3 // more, action, flags, qfi, generation
	wordPDRBucket  = 4
	wordPDRRate    = 5 // rate, notify
	wordPDRStop    = 6 // stop, source4
	wordPDRSource6 = 7
)

// Actions in wordPDRDo.
const (
	actionFilters = uint8(abi.PdrActionPDR_FILTERS)
	actionForward = uint8(abi.PdrActionPDR_FORWARD)
	actionBuffer  = uint8(abi.PdrActionPDR_BUFFER)
	actionFull    = uint8(abi.PdrActionPDR_FULL)
)

// Flags in wordPDRDo.
const (
	flagByTEID    = uint8(abi.PdrFlagsPDR_BY_TEID)
	flagSource4   = uint8(abi.PdrFlagsPDR_SOURCE4)
	flagSource6   = uint8(abi.PdrFlagsPDR_SOURCE6)
	flagDuplicate = uint8(abi.PdrFlagsPDR_DUPLICATE)
	flagMeters    = uint8(abi.PdrFlagsPDR_METERS)
	flagDownlink  = uint8(abi.PdrFlagsPDR_DOWNLINK)
	flagStraight  = uint8(abi.PdrFlagsPDR_STRAIGHT)

	containerShift = int(abi.PdrFlagsPDR_CONTAINER_SHIFT)
)

func doWord(more uint32, action, flags, qfi, generation uint8) uint64 {
	return uint64(more) | uint64(action)<<32 | uint64(flags)<<40 | uint64(qfi)<<48 | uint64(generation)<<56
}

func moreOf(do uint64) uint32      { return uint32(do) }
func actionOf(do uint64) uint8     { return uint8(do >> 32) }
func flagsOf(do uint64) uint8      { return uint8(do >> 40) }
func generationOf(do uint64) uint8 { return uint8(do >> 56) }
func isActive(do uint64) bool      { return actionOf(do) != 0 }

// inactive is what is left of an entry that leads nowhere: the generation that
// its TEID had.
func inactive(do uint64) uint64 { return do &^ (1<<56 - 1) }

// owners say which session owns which entry of the tables, and which entries
// are free. For a million sessions they must be small: they are arrays by index,
// and what the tables say themselves is not repeated.
//
//	pdr  [1, slots)        TEIDs: the low 24 bits
//	     [slots, freePDR)  UE pools: base + address (IPv6: /64)
//	     [freePDR, beside) what neither finds: rules behind filters, and heads
//	                       that pdr_by_teid, pdr_by_ue and target_by_dst find
//	     the rest          by TEIDs: the rule behind their filters that most packets are for
//
// A head is an entry that a key leads to. It stays where it is for as long as it
// is wanted.
type owners struct {
	most    uint32 // sessions
	slots   uint32
	entries []owner
	list    []slot   // 0 is none
	empty   []uint32 // slots
	byID    sessions.Table[uint32]
	keys    map[uint32]key      // of heads that are not found by index
	meters  map[uint32][]uint32 // by slot
	quotas  map[uint32]uint32   // by slot: an entry of quota
	far     map[uint32]limits   // of rules, where the tables cannot hold them
	gone    map[uint32]*departed

	pdrFree, meterFree, quotaFree indexStack
	runs                          *runs
	*releases
	recovering bool // until Sweep
}

// owner is what is known of an entry of pdr beside what it says.
type owner struct {
	session uint32 // slot; 0: of none
	next    uint32 // of the session's entries
	notify  uint32 // as it was last written: the data path ends it
	rule    uint16
	kind    uint8
}

// slot is a session's.
type slot struct {
	id    uint64
	first uint32 // of its entries
}

// departed are rules that the last change took out of a session.
type departed struct {
	waiting int // for their last packets
	usage   []RuleUsage
}

// limits are a rule's, in octets.
type limits struct {
	notify, stop uint64
	shares       bool
}

func newOwners(l settings.Limits, pdrs, meters, filters, quotas uint32) *owners {
	slots, _, free := l.PDRRanges()
	return &owners{
		most: l.Sessions, slots: slots, entries: make([]owner, pdrs), list: make([]slot, 1),
		keys: map[uint32]key{}, meters: map[uint32][]uint32{}, quotas: map[uint32]uint32{}, far: map[uint32]limits{}, gone: map[uint32]*departed{},
		pdrFree:   newIndexStack(abi.MapPdr, "sessions", releasePDR, free, Beside(l)),
		meterFree: newIndexStack(abi.MapMeter, "sessions", releaseMeter, 1, meters),
		quotaFree: newIndexStack(abi.MapQuota, "sessions", releaseQuota, 1, quotas),
		runs:      newRuns(filters - firstFilter), recovering: true,
		releases: &releases{periods: table.NewPeriods(), resting: map[uint32]uint64{}},
	}
}

// releaseOf gives up an entry of pdr: it is handed out again, or, where a TEID or an address says which
// one it is, may be written again.
func (o *owners) releaseOf(index uint32) release {
	if o.pdrFree.has(index) {
		return release{kind: releasePDR, index: index}
	}
	return release{kind: releaseRest, index: index}
}

// newSlot gives a session a slot.
func (o *owners) newSlot(id uint64) uint32 {
	var at uint32
	if n := len(o.empty); n > 0 {
		at, o.empty = o.empty[n-1], o.empty[:n-1]
	} else {
		o.list = append(o.list, slot{})
		at = uint32(len(o.list) - 1)
	}
	o.list[at] = slot{id: id}
	o.byID.Put(id, at)
	return at
}

// link gives an entry to a session, which may have it already.
func (o *owners) link(slot, index uint32, kind uint8, rule uint16) {
	e := &o.entries[index]
	if e.session != slot {
		e.session, e.next, e.kind = slot, o.list[slot].first, 0
		o.list[slot].first = index
	}
	e.kind |= kind
	if kind&entryRule != 0 {
		e.rule = rule
	}
}

// state is what a slot owns, in memory of an earlier state.
func (o *owners) state(slot uint32, was state) state {
	s := state{slot: slot, entries: was.entries[:0], forwardings: was.forwardings[:0], meters: o.meters[slot], quota: o.quotas[slot]}
	for i := o.list[slot].first; i != 0; i = o.entries[i].next {
		s.entries = append(s.entries, entry{i, o.entries[i].rule, o.entries[i].kind})
	}
	return s
}

// entryOf is the entry of a rule; 0: it has none.
func (o *owners) entryOf(slot uint32, rule uint16) uint32 {
	s := o.state(slot, state{})
	return s.findRule(rule)
}

// departedOf are the rules that a session no longer has.
func (o *owners) departedOf(slot uint32) *departed {
	g := o.gone[slot]
	if g == nil {
		g = &departed{}
		o.gone[slot] = g
	}
	return g
}

// ruleAt is whose an entry is; 0: nobody's.
func (o *owners) ruleAt(index uint32) (session uint64, rule uint16) {
	if index == 0 || int(index) >= len(o.entries) || o.entries[index].session == 0 {
		return 0, 0
	}
	e := o.entries[index]
	return o.list[e.session].id, e.rule
}

// record notes what a plan that is written has changed: who owns what.
func (o *owners) record(p *Plan) {
	slot := p.old.slot
	if slot == 0 {
		slot = o.newSlot(p.session.ID)
	}
	for _, e := range p.old.entries {
		o.entries[e.index].session = 0
		if slices.ContainsFunc(p.rules, func(r plannedRule) bool { return r.at == e.index }) {
			continue
		}
		delete(o.far, e.index)
		if p.headAt(e.index) == nil {
			o.entries[e.index] = owner{}
		}
	}
	o.list[slot].first = 0
	for i := range p.heads {
		h := &p.heads[i]
		o.link(slot, h.index, entryHead, 0)
		if h.by != byIndex && !h.had {
			o.keys[h.index] = h.key
		}
	}
	for i := range p.rules {
		kind := uint8(entryRule)
		if p.rules[i].Action.forwards() {
			kind |= entryForward
		}
		o.link(slot, p.rules[i].at, kind, p.rules[i].ID)
	}
	if o.quotas[slot] = p.quota; p.quota == 0 {
		delete(o.quotas, slot)
	}
	switch {
	case len(p.meters) == 0:
		delete(o.meters, slot)
	case !slices.Equal(p.meters, o.meters[slot]):
		o.meters[slot] = slices.Clone(p.meters)
	}
}

// indexStack hands out entries [first, end) of a table. What comes back has
// waited for its grace period.
type indexStack struct {
	table, limit     string
	back             uint8 // the kind of release that brings one back
	first, next, end uint32
	free             []uint32
}

func newIndexStack(table, limit string, back uint8, first, end uint32) indexStack {
	return indexStack{table: table, limit: limit, back: back, first: first, next: first, end: end}
}

func (x *indexStack) has(i uint32) bool { return i >= x.first && i < x.end }

func (x *indexStack) empty() bool { return len(x.free) == 0 && x.next == x.end }

func (x *indexStack) give(i uint32) { x.free = append(x.free, i) }

func (x *indexStack) used() int { return int(x.next-x.first) - len(x.free) }

// take takes an entry that nobody has.
func (x *indexStack) take(i uint32) {
	for ; x.next <= i && x.next < x.end; x.next++ {
		x.free = append(x.free, x.next)
	}
	x.free = slices.DeleteFunc(x.free, func(other uint32) bool { return other == i })
}

// unused are those that came back and were not handed out again.
func (x *indexStack) unused() marks {
	out := newMarks(x.end)
	for _, i := range x.free {
		out.set(i)
	}
	return out
}

// restore marks what an earlier daemon had in use. It comes before anything is
// handed out.
func (x *indexStack) restore(used func(uint32) bool) {
	x.next = x.end
	for x.next > x.first && !used(x.next-1) {
		x.next--
	}
	for i := x.next; i > x.first; i-- {
		if !used(i - 1) {
			x.free = append(x.free, i-1)
		}
	}
}
