package session

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// ErrClosed says that the data path is closed.
var ErrClosed = errors.New("the data path is closed")

// ErrNone says that the tables have no room for sessions.
var ErrNone = &table.FullError{Table: "pdr", Limit: "sessions"}

// maxRules bounds the rules of a session.
const maxRules = 128

// Sessions are the sessions that the tables hold. Its methods may be called
// concurrently; what changes one session comes one after another.
type Sessions struct {
	// Turns are what the data path needs to turn rules by itself.
	Turns Turns
	// Paths are where rules lead in an outer header.
	Paths Paths

	mu     *sync.Mutex // of the whole data path
	closed bool
	room   bool // for any session
	node   Node

	tables      *tables
	owners      *owners
	forwardings *forwardings
	writer      writer
	recovery    recovery
	teids       *teids
	planner     Planner
	putting     Session  // that is planned and applied
	old         state    // memory of the last session's
	acquired    []uint32 // memory of the wanted forwardings

	settling bool
	removals map[uint32]removal // by slot
	ended    []removal          // whose callers wait to be called
}

// removal is a session that is gone, and who wants to know what it forwarded.
type removal struct {
	usage []RuleUsage
	err   error
	done  func([]RuleUsage, error)
}

// Open finds out which entries an earlier daemon had in use, so that none is
// overwritten before Put or Sweep say whose it is. The limits say how many
// sessions there is room for. mu is the lock of the whole data path.
func Open(mu *sync.Mutex, n Node, l settings.Limits, t Tables) *Sessions {
	s := &Sessions{
		mu: mu, node: n, room: l.Sessions != 0, tables: &tables{Tables: t, node: n}, removals: map[uint32]removal{},
		owners: &owners{}, forwardings: &forwardings{},
	}
	s.Turns.s, s.Paths.s = s, s
	if !s.room {
		return s
	}
	s.owners = newOwners(l, t.PDR.Len, t.Meter.Len, t.Filter.Len, t.Quota.Len)
	s.tables.slots = s.owners.slots
	s.tables.openUEs()
	s.forwardings = &forwardings{
		node: n, array: t.Forwarding, later: s.later, releases: s.owners.releases,
		free:    newIndexStack(abi.MapForwarding, "", releaseForwarding, firstForwarding, t.Forwarding.Len),
		byModel: map[Forwarding]*forwardingEntry{}, byIndex: map[uint32]*forwardingEntry{}, recovered: map[abi.Forwarding]*forwardingEntry{},
		templates: map[Forwarding]uint16{},
	}
	slots := s.owners.slots
	s.teids = newTEIDs(slots)
	for slot := range s.teids.generation { // go on behind those that an earlier daemon handed out
		s.teids.generation[slot] = generationOf(s.tables.loadDo(uint32(slot)))
	}
	s.writer = writer{s.tables, s.owners}
	s.recovery = recovery{s.tables, s.owners, s.forwardings, s.later}
	s.recovery.recoverEntries()
	s.forwardings.recovering = len(s.forwardings.recovered) > 0
	return s
}

// Put makes the tables hold a session, whatever they held of it before: all of
// it, or, where that cannot be, nothing new (*table.FullError, target.ErrTaken). The same
// again changes nothing. Packets that come meanwhile are handled by one rule as
// it was or as it will be; volumes go on for rules whose ID stays.
func (s *Sessions) Put(session Session) error {
	err := s.retrying(func() error {
		s.putting = session
		return s.put(&s.putting)
	})
	if err != nil {
		return fmt.Errorf("session %#x: %w", session.ID, err)
	}
	return nil
}

// put puts a session, or returns *busyError where it has to wait for packets.
func (s *Sessions) put(session *Session) error {
	if err := s.check(session); err != nil {
		return err
	}
	s.recovery.adopt(session)
	old := s.state(s.owners.byID.Get(session.ID))
	if old.slot == 0 && s.owners.byID.Len() >= int(s.owners.most) {
		return &table.FullError{Table: "sessions", Max: s.owners.most, Limit: "sessions"}
	}
	want, err := s.resolve(session)
	if err != nil {
		return err
	}
	plan, err := s.planner.Plan(old, want, s.owners, s.tables)
	if err != nil {
		return errors.Join(err, s.forwardings.releaseAll(want.forwardings))
	}
	return s.Apply(plan)
}

