package n4

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/session"
)

// Words of abi.N4Session, and of abi.N4State.
const (
	wordLock = 0
	wordSEID = 1
	wordPDRs = 29
	wordLeft = 30
	wordOpen = 31

	wordAlive    = 0
	wordRecovery = 1 // with the flag that opens all sessions in its upper half
	wordKey      = 10
)

// Who has locked an entry (N4_LOCKED_HERE).
const (
	lockedByDataPath = 1
	lockedByDaemon   = 2
)

// What the word open says (N4_OPEN, N4_KEPT).
const (
	closed = 0
	open   = 1
	kept   = 2
)

// answered marks the sequence number of a request that was accepted, with an answer that says
// nothing else; handled one that the daemon has answered otherwise (N4_ANSWERED, N4_HANDLED).
const (
	handled  = 1 << 30
	answered = 1 << 31
)

// Answers are forgotten when the newest is older (N4_TIME_SHIFT, N4_FORGOTTEN).
const (
	answerShift = 32 // ns: 4.3 s
	forgotten   = 8
)

// leftTo is in the word left while a request is on its way to the daemon (N4_LEFT_TO).
const leftTo = 1 << 24

// MostForwardings is how many gNBs, for each way to forward, the data path can lead
// sessions to.
const MostForwardings = 16384

// Tables are those that the data path answers PFCP by.
type Tables struct {
	State       *table.Array[abi.N4State]                `map:"n4_state"`
	Sessions    *table.Array[abi.N4Session]              `map:"n4_session"`
	Dirty       *table.Array[uint64]                     `map:"n4_dirty"`
	Peers       *table.Hash[abi.In6, abi.N4Peer]         `map:"n4_peer"`
	Forwardings *table.Hash[abi.N4ForwardingKey, uint32] `map:"n4_forwarding"`
}

// MapSizes are the entries that the maps must have for a number of places of SEIDs.
func MapSizes(places uint32) map[string]uint32 {
	return map[string]uint32{
		abi.MapN4Session: places, abi.MapN4Dirty: (places + 63) / 64, abi.MapN4Forwarding: MostForwardings, abi.MapN4Events: 1 << 20,
	}
}

// Table is Tables in use. Of what is about one session, callers take turns; the data path
// is the other writer. The rest may be called concurrently.
type Table struct {
	t Tables

	mu      sync.Mutex // of Peers and Forwardings
	periods *table.Periods
}

// Open goes on with what an earlier daemon has told the data path, which goes on answering
// if on is set.
func Open(t Tables, on bool) *Table {
	n := &Table{t: t, periods: table.NewPeriods()}
	n.makeKey()
	if !on {
		t.State.StoreHalf(0, wordRecovery, 1, 0)
		n.periods.Wait(n.periods.Next())
	}
	return n
}

// New is a table for a number of places that no data path reads.
func New(places uint32) *Table {
	return &Table{periods: table.NewPeriods(), t: Tables{
		State: table.NewArray[abi.N4State](1), Sessions: table.NewArray[abi.N4Session](places), Dirty: table.NewArray[uint64](places/64 + 1),
		Peers: table.NewHash[abi.In6, abi.N4Peer](abi.MapN4Peer, 1024), Forwardings: table.NewHash[abi.N4ForwardingKey, uint32](abi.MapN4Forwarding, 1024),
	}}
}

// Places is how many places of SEIDs have an entry: the first ones.
func (n *Table) Places() uint32 { return n.t.Sessions.Len }

// Start lets the data path change the sessions that are open. Those that no session has
// any more are cleared.
func (n *Table) Start(exists func(seid uint64) bool) {
	for place := range n.t.Sessions.Len {
		if seid := n.t.Sessions.Load(place, wordSEID); seid != 0 && !exists(seid) {
			n.Clear(seid)
		}
	}
	n.t.State.StoreHalf(0, wordRecovery, 1, 1)
}

// Pause has the data path change no session while f runs.
func (n *Table) Pause(f func() error) error {
	was := n.t.State.LoadHalf(0, wordRecovery, 1)
	n.t.State.StoreHalf(0, wordRecovery, 1, 0)
	defer n.t.State.StoreHalf(0, wordRecovery, 1, was)
	n.periods.Wait(n.periods.Next())
	return f()
}

// ---- one session ----

// Join makes an entry for a session, closed, unless another one has its place.
func (n *Table) Join(seid, cpSEID uint64) {
	place := session.PlaceOf(seid)
	if place >= n.t.Sessions.Len || n.t.Sessions.Load(place, wordSEID) != 0 {
		return
	}
	n.t.Sessions.Put(place, &abi.N4Session{Seid: seid, CpSeid: cpSEID})
}

// Has says whether a session has an entry.
func (n *Table) Has(seid uint64) bool {
	place := session.PlaceOf(seid)
	return place < n.t.Sessions.Len && n.t.Sessions.Load(place, wordSEID) == seid
}

