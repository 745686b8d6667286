package spread

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestPlanCard(t *testing.T) {
	own := map[uint32][]int{0: {0}, 1: {1}, 2: {2}, 3: {3}}
	for name, row := range map[string]struct {
		table  []uint32
		queues map[uint32][]int
		cpus   []int
		want   []uint32
	}{
		"nothing to do":          {[]uint32{0, 1, 2, 3, 0, 1, 2, 3}, own, []int{0, 1, 2, 3}, []uint32{0, 1, 2, 3, 0, 1, 2, 3}},
		"fewer CPUs":             {[]uint32{0, 1, 2, 3, 0, 1, 2, 3}, own, []int{2, 3}, []uint32{2, 3, 2, 3, 2, 3, 2, 3}},
		"one CPU":                {[]uint32{0, 1, 2, 3, 0, 1, 2, 3}, own, []int{1}, []uint32{1, 1, 1, 1, 1, 1, 1, 1}},
		"more CPUs":              {[]uint32{1, 1, 1, 1}, own, []int{0, 1}, []uint32{1, 1, 0, 0}},
		"two queues on a CPU":    {[]uint32{0, 0, 0, 0, 0, 0, 0, 0}, map[uint32][]int{0: {0}, 1: {1}, 2: {1}}, []int{0, 1}, []uint32{0, 0, 0, 0, 1, 2, 1, 2}},
		"it may go to others":    {[]uint32{0, 1, 0, 1}, map[uint32][]int{0: {0, 1}, 1: {1}}, []int{1}, []uint32{1, 1, 1, 1}},
		"both are wanted":        {[]uint32{0, 1, 0, 1}, map[uint32][]int{0: {0, 1}, 1: {1}}, []int{0, 1}, []uint32{0, 1, 0, 1}},
		"more CPUs than queues":  {[]uint32{0, 1, 0, 1}, map[uint32][]int{0: {0}, 1: {1}}, []int{0, 1, 2, 3}, []uint32{0, 1, 0, 1}},
		"more CPUs than entries": {[]uint32{3, 3}, own, []int{0, 1, 2, 3}, []uint32{3, 0}},
	} {
		if got, err := PlanCard(row.table, row.queues, row.cpus); err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, row.want)
		}
	}
	for want, cpus := range map[string][]int{"no interrupt of the card's 4 queues goes to CPUs [7]": {7}, "goes to CPUs []": nil} {
		if got, err := PlanCard([]uint32{0}, own, cpus); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", got, err, want)
		}
	}
	for _, table := range [][]uint32{nil, {0}} {
		if got, err := PlanCard(table, nil, []int{0}); err == nil {
			t.Errorf("%v of a card that is not known", got)
		}
	}
}

// TestPlanCardOfRandomTables: entries go to CPUs wanted only, evenly, and no more of them
// change than must.
func TestPlanCardOfRandomTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		count := 1 + r.IntN(16)
		queues, table := map[uint32][]int{}, make([]uint32, 1<<r.IntN(9))
		for q := range count {
			queues[uint32(q)] = []int{r.IntN(8)}
		}
		for i := range table {
			table[i] = uint32(r.IntN(count))
		}
		cpus := r.Perm(8)[:1+r.IntN(8)]
		got, err := PlanCard(table, queues, cpus)
		if err != nil {
			continue // no queue is there
		}
		load, moved := map[int]int{}, 0
		for _, to := range queues {
			if slices.Contains(cpus, to[0]) {
				load[to[0]] = 0
			}
		}
		for i, q := range got {
			if _, wanted := load[queues[q][0]]; !wanted {
				t.Fatalf("%v, %v, %v: queue %d of CPU %d", table, queues, cpus, q, queues[q][0])
			}
			load[queues[q][0]]++
			if q != table[i] {
				moved++
			}
		}
		least, most := len(table), 0
		for _, n := range load {
			least, most = min(least, n), max(most, n)
		}
		must, had, has := 0, map[uint32]int{}, map[uint32]int{}
		for i := range table {
			had[table[i]]++
			has[got[i]]++
		}
		for q, n := range had {
			must += max(0, n-has[q])
		}
		if most-least > 1 || moved != must {
			t.Fatalf("%v, %v, %v: %v, %d entries changed, not %d", table, queues, cpus, load, moved, must)
		}
		if again, err := PlanCard(got, queues, cpus); err != nil || !slices.Equal(again, got) {
			t.Fatalf("%v, %v: changed without need to %v, %v", got, queues, again, err)
		}
	}
}
