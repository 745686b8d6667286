package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/codec"
	"github.com/culvert-net/culvert/internal/upf/journal"
	"github.com/culvert-net/culvert/internal/upf/stats"
	"github.com/culvert-net/culvert/internal/upf/usage"
)

// Options are what a Store needs. All fields are required.
type Options struct {
	Dir   string // of the journal
	Max   int    // sessions
	Log   *slog.Logger
	Stats *stats.Counters
}

// Store holds all sessions.
type Store struct {
	o       Options
	journal *journal.Journal
	shards  [64]shard
	len     atomic.Int64
	inSlice [MaxSlices + 1]atomic.Int64 // sessions, by the slice's index
	demand  atomic.Pointer[func(*Entry)]

	mu      sync.Mutex
	state   map[string][]byte // of the N4 server
	indices map[string]uint32 // of slices that exist, or did
	lost    bool              // sessions of an earlier process
	owed    []uint64          // sessions whose removal is not in the journal
}

type shard struct {
	mu      sync.RWMutex
	entries session.Table[*Entry]
}

// Open reads the sessions of an earlier process from the journal.
func Open(o Options) (*Store, error) {
	s := &Store{o: o, indices: map[string]uint32{}, state: map[string][]byte{}}
	var damage []journal.Record
	journal, lost, err := journal.Open(o.Dir, []byte(Header()), func(r journal.Record) error {
		if r.Kind == journal.Damage {
			damage = append(damage, r)
		}
		return s.replay(r)
	})
	if err != nil {
		return nil, err
	}
	s.journal = journal
	journal.KeepRoom(s.Len)
	if err := s.Journal(); err != nil {
		o.Stats.JournalFailed.Add(1)
		o.Log.Error("the session journal takes no records: sessions can be neither established nor modified", "event", logevent.JournalFailing, "error", err)
	}
	if lost == nil {
		s.giveUp(damage)
		return s, nil
	}
	o.Log.Warn("sessions of an earlier run are lost: SMFs will establish them again", "event", logevent.JournalLost, "reason", lost)
	for _, e := range s.All() {
		s.Forget(e)
	}
	clear(s.state)
	s.lost = true
	s.renew()
	return s, nil
}

// layout numbers the records that this build can read. Sessions have a version of their own.
const layout = 4

// Header is what a journal begins with that this boot and this layout can use.
// Another boot may lack what the kernel had not written to disk, and it lacks what the
// data path had counted.
func Header() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return fmt.Sprintf("culvert sessions %d %s", layout, strings.TrimSpace(string(boot)))
}

// replay takes over a record of an earlier process.
func (s *Store) replay(r journal.Record) error {
	sh := s.shard(r.SEID)
	e := sh.entries.Get(r.SEID)
	switch r.Kind {
	case journal.Session:
		if e == nil {
			e = &Entry{SEID: r.SEID}
			e.waits.Store(true)
			sh.entries.Put(r.SEID, e)
			s.len.Add(1)
		}
		return e.replay(r.Body)
	case journal.Usage:
		u, err := usage.Decode(r.Body)
		if err != nil || e == nil { // a snapshot after its deletion lacks the session
			return err
		}
		e.mu.Lock()
		defer e.Unlock()
		e.Usage = u
	case journal.Taken:
		if e == nil {
			return nil
		}
		e.mu.Lock()
		defer e.Unlock()
		if err := e.readUsage(); err != nil {
			return err
		}
		if e.Usage != nil {
			e.Usage.Settle()
		}
	case journal.Delete, journal.Damage: // what the SMF said last about the session may be lost
		if e != nil {
			s.Forget(e)
		}
	case journal.State:
		return s.takeState(r.Body)
	case journal.Slice:
		s.indices[string(r.Body)] = uint32(r.SEID)
	default:
		return codec.ErrMalformed
	}
	return nil
}

