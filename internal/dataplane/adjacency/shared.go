package adjacency

import (
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Member is a next hop that flows share with others. Its weight says how many of the flows
// it gets; 0: none of them now.
type Member struct {
	Key
	Weight int
}

// Parts is the table shared_hop: who has which part of the flows.
type Parts = table.Array[abi.SharedHop]

// SetShared says which next hops the flows of an adjacency share. A flow stays on its next
// hop, unless that goes, or another one comes and gets its part. A key that nothing refers
// to any more is ignored.
func (t *Table) SetShared(k Key, members []Member) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.entries[k]
	if a == nil {
		return nil
	}
	var shares []share
	var keys []Key
	for _, m := range members {
		index, err := t.Acquire(m.Key)
		if err != nil {
			return fmt.Errorf("next hop %s: %w", k.name(), t.OrRelease(err, keys))
		}
		keys = append(keys, m.Key)
		shares = append(shares, share{index, m.Weight})
	}
	parts := t.parts.Get(a.index)
	divide(parts.Adjacency[:], shares)
	for word, v := range table.ToWords(parts) {
		t.parts.Change(a.index, word, v)
	}
	before := a.members
	a.members = keys
	err := t.point(a, abi.NextHop{Flags: uint8(abi.NextHopFlagsNEXT_HOP_SHARED)})
	return errors.Join(err, t.Release(before...))
}

// share is what an adjacency's next hop gets of the flows.
type share struct {
	index  uint32
	weight int
}

// divide gives each part of the flows to a next hop, by weight, and leaves as many as
// possible where they are: if a next hop goes, only its parts move; if one comes, only those
// that it gets.
func divide(parts []uint32, shares []share) {
	total := 0
	for _, s := range shares {
		total += s.weight
	}
	has := make([]int, len(shares))
	lack := func(i int) int { return shares[i].weight*len(parts) - has[i]*total } // in parts, times total
	byLack := func(i, j int) int { return lack(i) - lack(j) }
	var places []int
	for i := range shares {
		places = append(places, i)
	}
	for p, index := range parts {
		i := slices.IndexFunc(shares, func(s share) bool { return s.index == index && s.weight > 0 })
		if i < 0 || lack(i) <= 0 {
			parts[p] = 0
			continue
		}
		has[i]++
	}
	if total == 0 {
		return
	}
	give := func(p int) {
		i := slices.MaxFunc(places, byLack)
		parts[p] = shares[i].index
		has[i]++
	}
	for p, index := range parts {
		if index == 0 {
			give(p)
		}
	}
	// Whoever lacks a whole part gets one of whoever has most beyond its share.
	for lack(slices.MaxFunc(places, byLack)) >= total {
		rich := slices.MinFunc(places, byLack)
		for p := len(parts) - 1; p >= 0; p-- {
			if parts[p] == shares[rich].index {
				has[rich]--
				give(p)
				break
			}
		}
	}
}
