package session

import (
	"errors"
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// teids are the local TEIDs of sessions. The low 24 bits of those that we hand
// out are an entry of pdr, the high 8 a generation, so that a late packet for
// the last session there misses. What is given back waits in a queue, behind
// all that are free already.
type teids struct {
	slots uint32
	next  uint32 // from here on none was ever handed out
	// state and generation are by slot; generation is that of the TEID that
	// was there last.
	state      []uint8
	generation []uint8
	queue      []uint32 // some of them were taken since
	// others are TEIDs that a caller of TakeTEID chose and that have no slot.
	others map[uint32]bool
}

const (
	teidTaken  = 1
	teidQueued = 2
)

// pop takes the next free slot; 0 if the list is empty.
func (t *teids) pop() uint32 {
	for len(t.queue) > 0 {
		slot := t.queue[0]
		t.queue = t.queue[1:]
		t.state[slot] &^= teidQueued
		if t.state[slot] == 0 {
			return slot
		}
	}
	for t.next < t.slots {
		slot := t.next
		t.next++
		if t.state[slot] == 0 {
			return slot
		}
	}
	return 0
}

func (t *teids) push(slot uint32) {
	if t.state[slot]&teidQueued == 0 && slot < t.next {
		t.queue = append(t.queue, slot)
		t.state[slot] |= teidQueued
	}
}

// NewTEID hands out a TEID that no session or tunnel has (*table.FullError: there is
// none left).
func (s *Sessions) NewTEID() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.room {
		return 0, ErrNone
	}
	t := s.teids
	for tries := uint32(0); tries < t.slots; tries++ {
		slot := t.pop()
		if slot == 0 {
			break
		}
		t.generation[slot]++
		teid := uint32(t.generation[slot])<<24 | slot
		if _, tunnel := s.node.TunnelOf(teid); tunnel || t.others[teid] || isActive(s.tables.loadDo(slot)) {
			t.push(slot)
			continue
		}
		t.state[slot] = teidTaken
		return teid, nil
	}
	return 0, &table.FullError{Table: "TEIDs", Max: t.slots - 1, Limit: "sessions"}
}

// TakeTEID takes a TEID that somebody else chose (target.ErrTaken).
func (s *Sessions) TakeTEID(teid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.room:
		return ErrNone
	case teid == 0:
		return errors.New("TEID 0: want another")
	}
	t := s.teids
	if name, ok := s.node.TunnelOf(teid); ok {
		return fmt.Errorf("TEID %#x %w: by tunnel %s", teid, target.ErrTaken, name)
	}
	slot := slotOf(teid, t.slots)
	switch {
	case t.others[teid], slot != 0 && t.state[slot]&teidTaken != 0 && t.generation[slot] == uint8(teid>>24):
		return fmt.Errorf("TEID %#x %w", teid, target.ErrTaken)
	case slot == 0 || t.state[slot]&teidTaken != 0:
		t.others[teid] = true
	default:
		t.state[slot] |= teidTaken
		t.generation[slot] = uint8(teid >> 24)
	}
	return nil
}

// FreeTEID gives back what NewTEID or TakeTEID gave.
func (s *Sessions) FreeTEID(teid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.room {
		return
	}
	t := s.teids
	if t.others[teid] {
		delete(t.others, teid)
		return
	}
	slot := slotOf(teid, t.slots)
	if slot != 0 && t.state[slot]&teidTaken != 0 && t.generation[slot] == uint8(teid>>24) {
		t.state[slot] &^= teidTaken
		t.push(slot)
	}
}
