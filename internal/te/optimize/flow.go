package optimize

import (
	"context"
	"math"
	"slices"
)

const (
	firstStep  = 0.3
	lastStep   = 0.004
	mostLength = 1e120 // of all links times capacities, before lengths are scaled down
)

// flow approximates the fractional optimum of a round. A phase sends each commodity once.
// The mean of phases is a routing, and the largest utilisation of it is at most that of the
// optimum times a factor that falls with the number of phases and the step.
type flow struct {
	s     *solver
	r     round
	step  float64 // how much longer a full link gets; epsilon in the literature
	scale float64 // of all rates: makes the largest utilisation about 1

	length []float64 // of links: their price
	total  float64   // of lengths times capacities
	cost   []float64 // of a pair's flow, by from and to
	back   []float64 // the same by to and from: what is read one after the other lies so
	way    *way
	// columns are the lists of each commodity that a phase chooses from.
	columns [][]int32

	// sent is by commodity what its lists carried since mean was begun, and load what links
	// did, of so many phases.
	sent   [][]sent
	load   []float64
	mean   []float64 // sum of lengths, each time scaled to a total of 1
	phases int

	found  float64
	best   [][]sent // that makes found
	first  []int32  // the list that each commodity began with
	bound  float64
	prices []float64 // that prove bound
}

// sent is what a list carried.
type sent struct {
	via    int32
	amount float64
}

func newFlow(s *solver, r round) *flow {
	links, n := len(s.g.Topology.Links), s.shares.nodes
	f := &flow{
		s: s, r: r, length: make([]float64, links), cost: make([]float64, n*n), back: make([]float64, n*n), way: newWay(s.shares),
		columns: make([][]int32, len(r.commodities)), sent: make([][]sent, len(r.commodities)), load: make([]float64, links), mean: make([]float64, links), prices: make([]float64, links),
	}
	for link := range f.length {
		if s.g.Used(link) {
			f.length[link] = 1 / s.capacity(link)
		}
	}
	f.prove()
	f.direct()
	f.scale = 1 / f.found
	return f
}

// direct begins with the lists that have no waypoint, or the cheapest.
func (f *flow) direct() {
	f.best, f.first = make([][]sent, len(f.r.commodities)), make([]int32, len(f.r.commodities))
	load := slices.Clone(f.r.fixed)
	for i, c := range f.r.commodities {
		via := int32(c.to)
		if !slices.Contains(c.via, via) {
			via = f.cheapest(i)
		}
		f.best[i], f.first[i] = []sent{{via, 1}}, via
		f.way.take(c.from, int(via), c.to)
		for _, l := range f.way.links {
			load[l] += c.Rate * f.way.part[l]
		}
	}
	f.found = f.s.largest(load)
}

// largest is the utilisation of the most used link.
func (s *solver) largest(load []float64) (u float64) {
	for link, v := range load {
		if v > 0 {
			u = max(u, v/s.capacity(link))
		}
	}
	return u
}

// run sends until the tolerance is met, the step is too small to gain more, or ctx ends.
func (f *flow) run(ctx context.Context) error {
	for f.step = firstStep; f.step >= lastStep && f.found > 0; f.step /= 2 {
		gap := f.gap()
		for all, until := 0, 1; ; all++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if all%f.every() == 0 {
				f.prove()
			}
			if f.gap() <= f.s.options.Tolerance {
				return nil
			}
			if all == until { // forget the first half, which knew least
				if float64(all) >= 3/f.step && f.gap() > 0.85*gap {
					break
				}
				gap, until = f.gap(), 2*until
				f.proveMean()
				f.forget()
				f.scale = 1 / f.found
			}
			f.phase()
			f.keep()
			if p := f.s.options.Progress; p != nil {
				p(Progress{Priority: f.r.priority, Phases: all + 1, Found: f.found, Bound: f.bound})
			}
		}
		f.forget()
	}
	return nil
}

// gap is how far what was found is above the bound, relative to it.
func (f *flow) gap() float64 {
	if f.bound == 0 {
		return math.Inf(1)
	}
	return f.found/f.bound - 1
}

func (f *flow) forget() {
	for i := range f.sent {
		f.sent[i] = f.sent[i][:0]
	}
	clear(f.load)
	clear(f.mean)
	f.phases = 0
}

// price computes the costs of all pairs, and total, by the lengths.
func (f *flow) price() {
	if f.total > mostLength {
		for link := range f.length {
			f.length[link] /= f.total
		}
	}
	f.total = 0
	for link, length := range f.length {
		if length > 0 {
			f.total += length * f.s.capacity(link)
		}
	}
	n := f.s.shares.nodes
	for from := range n {
		for to := range n {
			cost := f.pay(from, to)
			f.cost[from*n+to], f.back[to*n+from] = cost, cost
		}
	}
}

