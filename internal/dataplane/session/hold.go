package session

import "sync/atomic"

// This file keeps packets of a rule in order that buffers, and then forwards: what the data
// path handed up to be kept is counted in the rule's entry of refused, and until the daemon
// is done with all of it the rule hands up what comes. One word has the count and, once that
// is 0, that the rule has opened, so that no packet is between the two.

// heldOpen is HELD_OPEN (bpf/def/tables.h), inHand the entry of refused whose count is the
// entry of the packet that the daemon has in hand.
const (
	heldOpen = 1 << 31
	inHand   = 0
)

// heldOf is an entry's count.
func (t *tables) heldOf(index uint32) *uint32 { return t.Refused.Half(index, wordRefusedNotify, 1) }

// setDo writes what becomes of a rule's packets. One that buffered goes on doing so where
// something is on its way up; Open says when it forwards.
func (s *writer) setDo(index uint32, do uint64) {
	was := actionOf(s.tables.loadDo(index))
	switch actionOf(do) {
	case actionForward:
		if was != actionBuffer && was != actionFull {
			break
		}
		s.tables.PDR.Store(index, wordPDRDo, withAction(do, actionBuffer))
		if !s.open(index) {
			return
		}
	case actionBuffer:
		if was != actionBuffer {
			atomic.AndUint32(s.tables.heldOf(index), ^uint32(heldOpen))
		}
	}
	s.tables.PDR.Store(index, wordPDRDo, do)
}

// open says whether an entry may forward: nothing that it handed up is overtaken.
func (s *writer) open(index uint32) bool {
	held := s.tables.heldOf(index)
	return atomic.CompareAndSwapUint32(held, 0, heldOpen) || atomic.LoadUint32(held)&heldOpen != 0
}

// Open has a rule forward that was put to forward, if all that it handed up is done with, and
// says whether it does. force: in any case.
func (x *Turns) Open(id uint64, rule uint16, force bool) (open bool) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	index, do := x.holding(id, rule)
	if index == 0 {
		return true
	}
	if force {
		atomic.StoreUint32(s.tables.heldOf(index), heldOpen)
	}
	if !s.writer.open(index) {
		return false
	}
	s.tables.PDR.Store(index, wordPDRDo, withAction(do, actionForward))
	return true
}

// Shut has a rule that was put to forward, and is not open yet, drop what comes: so that all
// that it handed up comes to an end.
func (x *Turns) Shut(id uint64, rule uint16) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if index, do := x.holding(id, rule); index != 0 {
		s.tables.PDR.Store(index, wordPDRDo, withAction(do, actionFull))
	}
}

// holding is the entry of a rule that hands up or drops what comes, and its word; 0: it does
// not, or is missing.
func (x *Turns) holding(id uint64, rule uint16) (index uint32, do uint64) {
	s := x.s
	if s.usable() != nil {
		return 0, 0
	}
	index = s.owners.entryOf(s.owners.byID.Get(id), rule)
	if index == 0 {
		return 0, 0
	}
	do = s.tables.loadDo(index)
	if a := actionOf(do); a != actionBuffer && a != actionFull {
		return 0, 0
	}
	return index, do
}

// Taking notes that the daemon has a packet in hand that an entry handed up to be kept, Taken
// that it is done with it.
func (x *Turns) Taking(entry uint32) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() == nil && entry < s.tables.Refused.Len {
		atomic.StoreUint32(s.tables.heldOf(inHand), entry)
	}
}

// Taken ends Taking.
func (x *Turns) Taken(entry uint32) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() == nil && entry < s.tables.Refused.Len {
		s.tables.done(entry)
	}
}

// done counts a packet less.
func (t *tables) done(entry uint32) {
	atomic.StoreUint32(t.heldOf(inHand), 0)
	held := t.heldOf(entry)
	for {
		now := atomic.LoadUint32(held)
		if now&^heldOpen == 0 { // it was opened by force
			return
		}
		if atomic.CompareAndSwapUint32(held, now, now-1) {
			return
		}
	}
}

// loseInHand gives up the packet that an earlier daemon had in hand when it died.
func (s *recovery) loseInHand() {
	if entry := atomic.LoadUint32(s.tables.heldOf(inHand)); entry != 0 && entry < s.tables.Refused.Len {
		s.tables.done(entry)
	}
}

// withAction is a word of what becomes of packets with another action.
func withAction(do uint64, action uint8) uint64 {
	return do&^(0xff<<32) | uint64(action)<<32
}