// giveUp gives up, for good, the sessions of which the journal lost a record and did
// not get a later one. Their SMFs hear that there is no such session.
func (s *Store) giveUp(damage []journal.Record) {
	const named = 10
	gone := map[uint64]bool{}
	for _, d := range damage {
		if d.SEID != 0 && s.find(d.SEID) == nil {
			gone[d.SEID] = true
		}
	}
	for i, d := range damage {
		if i == named {
			s.o.Log.Warn("the session journal is damaged at more places", "event", logevent.JournalDamaged, "places", len(damage)-named)
			break
		}
		s.o.Log.Warn("the session journal is damaged; the rest is kept", "event", logevent.JournalDamaged, "at", string(d.Body), "seid", d.SEID, "given up", gone[d.SEID])
	}
	s.o.Stats.JournalDamaged.Add(uint64(len(damage)))
	for seid := range gone {
		if err := s.journal.Append(journal.Record{Kind: journal.Delete, SEID: seid}); err != nil {
			s.Owe(seid, err)
		}
	}
}

// replay takes over a session and its usage, which Recover decodes: a later record may
// replace them.
func (e *Entry) replay(b []byte) error {
	packed, _ := parts(b)
	seid, of, err := codec.Identify(packed)
	if err != nil || seid != e.SEID {
		return codec.ErrMalformed
	}
	e.Ethernet = of == session.PDNEthernet
	e.packed = memory.replace(e.packed, b)
	return nil
}

func (s *Store) shard(seid uint64) *shard {
	return &s.shards[session.PageOf(seid)*0x9e3779b97f4a7c15>>58]
}

// OnDemand has f recover a session of an earlier process before Entry returns it.
func (s *Store) OnDemand(f func(*Entry)) { s.demand.Store(&f) }

// Entry returns a session, or nil. The caller has locked no other.
func (s *Store) Entry(seid uint64) *Entry {
	e := s.find(seid)
	if e != nil && e.waits.Load() {
		if f := s.demand.Load(); f != nil {
			(*f)(e)
		}
	}
	return e
}

func (s *Store) find(seid uint64) *Entry {
	sh := s.shard(seid)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.entries.Get(seid)
}

// All returns all sessions that exist now, in no order.
func (s *Store) All() []*Entry {
	out := make([]*Entry, 0, s.len.Load())
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		for _, e := range sh.entries.All() {
			out = append(out, e)
		}
		sh.mu.RUnlock()
	}
	return out
}

// Len returns how many sessions exist.
func (s *Store) Len() int { return int(s.len.Load()) }

