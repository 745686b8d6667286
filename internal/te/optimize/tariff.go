package optimize

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// tariff is what a unit of flow costs, by each list, where links cost what they do. Waypoints
// that are links are many, so they are looked at one by one only where the cheapest one that
// leads into a node is cheap enough.
type tariff struct {
	s    *solver
	link []float64
	// back is by a flow's destination and source, and there by source and destination: what is
	// read one after the other lies so. there is +Inf of nodes that are no waypoint.
	back, there []float64
	// enter is by source and node: by the cheapest of the links that are waypoints and lead into
	// the node; nil: no link is one.
	enter []float64
}

func newTariff(s *solver) *tariff {
	n := s.shares.nodes
	t := &tariff{s: s, back: make([]float64, n*n), there: make([]float64, n*n)}
	if s.links > 0 {
		t.enter = make([]float64, n*n)
	}
	return t
}

// set has links cost something.
func (t *tariff) set(link []float64) {
	t.link = link
	n := t.s.shares.nodes
	each(n, func(to int) { t.s.g.Costs(to, link, t.back[to*n:(to+1)*n]) })
	each(n, func(from int) {
		there := t.there[from*n : (from+1)*n]
		for k := range there {
			there[k] = t.back[k*n+from]
		}
		if t.enter != nil {
			t.setEnter(from, there)
		}
		for k := range there {
			if !t.s.visits(from, k) {
				there[k] = math.Inf(1)
			}
		}
	})
}

func (t *tariff) setEnter(from int, there []float64) {
	n := t.s.shares.nodes
	for k, enter := 0, t.enter[from*n:(from+1)*n]; k < n; k++ {
		enter[k] = math.Inf(1)
		for _, l := range t.s.into[k] {
			if tail, _ := t.s.g.Ends(int(l)); t.s.leaves(from, tail) {
				enter[k] = min(enter[k], there[tail]+t.link[l])
			}
		}
	}
}

// of is what a list costs.
func (t *tariff) of(from int, via int32, to int) float64 {
	n := t.s.shares.nodes
	enter, leave, link := t.s.legs(via)
	cost := t.back[enter*n+from] + t.back[to*n+leave]
	if link >= 0 {
		cost += t.link[link]
	}
	return cost
}

// cheaper calls found with each list of a commodity that costs less than below, which found may
// lower.
func (t *tariff) cheaper(c *commodity, below *float64, found func(via int32, cost float64)) {
	offer := func(via int32, cost float64) {
		if cost < *below && c.suits(via) {
			found(via, cost)
		}
	}
	if c.only != nil {
		for _, via := range c.only {
			offer(via, t.of(c.from, via, c.to))
		}
		return
	}
	n := t.s.shares.nodes
	back := t.back[c.to*n : (c.to+1)*n]
	offer(int32(c.to), back[c.from])
	for k, cost := range t.there[c.from*n : (c.from+1)*n] {
		if cost += back[k]; cost < *below && k != c.to {
			offer(int32(k), cost)
		}
	}
	if t.enter == nil {
		return
	}
	for k, cost := range t.enter[c.from*n : (c.from+1)*n] {
		if cost+back[k] >= *below {
			continue
		}
		for _, l := range t.s.into[k] {
			if tail, _ := t.s.g.Ends(int(l)); t.s.leaves(c.from, tail) {
				offer(int32(n)+l, t.back[tail*n+c.from]+t.link[l]+back[k])
			}
		}
	}
}

// column is a list, and what it costs.
type column struct {
	via  int32
	cost float64
}

// cheapest appends the cheapest lists of a commodity, the cheapest first: at most so many, that
// cost at most so many times as much as the first, where that is not 0. Of lists that are the same
// way one is enough: the IGP's rather than a node, and a node rather than a link.
func (t *tariff) cheapest(columns []column, c *commodity, most int, times float64) []column {
	below := math.Inf(1)
	t.cheaper(c, &below, func(via int32, cost float64) {
		at := len(columns)
		for at > 0 && columns[at-1].cost > cost*(1+alike) {
			at--
		}
		for i := at; i > 0 && columns[i-1].cost >= cost*(1-alike); i-- {
			if t.s.sameWay(c, columns[i-1].via, via) {
				return
			}
		}
		if len(columns) == most {
			if at == most {
				return
			}
			columns = columns[:most-1]
		}
		if columns = slices.Insert(columns, at, column{via, cost}); at == 0 && times > 0 {
			below = math.Nextafter(times*cost, math.Inf(1))
		}
		if len(columns) == most {
			below = min(below, columns[most-1].cost)
		}
	})
	for n := len(columns); times > 0 && columns[n-1].cost > times*columns[0].cost; n-- {
		columns = columns[:n-1]
	}
	return columns
}

// alike is by how much sums of the same numbers differ.
const alike = 1e-9

// sameWay says whether two lists put the same on each link: then they cost the same, also where
// links cost random numbers.
func (s *solver) sameWay(c *commodity, a, b int32) bool {
	x, y := s.random.of(c.from, a, c.to), s.random.of(c.from, b, c.to)
	return math.Abs(x-y) <= alike*x
}

// each calls f with 0 to n-1, on all cores.
func each(n int, f func(i int)) {
	const block = 16
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (n+block-1)/block) {
		all.Go(func() {
			for {
				end := int(next.Add(block))
				for i := end - block; i < min(end, n); i++ {
					f(i)
				}
				if end >= n {
					return
				}
			}
		})
	}
	all.Wait()
}
