package spread

import (
	"cmp"
	"maps"
	"slices"
)

// Bucket is what its packets have in common: a UE and direction, or a flow.
type Bucket struct {
	CPU     int    // that handles it, or will; -1: none, or its flows go where their buckets say
	Split   bool   // the latter
	Packets uint64 // since the beginning
}

// Queue is what a CPU gets.
type Queue struct {
	CPU  int
	Full uint64 // packets since the beginning that had no room
}

// Action moves a bucket to a CPU, or splits it, or joins its flows again there.
type Action struct {
	Bucket int
	CPU    int // -1: split it
}

// When a Balancer acts. A look is one call of Next.
const (
	minPackets = 500  // of all buckets at one look: fewer are not worth a move, nor a split
	imbalance  = 1.25 // of a CPU's load to the mean: more is levelled ...
	level      = 1.05 // ... to that
	mostMoves  = 64   // at one look
	rest       = 10   // looks for which a moved bucket stays
	fullLooks  = 10   // for which a CPU has to drop until it is levelled without imbalance
	heavyShare = 0.8  // of what its CPU takes: a bucket that nothing else can be moved away from
	heavyLooks = 3    // for which its CPU's queue has to be full before it is split
	lightShare = 0.5  // of what its CPU took of it when it was split
	lightLooks = 50   // for which it has to be that light before it is joined
	smoothing  = 4    // looks over which loads are averaged
)

// Balancer remembers what it saw and did. The zero value is ready.
type Balancer struct {
	buckets []memory
	queues  map[int]queue // by CPU
}

// queue is a Queue as Next saw it.
type queue struct {
	full  uint64
	looks int // for which it has dropped
}

// memory is a bucket as Next saw it.
type memory struct {
	packets uint64
	taken   float64 // packets per look
	load    float64 // the same, with those that found a full queue
	rest    int     // looks
	heavy   int     // looks for which it kept its queue full by itself
	split   float64 // what was taken of it then
	light   int     // looks
}

// Next says what to do about the first `first` buckets, which may be split, and the
// others, which are those of flows. Only CPUs with a queue get any.
func (b *Balancer) Next(buckets []Bucket, first int, queues []Queue) []Action {
	full := b.dropped(queues)
	total := b.look(buckets, full)
	cpus := loads{}
	for _, q := range queues {
		cpus[q.CPU] = 0
	}
	for i, k := range buckets {
		if _, there := cpus[k.CPU]; there && !k.Split {
			cpus[k.CPU] += b.buckets[i].load
		}
	}
	if len(cpus) == 0 {
		return nil
	}
	actions := b.fetch(buckets, cpus)
	if len(cpus) == 1 {
		return actions
	}
	actions = append(actions, b.join(buckets[:first], cpus)...)
	if total < minPackets {
		return actions
	}
	if i, ok := b.tooHeavy(buckets, first, full); ok {
		b.buckets[i].split, b.buckets[i].light = b.buckets[i].taken, 0
		return append(actions, Action{Bucket: i, CPU: -1})
	}
	return append(actions, b.level(buckets, cpus)...)
}

// dropped are the packets that found the queue of a CPU full since the last look.
func (b *Balancer) dropped(queues []Queue) loads {
	out, now := loads{}, map[int]queue{}
	for _, q := range queues {
		m := queue{full: q.Full}
		if before, seen := b.queues[q.CPU]; seen && q.Full > before.full {
			out[q.CPU] = float64(q.Full - before.full)
			m.looks = before.looks + 1
		}
		now[q.CPU] = m
	}
	b.queues = now
	return out
}

// look takes the loads down, and returns what was taken of all at this look. What a full
// queue dropped was of the CPU's buckets in proportion to what it took of them.
func (b *Balancer) look(buckets []Bucket, dropped loads) (total float64) {
	if len(b.buckets) != len(buckets) {
		b.buckets = make([]memory, len(buckets))
		for i, k := range buckets {
			b.buckets[i].packets = k.Packets
		}
	}
	now, cpus := make([]float64, len(buckets)), loads{}
	for i, k := range buckets {
		m := &b.buckets[i]
		// A packet that finds no room is counted, and no more a moment later.
		now[i] = float64(k.Packets - min(k.Packets, m.packets))
		m.packets = k.Packets
		if !k.Split {
			total += now[i]
			cpus[k.CPU] += now[i]
		}
	}
	for i, k := range buckets {
		m := &b.buckets[i]
		offered := now[i]
		if !k.Split && now[i] > 0 {
			offered += dropped[k.CPU] * now[i] / cpus[k.CPU]
		}
		m.taken += (now[i] - m.taken) / smoothing
		m.load += (offered - m.load) / smoothing
		m.rest = max(0, m.rest-1)
	}
	return total
}

