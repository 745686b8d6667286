package session

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// teidPlace is where pdr has the entry of a TEID: the slot, and what the entry says, so that no other TEID
// leads there. Of TEIDs that we hand out the slot is the low 24 bits, the generation the high 8. SMFs that
// choose TEIDs count up for as long as they run (free5GC's): of those that are no slot, the slot is as
// many of the low bits as all slots have, and the generation the rest.
type teidPlace struct {
	slot       uint32 // 0: it has none, and a hash finds it
	generation uint8
	flags      uint8 // flagByTEID: of the first kind
}

// placeOf is the place of a TEID where pdr has so many slots.
func placeOf(teid, slots uint32) teidPlace {
	if slot := teid & settings.MaxSessions; slot < slots {
		return teidPlace{slot, uint8(teid >> 24), flagByTEID}
	}
	fold := teidFold(slots)
	if rest := teid >> fold; rest <= math.MaxUint8 {
		return teidPlace{teid - rest<<fold, uint8(rest), 0}
	}
	return teidPlace{}
}

// placeIn is the place that a slot's entry is.
func placeIn(slot uint32, do uint64) teidPlace {
	return teidPlace{slot, generationOf(do), flagsOf(do) & flagByTEID}
}

// teid is the one that has the place where there are so many slots.
func (p teidPlace) teid(slots uint32) uint32 {
	if p.flags == flagByTEID {
		return uint32(p.generation)<<24 | p.slot
	}
	return uint32(p.generation)<<teidFold(slots) | p.slot
}

// teidFold is how many low bits are the slot of a TEID that is no slot itself.
func teidFold(slots uint32) uint32 { return uint32(bits.Len32(slots) - 1) }

// teids are the local TEIDs of sessions, and their places (teidPlace): the generation is there so that a late packet
// for the last session in a slot misses. Neither follows from TEIDs that one knows: slots are handed out
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
	teidFolded = 8 // who has taken it has no flagByTEID
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

// popOrder goes on in the order of slots, which begins in the middle: SMFs that choose TEIDs count up
// from 1. The last window may have slots that are not there.
func (t *teids) popOrder() uint32 {
	windows := (t.slots + windowSlots - 1) / windowSlots
	for t.next < windows*windowSlots {
		window, position := (t.next/windowSlots+windows/2)%windows, t.next%windowSlots
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

// hold takes a place that is free.
func (t *teids) hold(at teidPlace) {
	t.state[at.slot] |= teidTaken
	if at.flags == 0 {
		t.state[at.slot] |= teidFolded
	}
	t.generation[at.slot] = at.generation
}

// holds says whether a place is taken by its own TEID.
func (t *teids) holds(at teidPlace) bool {
	folded := t.state[at.slot]&teidFolded != 0
	return at.slot != 0 && t.state[at.slot]&teidTaken != 0 && t.generation[at.slot] == at.generation && folded == (at.flags == 0)
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
		t.hold(placeOf(teid, t.slots))
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
	switch at := placeOf(teid, t.slots); {
	case t.others[teid], t.holds(at):
		return fmt.Errorf("TEID %#x %w", teid, target.ErrTaken)
	case at.slot == 0 || t.state[at.slot]&teidTaken != 0:
		t.others[teid] = true
	default:
		t.hold(at)
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
	if at := placeOf(teid, t.slots); t.holds(at) {
		t.state[at.slot] &^= teidTaken | teidFolded
		t.push(at.slot)
	}
}
