package spread

import (
	"cmp"
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
	minPackets = 500  // of all buckets at one look: fewer are not worth a move
	imbalance  = 1.25 // of a CPU's load to the mean: more is levelled ...
	level      = 1.05 // ... to that
	mostMoves  = 64   // at one look
	rest       = 10   // looks for which a moved bucket stays
	heavyShare = 0.8  // of its CPU's load: a bucket that nothing else can be moved away from
	heavyLooks = 3    // for which its CPU's queue has to be full before it is split
	lightShare = 0.5  // of what it had when it was split
	lightLooks = 50   // for which it has to be that light before it is joined
	smoothing  = 4    // looks over which loads are averaged
)

// Balancer remembers what it saw and did. The zero value is ready.
type Balancer struct {
	buckets []memory
	full    map[int]uint64 // by CPU
	heavy   int            // looks for which one bucket kept its queue full
	heavier int            // that bucket
}

// memory is a bucket as Next saw it.
type memory struct {
	packets uint64
	load    float64 // packets per look
	rest    int     // looks
	split   float64 // its load then
	light   int     // looks
}

// Next says what to do about the first `first` buckets, which may be split, and the
// others, which are those of flows. Only CPUs with a queue get any.
func (b *Balancer) Next(buckets []Bucket, first int, queues []Queue) []Action {
	total := b.look(buckets)
	full := b.overflown(queues)
	cpus := loads{}
	for _, q := range queues {
		cpus[q.CPU] = 0
	}
	for i, k := range buckets {
		if _, there := cpus[k.CPU]; there && !k.Split {
			cpus[k.CPU] += b.buckets[i].load
		}
	}
	if len(cpus) < 2 {
		return nil
	}
	actions := b.join(buckets[:first], cpus)
	if total < minPackets {
		return actions
	}
	if i, ok := b.tooHeavy(buckets[:first], cpus, full); ok {
		b.buckets[i].split, b.buckets[i].light = b.buckets[i].load, 0
		return append(actions, Action{Bucket: i, CPU: -1})
	}
	return append(actions, b.level(buckets, cpus)...)
}

// look takes the loads down, and returns that of all at this look.
func (b *Balancer) look(buckets []Bucket) (total float64) {
	if len(b.buckets) != len(buckets) {
		b.buckets, b.full = make([]memory, len(buckets)), map[int]uint64{}
		for i, k := range buckets {
			b.buckets[i].packets = k.Packets
		}
	}
	for i, k := range buckets {
		m := &b.buckets[i]
		now := float64(k.Packets - m.packets)
		m.packets = k.Packets
		m.load += (now - m.load) / smoothing
		m.rest = max(0, m.rest-1)
		if !k.Split {
			total += now
		}
	}
	return total
}

// overflown are the CPUs whose queue has been full since the last look.
func (b *Balancer) overflown(queues []Queue) map[int]bool {
	out := map[int]bool{}
	for _, q := range queues {
		if before, seen := b.full[q.CPU]; seen && q.Full > before {
			out[q.CPU] = true
		}
		b.full[q.CPU] = q.Full
	}
	return out
}

// tooHeavy is the bucket that alone fills a CPU.
func (b *Balancer) tooHeavy(buckets []Bucket, cpus loads, full map[int]bool) (int, bool) {
	for i, k := range buckets {
		if k.Split || !full[k.CPU] || b.buckets[i].load < heavyShare*cpus[k.CPU] {
			continue
		}
		if b.heavier != i {
			b.heavier, b.heavy = i, 0
		}
		b.heavy++
		return i, b.heavy > heavyLooks
	}
	b.heavy = 0
	return 0, false
}

// join ends the split of buckets that have long been light.
func (b *Balancer) join(buckets []Bucket, cpus loads) (actions []Action) {
	for i, k := range buckets {
		m := &b.buckets[i]
		if !k.Split {
			continue
		}
		if m.load > lightShare*m.split {
			m.light = 0
			continue
		}
		if m.light++; m.light >= lightLooks {
			m.rest, m.light = rest, 0
			actions = append(actions, Action{Bucket: i, CPU: cpus.least()})
		}
	}
	return actions
}

// level moves buckets from the busiest CPU to the idlest one, the heaviest first that
// makes the difference smaller.
func (b *Balancer) level(buckets []Bucket, cpus loads) (actions []Action) {
	limit := imbalance * cpus.mean()
	for range mostMoves {
		from, to := cpus.most(), cpus.least()
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
