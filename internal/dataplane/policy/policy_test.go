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
	for from := range 9 {
		for to := range 9 {
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

func policyOf(lists int, base uint32) abi.SrPolicy {
	p := abi.SrPolicy{Count: uint32(lists), Behavior: 19}
	for i, threshold := range (srpolicy.Policy{SegmentLists: make([]srpolicy.SegmentList, lists)}).Thresholds() {
		p.List[i] = abi.WeightedList{Threshold: threshold, List: base + uint32(i)}
	}
	return p
}

// choose is what the data path does with a hash.
func choose(p abi.SrPolicy, hash uint32) uint32 {
	for _, l := range p.List[:p.Count] {
		if hash <= l.Threshold {
			return l.List
		}
	}
	return 0
}