// Clear empties the entry of a session, which may have none.
func (n *Table) Clear(seid uint64) {
	if n.Has(seid) {
		n.t.Sessions.Store(session.PlaceOf(seid), wordOpen, closed)
		n.t.Sessions.Put(session.PlaceOf(seid), &abi.N4Session{})
	}
}

// Lock keeps the data path from a session. It holds its own lock for half a microsecond.
func (n *Table) Lock(seid uint64) {
	for !n.t.Sessions.Swap(session.PlaceOf(seid), wordLock, 0, lockedByDaemon) {
		runtime.Gosched()
	}
}

// Unlock gives a session back to the data path.
func (n *Table) Unlock(seid uint64) { n.t.Sessions.Store(session.PlaceOf(seid), wordLock, 0) }

// IsOpen says whether the data path may change a session.
func (n *Table) IsOpen(seid uint64) bool {
	return n.Has(seid) && n.t.Sessions.Load(session.PlaceOf(seid), wordOpen) == open
}

// Close leaves a session, which is locked, to the daemon alone.
func (n *Table) Close(seid uint64) { n.t.Sessions.Change(session.PlaceOf(seid), wordOpen, closed) }

// Keep is Close where the journal lacks what the data path did: Recover finds it here.
func (n *Table) Keep(seid uint64) { n.t.Sessions.Change(session.PlaceOf(seid), wordOpen, kept) }

// Rules is how many rules of a session the data path can change.
const Rules = int(abi.N4LimitsN4RULES)

// Open lets the data path change rules of a session, which is locked and closed, for its
// owner of that association.
func (n *Table) Open(seid uint64, association uint32, owner Owner, rules [Rules]abi.N4Rule) {
	place := session.PlaceOf(seid)
	e := n.t.Sessions.Get(place)
	e.Association, e.CpSeid, e.Fseid, e.Rule = association, owner.SEID, n.Hash(owner.fseid()), rules
	for w, word := range table.ToWords(e)[:wordLeft] {
		if w != wordLock {
			n.t.Sessions.Change(place, w, word)
		}
	}
	n.t.Sessions.Store(place, wordOpen, open)
}

// Entry is what the entry of a session says.
func (n *Table) Entry(seid uint64) abi.N4Session {
	return n.t.Sessions.Get(session.PlaceOf(seid))
}

// Still says whether an entry is as it was read: the data path was not at it meanwhile.
func (n *Table) Still(seid uint64, e abi.N4Session) bool {
	now := n.Entry(seid)
	return now.Version == e.Version && now.Lock != lockedByDataPath && e.Lock != lockedByDataPath
}

// Recover ends what an earlier daemon had begun with a session, locks its entry and
// returns what it says; isTrue: the data path may have changed the session since the journal's
// last record. A session without an entry gets one, if its place is free.
func (n *Table) Recover(seid, cpSEID uint64) (e abi.N4Session, isTrue bool) {
	n.Join(seid, cpSEID)
	place := session.PlaceOf(seid)
	if !n.Has(seid) {
		return e, false
	}
	if n.t.Sessions.Load(place, wordLock) != lockedByDaemon { // it died with the lock
		n.Lock(seid)
	}
	n.Changed(seid)
	e = n.t.Sessions.Get(place)
	return e, e.Open != closed
}

// Answered says whether a request of a session, which is locked, was accepted, with an answer
// that says nothing else.
func (n *Table) Answered(seid uint64, sequence uint32) bool {
	e := n.t.Sessions.Get(session.PlaceOf(seid))
	return slices.Contains(e.Answered[:], sequence|answered) && !isForgotten(&e)
}

// isForgotten says whether an SMF may use the sequence numbers of the answers again.
func isForgotten(e *abi.N4Session) bool { return answerTime()-e.When > forgotten }

// answerTime is when an answer is given.
func answerTime() uint16 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now) // never fails: Linux has this clock
	return uint16(now.Nano() >> answerShift)
}

// NoteAnswer notes that the daemon has answered a request of a session, which is locked:
// it accepted the request and said nothing else, or it said something else.
func (n *Table) NoteAnswer(seid uint64, sequence uint32, accepted bool) {
	place, how := session.PlaceOf(seid), uint32(handled)
	if accepted {
		how = answered
	}
	e := n.t.Sessions.Get(place)
	if isForgotten(&e) {
		clear(e.Answered[:])
	}
	e.Version++
	e.When = answerTime()
	e.Answered[e.Version%uint16(len(e.Answered))] = sequence | how
	for w, word := range table.ToWords(e)[:wordLeft] {
		if w != wordLock {
			n.t.Sessions.Change(place, w, word)
		}
	}
}

// Arrived notes that the daemon has answered a request that the data path left to it. If it is
// the newest of the session, no other one is on its way: earlier ones came before it, or were
// lost.
func (n *Table) Arrived(seid uint64, sequence uint32) {
	if n.Has(seid) {
		n.t.Sessions.Swap(session.PlaceOf(seid), wordLeft, leftTo|uint64(sequence), 0)
	}
}

