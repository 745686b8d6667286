// Package change leads from the routing that is installed to one that is better: with few
// changes, and in steps in which no link carries more than it can.
package change

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Options say when a change is worth it. The zero value is valid.
type Options struct {
	// Target is the utilisation up to which nothing has to change, and Aim the one that changes
	// bring about if they can: below the target, so that a little more traffic changes nothing.
	Target, Aim float64
	// Gain is by how much the largest utilisation has to fall, relative to what it is; 0: 0.05.
	Gain float64
	// Most is how many demands may change at once; 0: 20.
	Most int
	// Must are demands whose installed lists lead nowhere, or are not what their class asks for.
	Must map[te.Key]bool
	// Groups change as one: the new lists of one may be in the way of another's old ones.
	Groups []te.Group
}

// Choice is the demands that change.
type Choice struct {
	Routing te.Routing // of all demands, with the changes
	Moves   []te.Key   // what changes, the most useful first
	// Now and Then are the largest utilisations before and after.
	Now, Then float64
	// Why says why something changes, or nothing does.
	Why string
}

// Choose finds which changes from one routing to another lower the largest utilisation most:
// as few as reach the aim, or what all of them together would. Those that must change come
// first, whatever links carry.
func Choose(g *graph.Graph, demands []te.Demand, now, wanted te.Routing, o Options) Choice {
	o.Gain, o.Most = cmp.Or(o.Gain, 0.05), cmp.Or(o.Most, 20)
	c := newChooser(g, demands, now, wanted)
	c.join(o.Groups)
	_, before := g.Fullest(c.loads)
	enough := max(o.Aim, c.all()*(1+1e-3))
	moves := c.moveAll(o)
	_, then := g.Fullest(c.loads)
	why := fmt.Sprintf("the largest utilisation is %s, at most the target of %s", Percent(then), Percent(o.Target))
	if then > o.Target {
		more, after := c.lower(o.Most-len(moves), enough)
		if after > then*(1-o.Gain) && after > o.Target {
			why = fmt.Sprintf("the largest utilisation is %s, and no %d changes lower it by %s of that", Percent(then), o.Most, Percent(o.Gain))
		} else {
			why = fmt.Sprintf("the largest utilisation falls from %s to %s", Percent(then), Percent(after))
			moves, then = append(moves, more...), after
		}
	}
	if len(moves) > 0 && o.Must[moves[0]] {
		why = "installed lists lead nowhere, take longer than their class allows, fail together, or leave no standby; " + why
	}
	routing := now
	if len(moves) > 0 {
		routing = te.Routing{}
		maps.Copy(routing, now)
	}
	for _, key := range moves {
		routing[key] = wanted[key]
	}
	return Choice{Routing: routing, Moves: moves, Now: before, Then: then, Why: why}
}

// Keep leaves those demands out that have no room to change, and says so. If nothing is better without
// them, and none of the others must change, all keep their lists.
func (c *Choice) Keep(g *graph.Graph, demands []te.Demand, now te.Routing, by Sequence, must map[te.Key]bool) Sequence {
	keep := func(keys []te.Key) {
		for _, key := range keys {
			if lists, had := now[key]; had {
				c.Routing[key] = lists
			} else {
				delete(c.Routing, key)
			}
		}
		_, c.Then = g.Fullest(newChooser(g, demands, c.Routing, nil).loads)
	}
	keep(by.Left)
	if c.Then > c.Now*(1-worth) && !slices.ContainsFunc(by.Moves, func(key te.Key) bool { return must[key] }) {
		keep(by.Moves)
		by = Sequence{Left: append(by.Left, by.Moves...)}
	}
	c.Moves = by.Moves
	c.Why = fmt.Sprintf("%s, because no order of steps keeps links from overload: lists of %s stay", c.word(), plural.Of(len(by.Left), "demand"))
	return by
}

// word says what the changes do.
func (c *Choice) word() string {
	if len(c.Moves) == 0 {
		return fmt.Sprintf("the largest utilisation stays at %s", Percent(c.Now))
	}
	return fmt.Sprintf("the largest utilisation goes from %s to %s only", Percent(c.Now), Percent(c.Then))
}

// moveAll does the changes that must be, up to the limit.
func (c *chooser) moveAll(o Options) (moves []te.Key) {
	for i, d := range c.demands {
		if o.Must[d.Key] && c.new[i] != nil && len(moves) < o.Most {
			moves = append(moves, c.move(i)...)
		}
	}
	return moves
}

// lower does the changes that lower the largest utilisation most, until it is enough, and
// returns what it is then. A change that raises it is tried where none lowers it, and stays if
// others after it lower it enough for all of them.
func (c *chooser) lower(most int, enough float64) (moves []te.Key, then float64) {
	_, then = c.g.Fullest(c.loads)
	best := 0
	for len(moves) < most && then > enough {
		i := c.best()
		if i < 0 {
			break
		}
		moves = append(moves, c.move(i)...)
		if _, u := c.g.Fullest(c.loads); u < then*(1-worth*float64(len(moves)-best)) {
			then, best = u, len(moves)
		}
	}
	return moves[:best], then
}

