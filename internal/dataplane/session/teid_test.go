package session

import (
	"math"
	"math/bits"
	"slices"
	"testing"
)

// take hands out a TEID as NewTEID does: its slot and generation.
func (t *teids) take() (slot uint32, generation uint8) {
	if slot = t.pop(); slot != 0 {
		t.advance(slot)
		t.state[slot] |= teidTaken
		generation = t.generation[slot]
	}
	return slot, generation
}

func (t *teids) give(slot uint32) {
	t.state[slot] &^= teidTaken
	t.push(slot)
}

func TestOrder(t *testing.T) {
	s := newSecret()
	var orders [][]uint8
	for _, of := range []uint64{0, 1, ofSlots, ofSlots + 1} {
		seen, order := map[uint8]bool{}, []uint8{}
		for n := range 256 {
			x := s.order(of, uint8(n))
			if seen[x] {
				t.Fatalf("order %d has %d twice", of, x)
			}
			seen[x], order = true, append(order, x)
		}
		if slices.ContainsFunc(orders, func(o []uint8) bool { return slices.Equal(o, order) }) {
			t.Errorf("order %d is another one, too", of)
		}
		orders = append(orders, order)
	}
	if s == newSecret() {
		t.Error("two processes have one secret")
	}
}

// Whoever knows a TEID does not know the next one: neither the slot nor the generation
// counts on, and the next start has another order.
func TestTEIDsDoNotFollow(t *testing.T) {
	const n = 2000
	x := newTEIDs(1 << 20)
	steps, differ := map[uint32]int{}, 0
	last, generation := x.take()
	for range n {
		slot, g := x.take()
		steps[slot-last]++
		differ += bits.OnesCount8(g ^ generation)
		last, generation = slot, g
	}
	for step, times := range steps {
		if times > 40 {
			t.Errorf("the next slot is %d further, %d of %d times", int32(step), times, n)
		}
	}
	if differ < 3*n || differ > 5*n {
		t.Errorf("generations differ in %d of %d bits", differ, 8*n)
	}
	again, same := newTEIDs(1<<20), 0
	x = newTEIDs(1 << 20)
	for range 100 {
		a, _ := x.take()
		b, _ := again.take()
		if a == b {
			same++
		}
	}
	if same > 10 {
		t.Errorf("%d of the first 100 slots are the same in two starts", same)
	}
}

// The sessions of a window are handed out before the next one is begun, those of the upper half first.
func TestSlotsLieTogether(t *testing.T) {
	x := newTEIDs(3*windowSlots + 100)
	seen := map[uint32]bool{}
	var windows []uint32
	for n := range x.slots - 1 {
		slot, _ := x.take()
		if slot == 0 || slot >= x.slots || seen[slot] {
			t.Fatalf("slot %d is handed out as number %d", slot, n+1)
		}
		seen[slot] = true
		windows = append(windows, slot/windowSlots)
	}
	if windows = slices.Compact(windows); !slices.Equal(windows, []uint32{2, 3, 0, 1}) {
		t.Errorf("windows %d", windows)
	}
	if slot, _ := x.take(); slot != 0 {
		t.Errorf("slot %d is handed out twice", slot)
	}
}

// The slot of a session that has ended rests while there are others. Where it is the only
// one it gets each other generation before one comes again.
func TestTEIDsRest(t *testing.T) {
	x := newTEIDs(4 * windowSlots)
	first, _ := x.take()
	x.give(first)
	for n := range restingSlots {
		slot, _ := x.take()
		if slot == first {
			t.Fatalf("the slot is used again after %d sessions", n)
		}
		x.give(slot)
	}
	if slot, _ := x.take(); slot != first {
		t.Errorf("slot %d follows, not the one that rested longest", slot)
	}

	x = newTEIDs(2)
	seen := map[uint8]bool{0: true} // which SMFs use
	for range 255 {
		slot, g := x.take()
		if seen[g] {
			t.Fatalf("generation %d after %d others", g, len(seen)-1)
		}
		seen[g] = true
		x.give(slot)
	}

	x.generation[1] = 77 // an SMF had it
	for range 1000 {
		before := x.generation[1]
		slot, g := x.take()
		if g == before {
			t.Fatalf("generation %d follows itself", g)
		}
		x.give(slot)
	}
}

// A TEID has one place, and no other TEID has it: whatever the number of slots.
func TestPlacesOfTEIDs(t *testing.T) {
	for _, slots := range []uint32{3, 17, 64, 131_073, 1 << 24} {
		seen := map[teidPlace]uint32{}
		check := func(teid uint32) {
			at := placeOf(teid, slots)
			if at.slot == 0 {
				return
			}
			if at.slot >= slots || at.teid(slots) != teid {
				t.Fatalf("of %d slots, TEID %#x has %+v, which is that of %#x", slots, teid, at, at.teid(slots))
			}
			if other, had := seen[at]; had && other != teid {
				t.Fatalf("of %d slots, TEIDs %#x and %#x have %+v", slots, teid, other, at)
			}
			seen[at] = teid
		}
		for teid := uint32(0); teid < 1<<20; teid++ {
			check(teid)
			check(teid * 4093)
		}
		check(math.MaxUint32)
	}
	for teid, want := range map[uint32]teidPlace{
		7: {7, 0, flagByTEID}, 0x29000007: {7, 0x29, flagByTEID}, 100: {4, 6, 0}, 255*16 + 9: {9, 255, 0}, 256*16 + 9: {}, 0x29000021: {}, 96: {0, 6, 0},
	} {
		if got := placeOf(teid, 17); got != want {
			t.Errorf("of 17 slots, TEID %#x has %+v, want %+v", teid, got, want)
		}
	}
}