// Insert makes room for a session and returns it, locked. Save or Discard follows.
func (s *Store) Insert(of *session.Session, u *usage.Usage) (*Entry, error) {
	if s.len.Add(1) > int64(s.o.Max) {
		s.len.Add(-1)
		return nil, fmt.Errorf("%w: the limit of %d sessions is reached", pfcp.ErrNoResources, s.o.Max)
	}
	e := &Entry{SEID: of.SEID, Usage: u, Ethernet: of.PDNType == session.PDNEthernet}
	e.mu.Lock()
	sh := s.shard(e.SEID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.entries.Get(e.SEID) != nil {
		s.len.Add(-1)
		return nil, fmt.Errorf("session %#x already exists", e.SEID)
	}
	sh.entries.Put(e.SEID, e)
	return e, nil
}

// Discard undoes Insert.
func (s *Store) Discard(e *Entry) {
	e.gone = true
	e.mu.Unlock()
	s.Forget(e)
}

// Save writes a session and its usage to the journal and, if that succeeds, to the
// Entry, which the caller has locked.
func (s *Store) Save(e *Entry, of *session.Session, u *usage.Usage) error {
	c := codec.NewWriter()
	defer c.Release()
	c.Session(of)
	packed := join(c.Bytes(), u)
	if err := s.append(journal.Record{Kind: journal.Session, SEID: e.SEID, Body: packed}); err != nil {
		return err
	}
	e.packed, e.Usage, e.saved, e.Unwritten = memory.replace(e.packed, packed), u, true, false
	return nil
}

// Learn is Save of what has happened to a session already. Where the journal cannot have
// it, the session has it all the same, and is Unwritten.
func (s *Store) Learn(e *Entry, of *session.Session) error {
	c := codec.NewWriter()
	defer c.Release()
	c.Session(of)
	packed := join(c.Bytes(), e.Usage)
	e.packed = memory.replace(e.packed, packed)
	err := s.append(journal.Record{Kind: journal.Session, SEID: e.SEID, Body: packed})
	if e.Unwritten = err != nil; err != nil {
		s.o.Stats.JournalFailed.Add(1)
	}
	return err
}

// Write writes what Learn could not.
func (s *Store) Write(e *Entry) error {
	if !e.Unwritten {
		return nil
	}
	return s.Learn(e, e.Session())
}

// append writes a record that a full disk may refuse.
func (s *Store) append(r journal.Record) error {
	return resources(s.journal.Append(r))
}

// resources turns the error of a full disk into one that the N4 server knows.
func resources(err error) error {
	if errors.Is(err, journal.ErrFull) {
		return fmt.Errorf("%w: %w", pfcp.ErrNoResources, err)
	}
	return err
}

// Removable returns an error if the journal has no room for the removal of a session.
func (s *Store) Removable() error { return resources(s.journal.Room()) }

// Journal returns why the journal takes no sessions: its disk is full, or fails.
func (s *Store) Journal() error { return s.journal.Health() }

// SaveUsage writes a session's usage to the journal.
func (s *Store) SaveUsage(e *Entry) error {
	c := codec.NewWriter()
	defer c.Release()
	e.Usage.Code(c)
	return s.journal.Append(journal.Record{Kind: journal.Usage, SEID: e.SEID, Body: c.Bytes()})
}

// SaveTaken writes to the journal that the SMF has taken a session's reports.
func (s *Store) SaveTaken(e *Entry) error {
	return s.journal.Append(journal.Record{Kind: journal.Taken, SEID: e.SEID})
}

// SaveRemoval writes to the journal that a session has ended. Forget follows.
func (s *Store) SaveRemoval(e *Entry) error {
	return s.append(journal.Record{Kind: journal.Delete, SEID: e.SEID})
}

// Owe has RenewGrown write what SaveRemoval could not. Until then a restart brings
// the session back.
func (s *Store) Owe(seid uint64, err error) {
	s.o.Stats.JournalFailed.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owed) == 0 { // there may be many
		s.o.Log.Error("the end of sessions is not in the journal yet: until then a restart brings them back", "event", logevent.JournalDeleteUnsaved, "seid", seid, "error", err)
	}
	s.owed = append(s.owed, seid)
}

// payOwed writes the removals that are owed.
func (s *Store) payOwed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.owed) > 0 {
		if seid := s.owed[0]; s.find(seid) == nil && s.journal.Append(journal.Record{Kind: journal.Delete, SEID: seid}) != nil {
			return
		}
		if s.owed = s.owed[1:]; len(s.owed) == 0 {
			s.o.Log.Info("the end of all sessions is in the journal", "event", logevent.JournalCaughtUp)
		}
	}
}

// Forget removes a session that has ended.
func (s *Store) Forget(e *Entry) {
	sh := s.shard(e.SEID)
	sh.mu.Lock()
	sh.entries.Delete(e.SEID)
	sh.mu.Unlock()
	e.mu.Lock()
	memory.release(e.packed)
	e.packed, e.gone = nil, true
	s.Assign(e, 0)
	e.mu.Unlock()
	s.len.Add(-1)
}

// Assign puts a session into a slice, by its index; 0: into none. The caller has locked the
// Entry, or ended the session.
func (s *Store) Assign(e *Entry, slice uint32) {
	if e.slice != slice {
		s.inSlice[e.slice].Add(-1)
		s.inSlice[slice].Add(1)
		e.slice = slice
	}
}

// InSlice returns how many sessions a slice has, by its index.
func (s *Store) InSlice(index uint32) int { return int(s.inSlice[index].Load()) }

// RenewGrown renews the journal if it has grown, and writes what is owed.
func (s *Store) RenewGrown() {
	s.payOwed()
	if s.journal.Grown() {
		s.renew()
	}
}