// Changed says whether the data path has changed a session since the last call.
func (n *Table) Changed(seid uint64) bool { return n.clean(session.PlaceOf(seid)) }

// clean takes the mark from a place, and says whether it was there.
func (n *Table) clean(place uint32) bool {
	bit := uint64(1) << (place % 64)
	for {
		was := n.t.Dirty.Load(place/64, 0)
		if was&bit == 0 {
			return false
		}
		if n.t.Dirty.Swap(place/64, 0, was, was&^bit) {
			return true
		}
	}
}

// Dirty are the sessions that the data path has changed and that Changed was not asked
// about since.
func (n *Table) Dirty() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := range n.t.Dirty.Len {
			for word := n.t.Dirty.Load(i, 0); word != 0; word &= word - 1 {
				place := i*64 + uint32(bits.TrailingZeros64(word))
				if place >= n.t.Sessions.Len {
					continue
				}
				seid := n.t.Sessions.Load(place, wordSEID)
				if seid == 0 { // its session has ended
					n.clean(place)
				} else if !yield(seid) {
					return
				}
			}
		}
	}
}

// ---- the node ----

// Node is what the data path needs to know of this node and its SMFs.
type Node struct {
	Addresses []netip.Addr // for PFCP
	Recovery  uint32       // our Recovery Time Stamp; 0: heartbeats are the daemon's
	Peers     map[netip.Addr]Peer
}

// Peer is an SMF.
type Peer struct {
	Association uint32 // its number
	Recovery    uint32 // its Recovery Time Stamp
}

// SetNode says who may be answered. Who is not a peer any more is answered no more when
// it returns.
func (n *Table) SetNode(node Node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.t.Peers.All() {
		if p, is := node.Peers[netip.AddrFrom16(key.B).Unmap()]; !is || p.Association != n.t.Peers.Get(key).Association {
			if err := n.t.Peers.Delete(key); err != nil {
				return err
			}
		}
	}
	e := abi.N4State{Recovery: node.Recovery}
	for i, a := range node.Addresses {
		if i < len(e.Address) {
			e.Address[i] = abi.In6Of(a)
		}
	}
	words := table.ToWords(e)
	for w := wordRecovery + 1; w < wordKey; w++ {
		n.t.State.Change(0, w, words[w])
	}
	n.t.State.StoreHalf(0, wordRecovery, 0, node.Recovery)
	for addr, p := range node.Peers {
		if err := n.t.Peers.Put(abi.In6Of(addr), abi.N4Peer{Association: p.Association, Recovery: p.Recovery}); err != nil {
			return err
		}
	}
	return nil
}

// Association is the number that the association with an SMF has had since the SMF
// started; 0: none.
func (n *Table) Association(addr netip.Addr, recovery uint32) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.t.Peers.Get(abi.In6Of(addr)); p.Recovery == recovery {
		return p.Association
	}
	return 0
}

// Numbered is the highest number of an association.
func (n *Table) Numbered() (highest uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.t.Peers.All() {
		highest = max(highest, p.Association)
	}
	return highest
}

// Alive is the daemon's sign of life, without which heartbeats are answered for a minute.
func (n *Table) Alive() error {
	now, err := table.Monotonic()
	if err == nil {
		n.t.State.Store(0, wordAlive, now)
	}
	return err
}

// Learn notes which entry of forwarding leads to a gNB. Where there is no room, requests
// for the gNB are the daemon's.
func (n *Table) Learn(template uint16, gnb netip.Addr, entry uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.t.Forwardings.Put(abi.N4ForwardingKey{Template: uint32(template), Remote: abi.In6Of(gnb)}, entry)
	if _, full := errors.AsType[*table.FullError](err); full {
		return nil
	}
	if err != nil {
		return fmt.Errorf("teach the data path %s: %w", gnb, err)
	}
	return nil
}

// Taught are the entries of forwarding that the data path knows.
func (n *Table) Taught() iter.Seq2[Way, uint32] {
	return func(yield func(Way, uint32) bool) {
		for key, entry := range n.t.Forwardings.All() {
			if !yield(Way{uint16(key.Template), netip.AddrFrom16(key.Remote.B).Unmap()}, entry) {
				return
			}
		}
	}
}

// Way is how sessions reach a gNB: by the number of a template.
type Way struct {
	Template uint16
	GNB      netip.Addr
}

// Unlearn undoes Learn. The caller pauses the data path.
func (n *Table) Unlearn(w Way) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.t.Forwardings.Delete(abi.N4ForwardingKey{Template: uint32(w.Template), Remote: abi.In6Of(w.GNB)})
}

// Moved notes that entries of forwarding are others now. The table is paused.
func (n *Table) Moved(to map[uint32]uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, entry := range n.t.Forwardings.All() {
		if next, moved := to[entry]; moved {
			if err := n.t.Forwardings.Put(key, next); err != nil {
				return err
			}
		}
	}
	return nil
}