// state is what the tables hold of the session in a slot.
func (s *Sessions) state(slot uint32) state {
	old := s.owners.state(slot, s.old)
	for _, e := range old.entries {
		if e.kind&entryForward != 0 {
			old.forwardings = append(old.forwardings, uint32(s.tables.PDR.Load(e.index, wordPDROut)>>32))
		}
	}
	s.old = old
	return old
}

// resolve finds what a session refers to. Its forwardings are acquired.
func (s *Sessions) resolve(session *Session) (wanted, error) {
	want := wanted{Session: session, forwardings: s.acquired[:0]}
	for i := range session.Rules {
		r, index := &session.Rules[i], uint32(0)
		if r.Ethernet && r.TEID == 0 {
			want.link = s.node.LinkNumber(r.Link)
		}
		if r.Action.forwards() {
			var err error
			if index, err = s.forwardings.acquire(&r.Forward); err != nil {
				return want, errors.Join(fmt.Errorf("rule %d: %w", r.ID, err), s.forwardings.releaseAll(want.forwardings))
			}
		}
		want.forwardings = append(want.forwardings, index)
	}
	s.acquired = want.forwardings
	return want, nil
}

// Remove takes a session away from packets, and calls done, once, with what each
// of its rules forwarded up to the last packet: when that has left, of all that
// were removed meanwhile one after the other. On an error it is not called. A
// session that is not there is not an error.
func (s *Sessions) Remove(id uint64, done func([]RuleUsage, error)) error {
	found, err := s.remove(id, done)
	if !found && err == nil {
		done(nil, nil)
	}
	return err
}

// Drop removes a session whose usage nobody wants.
func (s *Sessions) Drop(id uint64) error {
	_, err := s.remove(id, nil)
	return err
}

// remove plans a session without rules, and applies that. done may be nil.
func (s *Sessions) remove(id uint64, done func([]RuleUsage, error)) (found bool, err error) {
	err = s.retrying(func() error {
		old := s.state(s.owners.byID.Get(id))
		if old.slot == 0 {
			return nil
		}
		plan, err := s.planner.Plan(old, wanted{Session: &Session{ID: id}}, s.owners, s.tables)
		if err != nil {
			return err
		}
		found = true
		s.owners.byID.Delete(id)
		s.owners.departedOf(old.slot)
		if err = s.Apply(plan); err == nil && done != nil {
			s.removals[old.slot] = removal{done: done}
		}
		s.later(release{kind: releaseSlot, index: old.slot})
		return err
	})
	return found, err
}

// retrying runs f under the lock, again after a grace period where it has to
// wait for one.
func (s *Sessions) retrying(f func() error) error {
	const tries = 100
	for range tries {
		s.mu.Lock()
		err := s.usable()
		if err == nil {
			err = f()
		}
		s.mu.Unlock()
		if err == nil {
			return nil
		}
		var busy *busyError
		if !errors.As(err, &busy) {
			return err
		}
		s.owners.periods.Wait(busy.until)
		s.mu.Lock()
		if !s.closed {
			s.owners.settle(s.settleOne)
		}
		s.mu.Unlock()
	}
	return errors.New("the tables changed too often")
}

// later notes a release, which is due after the next grace period, and has somebody
// settle it.
func (s *Sessions) later(r release) {
	o := s.owners
	r.due = o.periods.Next()
	o.pending = append(o.pending, r)
	o.due[r.kind] = r.due
	if r.kind == releaseRest {
		o.resting[r.index] = r.due
	}
	if !s.settling {
		s.settling = true
		go s.settleLater()
	}
}

// settlePause is how long more may come before a period that nobody holds the
// caller up for: each period takes every CPU from what it does.
const settlePause = 500 * time.Microsecond