// worth is what a change has to lower the largest utilisation by, relative to it.
const worth = 1e-3

// Percent is a utilisation as people read it.
func Percent(u float64) string { return fmt.Sprintf("%.1f %%", 100*u) }

// chooser moves one demand after the other.
type chooser struct {
	g        *graph.Graph
	demands  []te.Demand
	old, new []map[int]float64 // what a demand puts on links, in bit/s, before and after; nil: it does not change
	loads    []float64
	fullest  float64       // utilisation at the beginning
	with     map[int][]int // by demand: the others of its groups
}

// join has the demands of a group change as one.
func (c *chooser) join(groups []te.Group) {
	at := map[te.Key]int{}
	for i, d := range c.demands {
		at[d.Key] = i
	}
	c.with = map[int][]int{}
	for key, others := range companions(groups) {
		for _, other := range others {
			i, has := at[key]
			if j, also := at[other]; has && also {
				c.with[i] = append(c.with[i], j)
			}
		}
	}
}

// companions are the others of each demand's groups.
func companions(groups []te.Group) map[te.Key][]te.Key {
	with := map[te.Key][]te.Key{}
	for _, group := range groups {
		for _, key := range group.Demands {
			with[key] = append(with[key], group.Demands...)
		}
	}
	return with
}

func newChooser(g *graph.Graph, demands []te.Demand, now, wanted te.Routing) *chooser {
	c := &chooser{g: g, demands: demands, old: make([]map[int]float64, len(demands)), new: make([]map[int]float64, len(demands)), loads: make([]float64, len(g.Topology.Links))}
	flows := g.Flows()
	for i, d := range demands {
		old := on(flows, d, now[d.Key])
		add(c.loads, old, 1)
		if lists, has := wanted[d.Key]; has && !same(lists, orIGP(now[d.Key])) {
			c.old[i], c.new[i] = old, on(flows, d, lists)
		}
	}
	_, c.fullest = g.Fullest(c.loads)
	return c
}

// orIGP are lists, or that of a demand without any.
func orIGP(lists []te.List) []te.List {
	if len(lists) == 0 {
		return []te.List{{Weight: 1}}
	}
	return lists
}

// on is what a demand puts on links, in bit/s.
func on(flows *graph.Flows, d te.Demand, lists []te.List) map[int]float64 {
	ways, parts, _ := flows.Ways(d.Key, lists)
	loads := map[int]float64{}
	for i, w := range ways {
		for _, s := range w.Shares {
			loads[int(s.Link)] += d.Rate * parts[i] * float64(s.Part)
		}
	}
	return loads
}

// add adds a demand's loads, times a factor.
func add(loads []float64, of map[int]float64, times float64) {
	for link, load := range of {
		loads[link] += times * load
	}
}

// all is the largest utilisation after all changes.
func (c *chooser) all() float64 {
	loads := append([]float64{}, c.loads...)
	for i := range c.demands {
		add(loads, c.old[i], -1)
		add(loads, c.new[i], 1)
	}
	_, u := c.g.Fullest(loads)
	return u
}

// steep makes the fullest links count most in pressure.
const steep = 16

// pressure is a sum over links that falls when the fullest ones get emptier.
func (c *chooser) pressure(link int, load float64) float64 {
	return math.Pow(load/c.g.Topology.Links[link].Capacity/c.fullest, steep)
}

// best is the demand whose change lowers the pressure most, or raises it least; -1: all have
// changed.
func (c *chooser) best() (best int) {
	best, least := -1, math.Inf(1)
	for i := range c.demands {
		if c.new[i] == nil {
			continue
		}
		var change float64
		for link, load := range c.old[i] {
			change += c.pressure(link, c.loads[link]-load+c.new[i][link]) - c.pressure(link, c.loads[link])
		}
		for link, load := range c.new[i] {
			if _, also := c.old[i][link]; !also {
				change += c.pressure(link, c.loads[link]+load) - c.pressure(link, c.loads[link])
			}
		}
		if change < least {
			best, least = i, change
		}
	}
	return best
}

// move does the changes of a demand, and of those that change with it.
func (c *chooser) move(i int) (moves []te.Key) {
	if c.new[i] == nil {
		return nil
	}
	add(c.loads, c.old[i], -1)
	add(c.loads, c.new[i], 1)
	c.new[i], c.old[i] = nil, nil
	moves = append(moves, c.demands[i].Key)
	for _, other := range c.with[i] {
		moves = append(moves, c.move(other)...)
	}
	return moves
}
