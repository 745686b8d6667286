package spread

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// PlanCard returns the indirection table by which a card gives packets only to queues
// whose interrupts go to some of the CPUs wanted, with as many entries for each of these
// CPUs as for the others. As few entries as possible change: an entry is what a bucket is
// in the data path, but no card counts its packets, so that loads cannot be levelled.
// queues has the CPUs that each queue's interrupt may go to.
func PlanCard(table []uint32, queues map[uint32][]int, cpus []int) ([]uint32, error) {
	if len(table) == 0 || len(queues) == 0 {
		return nil, errors.New("the card has no indirection table, or it is not known where its interrupts go")
	}
	of := map[int][]uint32{} // queues by the CPU wanted
	for queue, to := range queues {
		if len(to) > 0 && !slices.ContainsFunc(to, func(cpu int) bool { return !slices.Contains(cpus, cpu) }) {
			of[to[0]] = append(of[to[0]], queue)
		}
	}
	if len(of) == 0 {
		return nil, fmt.Errorf("no interrupt of the card's %d queues goes to CPUs %v: write one of them to /proc/irq/NUMBER/smp_affinity_list", len(queues), cpus)
	}
	room := rooms(table, of)
	out := slices.Clone(table)
	var homeless []int
	for i, queue := range table {
		if room[queue] > 0 {
			room[queue]--
		} else {
			homeless = append(homeless, i)
		}
	}
	queue := slices.Sorted(maps.Keys(room))
	next := 0
	for _, i := range homeless {
		for room[queue[next%len(queue)]] == 0 {
			next++
		}
		out[i] = queue[next%len(queue)]
		room[out[i]]--
		next++
	}
	return out, nil
}

// rooms is how many entries of the table each queue should have. What does not divide
// goes to those that have most entries.
func rooms(table []uint32, of map[int][]uint32) map[uint32]int {
	has := map[uint32]int{}
	for _, queue := range table {
		has[queue]++
	}
	hasCPU := map[int]int{}
	for cpu, queues := range of {
		for _, queue := range queues {
			hasCPU[cpu] += has[queue]
		}
	}
	room := map[uint32]int{}
	for cpu, share := range shares(len(table), slices.Collect(maps.Keys(of)), hasCPU) {
		maps.Copy(room, shares(share, of[cpu], has))
	}
	return room
}

// shares divides n among all; the first to get what is left over have most.
func shares[K cmp.Ordered](n int, all []K, has map[K]int) map[K]int {
	slices.SortFunc(all, func(a, b K) int { return cmp.Or(has[b]-has[a], cmp.Compare(a, b)) })
	out := map[K]int{}
	for i, k := range all {
		out[k] = n / len(all)
		if i < n%len(all) {
			out[k]++
		}
	}
	return out
}
