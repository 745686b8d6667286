package session

import (
	"errors"
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// teids are the local TEIDs of sessions. The low 24 bits of those that we hand out are an
// entry of pdr, the slot; the high 8 are its generation, so that a late packet for the last
// session there misses. Neither follows from TEIDs that one knows: slots are handed out
// window by window, in each in an order that is secret, and each slot has a secret order of
// generations. A window is small, so that few sessions lie in few pages of the table.
//
// What is given back waits in a queue behind others, and a TEID comes again only after all
// other generations of its slot. Generation 0 is left to SMFs: those that choose TEIDs
// themselves count up from 1.
type teids struct {
	slots  uint32
	next   uint32 // position in the order of slots, from which on none was ever handed out
	secret secret
	// state, generation and turn are by slot. generation is that of the TEID that was there
	// last, turn its position in the order of generations.
	state      []uint8
	generation []uint8
	turn       []uint8
	queue      []uint32 // some of them were taken since
	// others are TEIDs that a caller of TakeTEID chose and that have no slot.
	others map[uint32]bool
}

const (
	teidTaken  = 1
	teidQueued = 2
	teidPassed = 4 // next is behind the slot
)

const (
	windowSlots = 256
	// restingSlots is how many sessions end before the slot of one is used again, while there
	// are others.
	restingSlots = 256
	ofSlots      = 1 << 32 // orders of generations, by slot; below are those of slots, by window
)

func newTEIDs(slots uint32) *teids {
	return &teids{
		slots: slots, secret: newSecret(), state: make([]uint8, slots), generation: make([]uint8, slots), turn: make([]uint8, slots),
		others: map[uint32]bool{},
	}
}

// pop takes a free slot: one that has waited for long, else one that was never handed out,
// else the one that has waited longest. 0: none is free.
func (t *teids) pop() uint32 {
	if len(t.queue) > restingSlots {
		if slot := t.popQueue(); slot != 0 {
			return slot
		}
	}
	if slot := t.popOrder(); slot != 0 {
		return slot
	}
	return t.popQueue()
}

// popOrder goes on in the order of slots. The last window may have slots that are not there.
func (t *teids) popOrder() uint32 {
	for t.next < (t.slots+windowSlots-1)/windowSlots*windowSlots {
		window, position := t.next/windowSlots, t.next%windowSlots
		slot := window*windowSlots + uint32(t.secret.order(uint64(window), uint8(position)))
		t.next++
		if slot == 0 || slot >= t.slots {
			continue
		}
		t.state[slot] |= teidPassed
		if t.state[slot]&teidTaken == 0 {
			return slot
		}
	}
	return 0
}

func (t *teids) popQueue() uint32 {
	for len(t.queue) > 0 {
		slot := t.queue[0]
		t.queue = t.queue[1:]
		t.state[slot] &^= teidQueued
		if t.state[slot]&teidTaken == 0 {
			return slot
		}
	}
	return 0
}

func (t *teids) push(slot uint32) {
	if t.state[slot]&(teidQueued|teidPassed) == teidPassed {
		t.queue = append(t.queue, slot)
		t.state[slot] |= teidQueued
	}
}

// advance gives a slot its next generation, which an SMF or an earlier process may have
// used last.
func (t *teids) advance(slot uint32) {
	last := t.generation[slot]
	for t.generation[slot] == last || t.generation[slot] == 0 {
		t.turn[slot]++
		t.generation[slot] = t.secret.order(ofSlots|uint64(slot), t.turn[slot])
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
		t.advance(slot)
		teid := uint32(t.generation[slot])<<24 | slot
		if _, tunnel := s.node.TunnelOf(teid); tunnel || t.others[teid] || isActive(s.tables.loadDo(slot)) {
			t.push(slot)
			continue
		}
		t.state[slot] |= teidTaken
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
