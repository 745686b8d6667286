package store

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/buffer"
	"github.com/culvert-net/culvert/internal/upf/codec"
	"github.com/culvert-net/culvert/internal/upf/usage"
	"github.com/culvert-net/culvert/internal/upf/wheel"
)

// Entry is one session. There may be a million: what is seldom needed is packed,
// or behind a pointer.
type Entry struct {
	// SEID and Ethernet do not change.
	SEID   uint64
	mu     sync.Mutex
	packed []byte // in the arena: session and usage, as in the journal

	// Usage, Buffer and slice are for whoever has locked the Entry. Usage is nil
	// where nothing of the session is measured, Buffer where nothing is kept.
	Usage  *usage.Usage
	Buffer *buffer.Buffer
	slice  uint32 // index; 0: of none. Store.Assign sets it
	// Taken: a request about the session is being handled, and the data path is kept from it.
	Taken bool
	// Association is the data path's number of the one that the session belongs to; 0: not known yet.
	Association uint32
	// Unwritten: the journal lacks what Learn was told last.
	Unwritten bool

	Ethernet  bool
	saved     bool         // packed has what Usage has
	gone      bool         // the session has ended
	waits     atomic.Bool  // of an earlier process: Recover was not called
	indicated atomic.Int64 // when an Error Indication was reported to the SMF last, in ns
	timer     wheel.Timer[Entry]
}

// Timer implements wheel.Timed.
func (e *Entry) Timer() *wheel.Timer[Entry] { return &e.timer }

// Lock locks a session and makes its Usage ready. It returns false, and locks
// nothing, if the session has ended.
func (e *Entry) Lock() bool {
	e.mu.Lock()
	if e.gone {
		e.mu.Unlock()
		return false
	}
	e.unpackUsage()
	return true
}

// Unlock packs the Usage and unlocks the session.
func (e *Entry) Unlock() {
	defer e.mu.Unlock()
	if e.Usage == nil {
		return
	}
	if !e.saved {
		s, _ := parts(e.packed)
		e.packed = memory.replace(e.packed, join(s, e.Usage))
	}
	e.Usage, e.saved = nil, false
}

// End locks and ends a session: Lock fails from now on. The Usage stays for whoever
// called End. It returns false if the session has ended before.
func (e *Entry) End() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return false
	}
	e.gone = true
	e.unpackUsage()
	return true
}

// Revive undoes End.
func (e *Entry) Revive() {
	e.mu.Lock()
	e.gone = false
	e.Unlock()
}

// Reserve calls f with the Head of a session of an earlier process, and returns what
// identifies the session. f may keep none of the Head's lists.
func (e *Entry) Reserve(f func(*codec.Head) error) (i pfcp.Identity, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	packed, _ := parts(e.packed)
	err = codec.ReadHead(packed, func(h *codec.Head) error {
		i = identity(h)
		return f(h)
	})
	return i, err
}

func identity(h *codec.Head) pfcp.Identity {
	return pfcp.Identity{SEID: h.SEID, CPSEID: h.CPSEID, CPAddr: h.CPAddr, Node: h.Node, Applications: h.Applications}
}

// Recover locks a session of an earlier process, decodes it and makes its Usage ready.
// Nothing that a store wrote causes an error. It locks nothing if the session has ended or
// somebody else has recovered it. Recovered and Unlock follow.
func (e *Entry) Recover() (s *session.Session, locked bool, err error) {
	e.mu.Lock()
	if e.gone || !e.waits.Load() {
		e.mu.Unlock()
		return nil, false, nil
	}
	packed, _ := parts(e.packed)
	if s, err = codec.Unpack(packed); err == nil {
		err = e.readUsage()
	}
	return s, true, err
}

// Recovered ends the wait of a session that Recover has locked. If it cannot go on, nobody
// locks it any more.
func (e *Entry) Recovered(goesOn bool) {
	e.gone = !goesOn
	e.waits.Store(false)
}

// Identity returns what identifies a session. Exists is false if it has ended.
func (e *Entry) Identity() (i pfcp.Identity, exists bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return pfcp.Identity{}, false
	}
	packed, _ := parts(e.packed)
	err := codec.ReadHead(packed, func(h *codec.Head) error {
		i = identity(h)
		return nil
	})
	if err != nil {
		panic(err) // the journal has accepted it
	}
	return i, true
}

// Session returns what the SMF said last. The caller has locked the Entry, or ended
// the session.
func (e *Entry) Session() *session.Session {
	packed, _ := parts(e.packed)
	s, err := codec.Unpack(packed)
	if err != nil {
		panic(err) // Recover or Save has accepted it
	}
	return s
}

// Slice returns the index of the session's slice; 0: it is of none. The caller has locked the
// Entry.
func (e *Entry) Slice() uint32 { return e.slice }

// Current is Session and Slice for those who have not locked the Entry. It returns
// nil if the session has ended.
func (e *Entry) Current() (s *session.Session, slice uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return nil, 0
	}
	return e.Session(), e.slice
}

// Indicate says whether to report an Error Indication to the SMF now. After one
// report there is no other for a pause.
func (e *Entry) Indicate(now time.Time, pause time.Duration) bool {
	last := e.indicated.Load()
	return now.UnixNano()-last >= int64(pause) && e.indicated.CompareAndSwap(last, now.UnixNano())
}

func (e *Entry) unpackUsage() {
	if err := e.readUsage(); err != nil {
		panic(err) // Recover has accepted it
	}
}

// readUsage makes the Usage of a locked Entry ready.
func (e *Entry) readUsage() error {
	_, counts := parts(e.packed)
	if e.Usage != nil || len(counts) == 0 {
		return nil
	}
	u, err := usage.Decode(counts)
	if err == nil {
		e.Usage = u
	}
	return err
}

// Packed returns how many octets a session takes in memory, packed.
func (e *Entry) Packed() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return cap(e.packed)
}

// join puts a packed session and its usage together: the length of the session,
// the session, and the usage where there is one.
func join(packed []byte, u *usage.Usage) []byte {
	c := codec.NewWriter()
	defer c.Release()
	if u != nil {
		u.Code(c)
	}
	counts := c.Bytes()
	out := make([]byte, 0, binary.MaxVarintLen16+len(packed)+len(counts))
	out = binary.AppendUvarint(out, uint64(len(packed)))
	return append(append(out, packed...), counts...)
}

// parts undoes join.
func parts(b []byte) (packed, counts []byte) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil
	}
	b = b[used:]
	return b[:n], b[n:]
}