// pay is what a bit/s costs from one node to another.
func (f *flow) pay(from, to int) (cost float64) {
	for _, s := range f.s.shares.of(from, to) {
		cost += f.length[s.Link] * float64(s.Part)
	}
	return cost
}

// choose finds what a bit/s costs by the cheapest list, as of the last price(), and the lists
// that can become the cheapest before the next.
func (f *flow) choose(c *commodity, columns []int32) (_ []int32, least float64) {
	n := f.s.shares.nodes
	there, back := f.cost[c.from*n:(c.from+1)*n], f.back[c.to*n:(c.to+1)*n]
	least = math.Inf(1)
	for _, k := range c.via {
		least = min(least, there[k]+back[k])
	}
	within := least * math.Pow(1+f.step, 2*float64(f.every()))
	for _, k := range c.via {
		if there[k]+back[k] <= within {
			columns = append(columns, k)
		}
	}
	return columns, least
}

// every is after how many phases all prices are computed again.
func (f *flow) every() int {
	if f.step > 0.1 {
		return 1
	}
	return 4
}

// cheapest is the list of a commodity that costs least now, of its columns.
func (f *flow) cheapest(commodity int) (via int32) {
	c, least := &f.r.commodities[commodity], math.Inf(1)
	for _, k := range f.columns[commodity] {
		if cost := f.pay(c.from, int(k)) + f.pay(int(k), c.to); cost < least {
			via, least = k, cost
		}
	}
	return via
}

// prove finds the columns, and the bound that the lengths prove: each routing costs at least what all
// commodities cost by their cheapest lists, and at most its utilisation times total.
func (f *flow) prove() {
	f.price()
	var sum float64
	for i := range f.r.commodities {
		c := &f.r.commodities[i]
		var cost float64
		f.columns[i], cost = f.choose(c, f.columns[i][:0])
		sum += c.Rate * cost
	}
	for link, load := range f.r.fixed {
		sum += load * f.length[link]
	}
	if bound := sum / f.total; bound > f.bound {
		f.bound = bound
		for link, length := range f.length {
			f.prices[link] = length / f.total
		}
	}
}

// proveMean finds the bound that the mean of lengths proves. These swing about the best ones,
// and what they prove is concave, so that their mean proves at least the mean of it.
func (f *flow) proveMean() {
	if f.phases == 0 {
		return
	}
	lengths := f.length
	f.length = f.mean
	f.prove()
	f.length = lengths
}

// phase sends each commodity once, in parts that no link is too small for.
func (f *flow) phase() {
	f.phases++
	f.way.take(0, 0, 0) // nothing
	for link, load := range f.r.fixed {
		if load > 0 {
			f.way.links = append(f.way.links, int32(link))
			f.way.part[link] = load * f.scale
		}
	}
	for left := 1.0; left > 0 && len(f.way.links) > 0; {
		left -= f.send(left)
	}
	for i := range f.r.commodities {
		c := &f.r.commodities[i]
		for left := c.Rate * f.scale; left > 0; {
			via := f.cheapest(i)
			f.way.take(c.from, int(via), c.to)
			amount := f.send(left)
			left -= amount
			f.note(i, via, amount)
		}
	}
	var total float64
	for link, length := range f.length {
		total += length * f.s.capacity(link)
	}
	for link, length := range f.length {
		f.mean[link] += length / total
	}
}

// send has links carry what is left, or what they can at once, by the way.
func (f *flow) send(left float64) (amount float64) {
	amount = left
	for _, l := range f.way.links {
		amount = min(amount, f.s.capacity(int(l))/f.way.part[l])
	}
	for _, l := range f.way.links {
		link := int(l)
		load := amount * f.way.part[l]
		f.load[link] += load
		f.length[link] += f.length[link] * f.step * load / f.s.capacity(link)
	}
	return amount
}

func (f *flow) note(commodity int, via int32, amount float64) {
	list := f.sent[commodity]
	for i := range list {
		if list[i].via == via {
			list[i].amount += amount
			return
		}
	}
	f.sent[commodity] = append(list, sent{via, amount})
}

// keep remembers the mean of phases if it is better.
func (f *flow) keep() {
	u := f.s.largest(f.load) / float64(f.phases) / f.scale
	if u >= f.found {
		return
	}
	f.found = u
	for i, list := range f.sent {
		f.best[i] = append(f.best[i][:0], list...)
	}
}
