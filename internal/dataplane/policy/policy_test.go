package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// TestPolicyIsWholeAtEveryWord replays the words that write stores, and
// demands after each that every hash finds a list, an old or a new one.
func TestPolicyIsWholeAtEveryWord(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for from := range 17 {
		for to := range 17 {
			now, next := policyOf(from, 100), policyOf(to, 200)
			a := table.NewArray[abi.SrPolicy](2)
			policies := &Table{Tables: Tables{Entries: a}}
			for w, v := range table.ToWords(now) {
				a.Store(1, w, v)
			}
			stored := 0
			a.Stored = func() {
				stored++
				p := a.Get(1)
				for range 50 {
					hash := random.Uint32()
					list := choose(p, hash)
					if list == 0 && from > 0 && to > 0 || list != 0 && list/100 != 1 && list/100 != 2 {
						t.Errorf("from %d to %d lists: after %d words hash %#x finds list %d", from, to, stored, hash, list)
					}
				}
			}
			policies.write(1, next)
			if a.Get(1) != next {
				t.Errorf("from %d to %d lists: written is %+v", from, to, a.Get(1))
			}
		}
	}
}

// policyOf has so many lists; from 9 on, two or three of them protect it, and are in use.
func policyOf(lists int, base uint32) abi.SrPolicy {
	m := srpolicy.Policy{SegmentLists: make([]srpolicy.SegmentList, lists)}
	if lists > 8 {
		m.SegmentLists, m.Protection = m.SegmentLists[:(lists-8)%6+1], make([]srpolicy.SegmentList, 2+lists%2*(1-(lists-8)%6/5))
		m.Down = make([]string, len(m.Lists()))
		for i := range m.SegmentLists {
			m.Down[i] = "no probe returns"
		}
	}
	p := abi.SrPolicy{Behavior: 19}
	use(&p, m)
	for i, threshold := range m.Thresholds() {
		p.List[i] = abi.WeightedList{Threshold: threshold, List: base + uint32(i)}
	}
	return p
}

// One store has packets take the lists that protect a policy, and its own again; a list of
// either that is down takes none, and one that is slow where no other is left.
func TestUse(t *testing.T) {
	lists := make([]srpolicy.SegmentList, 3)
	for _, c := range []struct {
		down               []string
		slow               []string
		first, count, bits int
	}{
		{nil, nil, 0, 2, 0},
		{[]string{"x", "", "", "", ""}, nil, 0, 2, 1},
		{[]string{"", "", "", "x", ""}, nil, 0, 2, 8},
		{[]string{"x", "x", "", "", ""}, nil, 2, 5, 3},
		{[]string{"x", "x", "", "x", ""}, nil, 2, 5, 11},
		{[]string{"x", "x", "x", "x", "x"}, nil, 0, 2, 0},
		{[]string{"x", "", "x", "x", "x"}, nil, 0, 2, 29},
		{nil, []string{"", "s", "s", "", ""}, 0, 2, 6},
		{[]string{"x", "", "", "", ""}, []string{"", "s", "s", "", ""}, 2, 5, 7},
		{[]string{"x", "", "x", "x", "x"}, []string{"", "s", "", "", ""}, 0, 2, 29},
		{[]string{"x", "x", "", "x", "x"}, []string{"", "", "s", "", ""}, 2, 5, 27},
		{[]string{"x", "x", "x", "x", "x"}, []string{"", "s", "s", "", ""}, 0, 2, 0},
	} {
		var p abi.SrPolicy
		use(&p, srpolicy.Policy{SegmentLists: lists[:2], Protection: lists, Down: c.down, Slow: c.slow})
		if int(p.First) != c.first || int(p.Count) != c.count || int(p.Down) != c.bits {
			t.Errorf("%q down, %q slow: lists %d to %d in use, without %b; want %d to %d, without %b", c.down, c.slow, p.First, p.Count, p.Down, c.first, c.count, c.bits)
		}
	}
}

// choose is what the data path does with a hash.
func choose(p abi.SrPolicy, hash uint32) uint32 {
	for _, l := range p.List[p.First:p.Count] {
		if hash <= l.Threshold {
			return l.List
		}
	}
	return 0
}
