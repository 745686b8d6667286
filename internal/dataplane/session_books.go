package dataplane

import (
	"errors"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/session"
)

// errNoSessions says that the tables have no room for any.
var errNoSessions = &table.FullError{Table: "pdr", Limit: "sessions"}

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
)

// Flags in wordPDRDo.
const (
	flagByTEID    = uint8(abi.PdrFlagsPDR_BY_TEID)
	flagSource4   = uint8(abi.PdrFlagsPDR_SOURCE4)
	flagSource6   = uint8(abi.PdrFlagsPDR_SOURCE6)
	flagDuplicate = uint8(abi.PdrFlagsPDR_DUPLICATE)
	flagMeters    = uint8(abi.PdrFlagsPDR_METERS)
	flagDownlink  = uint8(abi.PdrFlagsPDR_DOWNLINK)

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

// sessions are the books of the session tables. At a million sessions they
// must be small: all is in arrays by index, and what the tables say themselves
// is not written down again.
//
//	pdr  [1, slots)        TEIDs: the low 24 bits
//	     [slots, freePDR)  UE pools: base + address (IPv6: /64)
//	     the rest          what neither finds: rules behind filters, and what
//	                       pdr_by_teid, pdr_by_ue and target_by_dst lead to
//
// A head is an entry that a TEID or an address leads to. It stays where it is
// for as long as it is wanted; it is the rule itself where that is the only one
// there and has no filters, otherwise it names a run of them.
type sessions struct {
	slots   uint32
	entries []pdrBook
	list    []sessionBook         // by slot; 0 is none
	empty   []uint32              // slots of list
	byID    session.Table[uint32] // slot
	keys    map[uint32]headKey    // of heads that are not at an index of their own
	meters  map[uint32][]uint32
	far     map[uint32]limits
	gone    map[uint32]*departed // by slot
	resting map[uint32]uint64    // entries that packets may still see as they were, until that period is over

	pools                              sessionPools
	teids                              *teids
	pdrFree, meterFree, forwardingFree indexStack
	runs                               *runs
	forwardings                        map[Forwarding]*forwardingBook
	byForwarding                       map[uint32]*forwardingBook
	recovered                          map[abi.Forwarding]*forwardingBook
	idle                               int
	recovering                         bool // until Sweep

	periods  *table.Periods
	pending  []pending            // in the order in which they are due
	due      [pendingKinds]uint64 // period of the last one of a kind
	settled  uint64               // what was due until this period is done
	settling bool
	removals map[uint32]removal // by slot
	ended    []removal          // of those that are to be told
	plan     plan
}

// pdrBook is what is known of an entry of pdr beside what it says.
type pdrBook struct {
	session uint32 // slot; 0: of none
	next    uint32 // of the session's entries
	notify  uint32 // as it was last written: the data path ends it
	rule    uint16
	kind    uint8
}

// Kinds of entries; an entry may be both.
const (
	entryHead = 1 // a TEID or an address leads to it
	entryRule = 2 // the rule is here
)

type sessionBook struct {
	id    uint64
	first uint32 // of its entries
}

// headKey is what leads to a head: a TEID, an address or prefix, or a link.
type headKey struct {
	teid   uint32
	prefix netip.Prefix
	// link and session: that of an Ethernet session, where frames come from
	link    Link
	session uint64
}

// removal is a session that is gone, and who wants to know what it forwarded.
type removal struct {
	usage []RuleUsage
	err   error
	done  func([]RuleUsage, error)
}

var errClosed = errors.New("the data path is closed")

// departed are rules that are no more in the session.
type departed struct {
	waiting int // for their last packets
	usage   []RuleUsage
}

// limits are a rule's, in octets.
type limits struct{ notify, stop uint64 }

// indexStack hands out entries [first, end) of a table. What comes back has
// waited for its grace period.
type indexStack struct {
	table            string
	back             uint8 // the kind of pending that brings one back
	first, next, end uint32
	free             []uint32
}

func newIndexStack(table string, back uint8, first, end uint32) indexStack {
	return indexStack{table: table, back: back, first: first, next: first, end: end}
}

func (x *indexStack) empty() bool { return len(x.free) == 0 && x.next == x.end }

func (x *indexStack) give(i uint32) { x.free = append(x.free, i) }

func (x *indexStack) used() int { return int(x.next-x.first) - len(x.free) }

// unused are those that came back and were not handed out again.
func (x *indexStack) unused() map[uint32]bool {
	out := make(map[uint32]bool, len(x.free))
	for _, i := range x.free {
		out[i] = true
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

// retryError says that something is free after a grace period only.
type retryError struct{ due uint64 }

func (retryError) Error() string { return "packets are still on their way" }

// takeIndex is an entry of a table (*FullError, or retryError).
func (d *DataPlane) takeIndex(x *indexStack) (uint32, error) {
	if n := len(x.free); n > 0 {
		i := x.free[n-1]
		x.free = x.free[:n-1]
		return i, nil
	}
	if x.next < x.end {
		x.next++
		return x.next - 1, nil
	}
	limit := "sessions"
	if x.table == abi.MapForwarding {
		limit = ""
	}
	return 0, d.fullOrLater(x.back, &table.FullError{Table: x.table, Max: x.end - x.first, Limit: limit})
}

// fullOrLater is err, unless room in that table comes back which was given up
// lately: of that kind.
func (d *DataPlane) fullOrLater(back uint8, err *table.FullError) error {
	if due := d.sessions.due[back]; due > d.sessions.settled {
		return retryError{due}
	}
	return err
}

// takeRun is a run of n filters.
func (d *DataPlane) takeRun(n int) (uint32, error) {
	at, ok := d.sessions.runs.alloc(n)
	if !ok {
		return 0, d.fullOrLater(pendingRun, &table.FullError{Table: abi.MapFilter, Max: d.sessions.runs.count, Limit: "filters"})
	}
	return at + firstFilter, nil
}

// pending is something to be done once no packet sees what was.
type pending struct {
	due           uint64
	kind          uint8
	rule          uint16
	index         uint32
	to            uint32 // pendingFold: who counts now; pendingGone: the session's slot
	word, refused uint64 // pendingFold: what was counted there from the start
}

const (
	pendingFold       = iota // what late packets counted at index belongs to another entry
	pendingGone              // index has the last volume of a rule that is gone
	pendingPDR               // index is free
	pendingRun               // the run that begins at index is
	pendingMeter             // index is
	pendingForwarding        // index is
	pendingRest              // index may be written again
	pendingSlot              // the session's slot is free
	pendingKinds
)

// later does p after a grace period.
func (d *DataPlane) later(p pending) {
	s := d.sessions
	p.due = s.periods.Next()
	s.pending = append(s.pending, p)
	s.due[p.kind] = p.due
	if p.kind == pendingRest {
		s.resting[p.index] = p.due
	}
	if !s.settling {
		s.settling = true
		go d.settleLater(s)
	}
}

// rest lets an entry be until the packets have left that see it as it was.
func (d *DataPlane) rest(i uint32) { d.later(pending{kind: pendingRest, index: i}) }

// rested is nil if an entry may be written.
func (d *DataPlane) rested(i uint32) error {
	if due, ok := d.sessions.resting[i]; ok {
		return retryError{due}
	}
	return nil
}

// settlePause is how long more may come before a period that nobody holds the
// caller up for: each period takes every CPU from what it does.
const settlePause = 500 * time.Microsecond

// settleLater settles whatever nobody waits for, and tells whoever wants to know
// how a session ended.
func (d *DataPlane) settleLater(s *sessions) {
	for more := true; more; {
		s.periods.Wait(s.periods.Next())
		var ended []removal
		if ended, more = d.settleNow(s); len(ended) > 0 {
			for _, r := range ended {
				r.done(r.usage, r.err)
			}
		}
		if more {
			time.Sleep(settlePause)
		}
	}
}

// settleNow settles what is due, and returns the sessions that ended. more: there
// is something that is not due yet.
func (d *DataPlane) settleNow(s *sessions) (ended []removal, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.maps == nil || d.sessions != s {
		for _, r := range s.removals {
			r.err = errClosed
			s.ended = append(s.ended, r)
		}
		clear(s.removals)
	} else {
		d.settle()
		more = len(s.pending) > 0
	}
	ended, s.ended, s.settling = s.ended, nil, more
	return ended, more
}

// settle does what is due.
func (d *DataPlane) settle() {
	s := d.sessions
	ended := s.periods.Ended()
	s.settled = ended
	n := 0
	for ; n < len(s.pending) && s.pending[n].due <= ended; n++ {
		d.settleOne(&s.pending[n])
	}
	if n > 0 {
		s.pending = s.pending[:copy(s.pending, s.pending[n:])]
	}
}

func (d *DataPlane) settleOne(p *pending) {
	s := d.sessions
	switch p.kind {
	case pendingFold:
		addVolume(d.pdr.Words(p.to), d.pdr.Load(p.index, 0)-p.word)
		addVolume(d.refused.Words(p.to), d.refused.Load(p.index, 0)-p.refused)
	case pendingGone:
		g := s.departedOf(p.to)
		g.waiting--
		g.usage = append(g.usage, d.usageOf(p.index, p.rule))
	case pendingPDR:
		d.pdr.Store(p.index, wordPDRDo, 0)
		s.pdrFree.give(p.index)
	case pendingRun:
		s.runs.release(p.index - firstFilter)
	case pendingMeter:
		s.meterFree.give(p.index)
	case pendingForwarding:
		s.forwardingFree.give(p.index)
	case pendingRest:
		if s.resting[p.index] == p.due {
			delete(s.resting, p.index)
		}
	case pendingSlot:
		if r, wanted := s.removals[p.index]; wanted {
			r.usage = s.gone[p.index].usage
			s.ended = append(s.ended, r)
			delete(s.removals, p.index)
		}
		delete(s.gone, p.index)
		s.empty = append(s.empty, p.index)
	}
}

// newSlot makes a place for a session in the books.
func (s *sessions) newSlot(id uint64) uint32 {
	var slot uint32
	if n := len(s.empty); n > 0 {
		slot = s.empty[n-1]
		s.empty = s.empty[:n-1]
	} else {
		s.list = append(s.list, sessionBook{})
		slot = uint32(len(s.list) - 1)
	}
	s.list[slot] = sessionBook{id: id}
	s.byID.Put(id, slot)
	return slot
}

// link puts an entry into a session's list; it may be there already.
func (s *sessions) link(slot, index uint32, kind uint8, rule uint16) {
	b := &s.entries[index]
	if b.session != slot {
		b.session, b.next, b.kind = slot, s.list[slot].first, 0
		s.list[slot].first = index
	}
	b.kind |= kind
	if kind&entryRule != 0 {
		b.rule = rule
	}
}

// entriesOf calls f for each entry of a session.
func (s *sessions) entriesOf(slot uint32, f func(index uint32, b *pdrBook)) {
	for i := s.list[slot].first; i != 0; {
		b := &s.entries[i]
		next := b.next
		f(i, b)
		i = next
	}
}

// departedOf are the rules that a session no longer has.
func (s *sessions) departedOf(slot uint32) *departed {
	g := s.gone[slot]
	if g == nil {
		g = &departed{}
		s.gone[slot] = g
	}
	return g
}

// ruleAt is whose an entry is.
func (d *DataPlane) ruleAt(index uint32) (session uint64, rule uint16) {
	s := d.sessions
	if s == nil || index == 0 || int(index) >= len(s.entries) || s.entries[index].session == 0 {
		return 0, 0
	}
	b := s.entries[index]
	return s.list[b.session].id, b.rule
}

func (d *DataPlane) lockedRuleAt(index uint32) (session uint64, rule uint16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ruleAt(index)
}

// retrying runs f under the lock, again after a grace period where it has to
// wait for one.
func (d *DataPlane) retrying(f func() error) error {
	const tries = 100
	for range tries {
		d.mu.Lock()
		if d.maps == nil {
			d.mu.Unlock()
			return errClosed
		}
		if d.sessions == nil {
			d.mu.Unlock()
			return errNoSessions
		}
		err := f()
		d.mu.Unlock()
		var retry retryError
		if !errors.As(err, &retry) {
			return err
		}
		d.sessions.periods.Wait(retry.due)
		d.mu.Lock()
		if d.maps != nil {
			d.settle()
		}
		d.mu.Unlock()
	}
	return errors.New("the tables changed too often")
}
