package session

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRunsAreApart takes and gives back runs at random: they never overlap, and
// in the end there is room for the largest ones again.
func TestRunsAreApart(t *testing.T) {
	const count = 1000 // no multiple of a run
	random := rand.New(rand.NewPCG(1, 2))
	r := newRuns(count)
	r.settle()
	held := map[uint32]int{}
	for range 100_000 {
		if random.IntN(2) == 0 {
			n := 1 + random.IntN(maxRun)
			if at, ok := r.alloc(n); ok {
				held[at] = n
			}
		} else if len(held) > 0 {
			at := slices.Sorted(maps.Keys(held))[random.IntN(len(held))]
			delete(held, at)
			r.release(at)
		}
		end := uint32(0)
		for _, at := range slices.Sorted(maps.Keys(held)) {
			if at < end || at+uint32(held[at]) > count {
				t.Fatalf("a run of %d at %d, where others end at %d", held[at], at, end)
			}
			end = at + uint32(held[at])
		}
		if len(held) > 40 {
			for at := range held {
				delete(held, at)
				r.release(at)
			}
		}
	}
	again := newRuns(count)
	for at, n := range held {
		again.restore(at, n)
	}
	again.settle()
	if again.used != r.used {
		t.Errorf("%d in use, restored as %d", r.used, again.used)
	}
	for at := range held {
		r.release(at)
		again.release(at)
	}
	for _, r := range []*runs{r, again} {
		large := 0
		for {
			if _, ok := r.alloc(maxRun); !ok {
				break
			}
			large++
		}
		if large != count/maxRun || r.used != uint32(large*maxRun) {
			t.Errorf("room for %d runs of %d, %d in use: want %d", large, maxRun, r.used, count/maxRun)
		}
	}
}