// fetch brings buckets back that are on a CPU without a queue.
func (b *Balancer) fetch(buckets []Bucket, cpus loads) (actions []Action) {
	for i, k := range buckets {
		if _, there := cpus[k.CPU]; there || k.CPU < 0 {
			continue
		}
		m := &b.buckets[i]
		m.rest = rest
		to := b.idlest(cpus)
		cpus[to] += m.load
		actions = append(actions, Action{Bucket: i, CPU: to})
	}
	return actions
}

// tooHeavy is one of the first buckets that alone fills a CPU.
func (b *Balancer) tooHeavy(buckets []Bucket, first int, dropped loads) (int, bool) {
	taken := loads{}
	for i, k := range buckets {
		if !k.Split {
			taken[k.CPU] += b.buckets[i].taken
		}
	}
	heavy, found := 0, false
	for i, k := range buckets[:first] {
		m := &b.buckets[i]
		if k.Split || dropped[k.CPU] == 0 || m.taken < heavyShare*taken[k.CPU] {
			m.heavy = 0
			continue
		}
		if m.heavy++; m.heavy > heavyLooks && !found {
			heavy, found = i, true
		}
	}
	return heavy, found
}

// join ends the split of buckets that have long been light. One that was split before
// this Balancer began is light if it fills no CPU at all.
func (b *Balancer) join(buckets []Bucket, cpus loads) (actions []Action) {
	for i, k := range buckets {
		m := &b.buckets[i]
		if !k.Split || k.CPU >= 0 { // or it is being joined
			continue
		}
		if m.taken > max(lightShare*m.split, minPackets) {
			m.light = 0
			continue
		}
		if m.light++; m.light >= lightLooks {
			m.rest, m.light, m.split = rest, 0, 0
			actions = append(actions, Action{Bucket: i, CPU: b.idlest(cpus)})
		}
	}
	return actions
}

// level moves buckets from the busiest CPU to the idlest one, the heaviest first that
// makes the difference smaller. A CPU that keeps dropping sheds load sooner.
func (b *Balancer) level(buckets []Bucket, cpus loads) (actions []Action) {
	limit := imbalance * cpus.mean()
	for range mostMoves {
		from, to := cpus.most(), b.idlest(cpus)
		if b.queues[from].looks >= fullLooks && b.queues[to].looks == 0 {
			limit = level * cpus.mean()
		}
		if cpus[from] <= limit {
			break
		}
		limit = level * cpus.mean()
		gap := cpus[from] - cpus[to]
		best := -1
		for i, k := range buckets {
			m := &b.buckets[i]
			if k.CPU != from || k.Split || m.rest > 0 || m.load <= 0 || m.load >= gap*0.9 {
				continue
			}
			if best < 0 || m.load > b.buckets[best].load {
				best = i
			}
		}
		if best < 0 {
			break
		}
		m := &b.buckets[best]
		cpus[from] -= m.load
		cpus[to] += m.load
		m.rest = rest
		actions = append(actions, Action{Bucket: best, CPU: to})
	}
	return actions
}

// idlest is the CPU with the least load of those that do not drop, if there is one: a CPU
// that others keep from its queue takes nothing, and seems to have no load.
func (b *Balancer) idlest(cpus loads) int {
	open := maps.Clone(cpus)
	maps.DeleteFunc(open, func(cpu int, _ float64) bool { return b.queues[cpu].looks > 0 })
	if len(open) == 0 {
		return cpus.least()
	}
	return open.least()
}

// loads are packets per look, by CPU.
type loads map[int]float64

func (l loads) mean() float64 {
	sum := 0.0
	for _, v := range l {
		sum += v
	}
	return sum / float64(len(l))
}

// most is the busiest CPU, least the idlest; of equal ones the first.
func (l loads) most() int  { return l.choose(func(a, b float64) bool { return a > b }) }
func (l loads) least() int { return l.choose(func(a, b float64) bool { return a < b }) }

func (l loads) choose(better func(a, b float64) bool) int {
	cpus := make([]int, 0, len(l))
	for cpu := range l {
		cpus = append(cpus, cpu)
	}
	slices.SortFunc(cpus, cmp.Compare)
	best := cpus[0]
	for _, cpu := range cpus[1:] {
		if better(l[cpu], l[best]) {
			best = cpu
		}
	}
	return best
}