func (s *Store) renew() {
	if err := s.Renew(); err != nil {
		s.o.Stats.JournalFailed.Add(1)
		s.o.Log.Error("cannot write a new session journal; will try again", "event", logevent.JournalRewriteFailed, "error", err)
	}
}

// Renew writes a new journal of everything.
func (s *Store) Renew() error {
	return s.journal.Renew(func(put func(journal.Record) error) error {
		s.mu.Lock()
		var records []journal.Record
		for key, value := range s.state {
			records = append(records, stateRecord(key, value))
		}
		for name, index := range s.indices {
			records = append(records, journal.Record{Kind: journal.Slice, SEID: uint64(index), Body: []byte(name)})
		}
		s.mu.Unlock()
		for _, r := range records {
			if err := put(r); err != nil {
				return err
			}
		}
		for _, e := range s.All() {
			e.mu.Lock()
			var err error
			if !e.gone {
				err = put(journal.Record{Kind: journal.Session, SEID: e.SEID, Body: e.packed})
			}
			e.mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Mark returns the files of the journal as they are at this moment.
func (s *Store) Mark() ([]*journal.Part, error) { return s.journal.Mark() }

// Close closes the journal.
func (s *Store) Close() error { return s.journal.Close() }

// MaxSlices bounds the slices that the data path counts and limits: those that
// exist, and those that existed since its tables were made.
const MaxSlices = 255

// SaveState keeps a value of the N4 server's state, or forgets it if it is empty.
func (s *Store) SaveState(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := stateRecord(key, value)
	if err := s.append(r); err != nil {
		return err
	}
	return s.takeState(r.Body)
}

// stateRecord has the length of the key, the key, and the value.
func stateRecord(key string, value []byte) journal.Record {
	b := binary.AppendUvarint(nil, uint64(len(key)))
	return journal.Record{Kind: journal.State, Body: append(append(b, key...), value...)}
}

// takeState takes over the body of a stateRecord.
func (s *Store) takeState(b []byte) error {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return codec.ErrMalformed
	}
	key, value := string(b[used:used+int(n)]), b[used+int(n):]
	if len(value) == 0 {
		delete(s.state, key)
	} else {
		s.state[key] = bytes.Clone(value)
	}
	return nil
}

// State returns the state of the N4 server. If any session was lost, it forgets it
// instead.
func (s *Store) State() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		for key := range s.state {
			if err := s.append(stateRecord(key, nil)); err != nil {
				s.o.Stats.JournalFailed.Add(1)
				s.o.Log.Error("an association that was lost is still in the journal", "event", logevent.JournalStateUnsaved, "error", err)
			}
		}
		clear(s.state)
	}
	return maps.Clone(s.state)
}

// Abandon forgets a session of the earlier process that cannot go on: it is lost.
func (s *Store) Abandon(e *Entry) {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	if err := s.SaveRemoval(e); err != nil {
		s.Owe(e.SEID, err)
	}
	s.Forget(e)
}

// SliceIndex returns the index of a slice, which its name keeps. A new name gets a
// free one, or else that of a slice that is not in stays.
func (s *Store) SliceIndex(name string, stays map[string]bool) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index, known := s.indices[name]; known {
		return index, nil
	}
	index := s.freeIndex(stays)
	if index == 0 {
		return 0, fmt.Errorf("the limit of %d slices is reached", MaxSlices)
	}
	if err := s.journal.Append(journal.Record{Kind: journal.Slice, SEID: uint64(index), Body: []byte(name)}); err != nil {
		return 0, err
	}
	s.indices[name] = index
	return index, nil
}

func (s *Store) freeIndex(stays map[string]bool) uint32 {
	names := map[uint32]string{}
	for name, index := range s.indices {
		names[index] = name
	}
	old := uint32(0)
	for index := uint32(1); index <= MaxSlices; index++ {
		name, taken := names[index]
		if !taken {
			return index
		}
		if !stays[name] && old == 0 {
			old = index
		}
	}
	if old != 0 {
		delete(s.indices, names[old])
	}
	return old
}