// settleLater settles what nobody waits for, and calls back the callers of Remove
// whose sessions have ended.
func (s *Sessions) settleLater() {
	for more := true; more; {
		s.owners.periods.Wait(s.owners.periods.Next())
		var ended []removal
		ended, more = s.settleNow()
		for _, r := range ended {
			r.done(r.usage, r.err)
		}
		if more {
			time.Sleep(settlePause)
		}
	}
}

// settleNow settles what is due, and returns the sessions that ended. more: there
// is something that is not due yet.
func (s *Sessions) settleNow() (ended []removal, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		for _, r := range s.removals {
			r.err = ErrClosed
			s.ended = append(s.ended, r)
		}
		clear(s.removals)
	} else {
		s.owners.settle(s.settleOne)
		more = len(s.owners.pending) > 0
	}
	ended, s.ended, s.settling = s.ended, nil, more
	return ended, more
}

// Settle returns when all is free again that was given up before the call.
func (s *Sessions) Settle() {
	s.owners.periods.Wait(s.owners.periods.Next())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners.settle(s.settleOne)
}

func (s *Sessions) settleOne(r *release) {
	o := s.owners
	switch r.kind {
	case releaseFold:
		counter.AddVolume(s.tables.PDR.Words(r.to), s.tables.PDR.Load(r.index, 0)-r.volume)
		counter.AddVolume(s.tables.Refused.Words(r.to), s.tables.Refused.Load(r.index, 0)-r.refused)
	case releaseGone:
		g := o.departedOf(r.to)
		g.waiting--
		g.usage = append(g.usage, s.writer.usageOf(r.index, r.rule))
	case releasePDR:
		s.tables.PDR.Store(r.index, wordPDRDo, 0)
		o.pdrFree.give(r.index)
	case releaseRest:
		if r.index >= o.pdrFree.end && o.entries[r.index].session == 0 {
			s.tables.PDR.Store(r.index, wordPDRDo, 0)
		}
	case releaseRun:
		o.runs.release(r.index - firstFilter)
	case releaseMeter:
		o.meterFree.give(r.index)
	case releaseQuota:
		o.quotaFree.give(r.index)
	case releaseForwarding:
		s.forwardings.free.give(r.index)
	case releaseSlot:
		if removal, wanted := s.removals[r.index]; wanted {
			removal.usage = o.gone[r.index].usage
			s.ended = append(s.ended, removal)
			delete(s.removals, r.index)
		}
		delete(o.gone, r.index)
		o.empty = append(o.empty, r.index)
	}
}

// Close ends the use of the tables. Those who wait for usage get an error.
func (s *Sessions) Close() { s.closed = true }

// usable says whether there may be sessions: nil, or the reason why not.
func (s *Sessions) usable() error {
	switch {
	case s.closed:
		return ErrClosed
	case !s.room:
		return ErrNone
	}
	return nil
}

// RuleAt is the session and rule that an entry of pdr belongs to; 0: to none.
func (s *Sessions) RuleAt(index uint32) (session uint64, rule uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Owner(index)
}

// Owner is RuleAt for a caller that holds the lock.
func (s *Sessions) Owner(index uint32) (session uint64, rule uint16) {
	return s.owners.ruleAt(index)
}

// OfTEID returns the session that a TEID leads to; 0: none.
func (s *Sessions) OfTEID(teid uint32) (session uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() != nil {
		return 0
	}
	if _, index, led := s.tables.find(&key{teid: teid}); led {
		session, _ = s.Owner(index)
	}
	return session
}

// EntryAt returns the entry of a rule in the table pdr; 0 if it has no entry.
func (s *Sessions) EntryAt(session uint64, rule uint16) uint32 {
	return s.owners.entryOf(s.owners.byID.Get(session), rule)
}

// Reap gives up what no rule refers to any more. The caller holds the lock, as of
// all below.
func (s *Sessions) Reap() error { return s.forwardings.reap() }

// SourcesChanged lets rules go on with the node's new addresses.
func (s *Sessions) SourcesChanged() error {
	return s.forwardings.sourcesChanged(s.tables.PDR)
}
