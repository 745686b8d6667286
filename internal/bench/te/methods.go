package te

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/optimize"
)

// outcome is what a method reaches.
type outcome struct {
	utilisation float64 // of the fullest link
	// bound is what no lists of one waypoint are below, as far as the method can prove; 0: it
	// proves nothing.
	bound float64
}

// methods find paths for all demands, by name.
var methods = map[string]func(context.Context, network) (outcome, error){
	"igp":     igp,
	"ecmp":    ecmp,
	"cspf":    cspf,
	"culvert": culvert,
}

// Methods are the names of the methods.
func Methods() []string { return []string{"igp", "ecmp", "cspf", "culvert"} }

// igp has each demand take one shortest path, the same at each node.
func igp(_ context.Context, n network) (outcome, error) {
	g := graph.New(n.topology, graph.Without{})
	loads := make([]float64, len(n.topology.Links))
	for _, d := range n.demands {
		at, _ := g.Node(d.Headend)
		to, _ := g.Node(d.Endpoint)
		for at != to {
			link := g.Next(at, to)[0]
			loads[link] += d.Rate
			_, at = g.Ends(link)
		}
	}
	_, u := g.Fullest(loads)
	return outcome{utilisation: u}, nil
}

// ecmp has demands share all shortest paths.
func ecmp(_ context.Context, n network) (outcome, error) {
	g := graph.New(n.topology, graph.Without{})
	loads, flows := make([]float64, len(n.topology.Links)), g.Flows()
	for _, d := range n.demands {
		flows.Load(loads, d, nil)
	}
	_, u := g.Fullest(loads)
	return outcome{utilisation: u}, nil
}

// culvert is the optimiser.
func culvert(ctx context.Context, n network) (outcome, error) {
	g := graph.New(n.topology, graph.Without{})
	r, err := optimize.Solve(ctx, g, nil, n.demands, optimize.Options{})
	return outcome{r.Utilisation, r.Bound}, err
}

// cspf places one demand after the other, the largest first, each on the shortest path of links
// that have room for it, wherever that leads: no list of segments is that free. It finds the
// smallest utilisation, to 1 %, below which all demands find room.
func cspf(ctx context.Context, n network) (outcome, error) {
	p := newPather(n.topology)
	demands := slices.Clone(n.demands)
	slices.SortStableFunc(demands, func(a, b te.Demand) int { return cmp.Compare(b.Rate, a.Rate) })
	low, high := 0.0, 1.0
	for ; !p.fits(demands, high); high *= 2 {
		low = high
		if err := ctx.Err(); err != nil {
			return outcome{}, err
		}
	}
	for high-low > 0.01*high {
		if err := ctx.Err(); err != nil {
			return outcome{}, err
		}
		if middle := (low + high) / 2; p.fits(demands, middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return outcome{utilisation: high}, nil
}

// pather finds paths where there is room.
type pather struct {
	t     te.Topology
	index map[string]int
	out   [][]int // links of a node
	room  []float64

	distance []float64
	by       []int // the link that leads to a node
}

func newPather(t te.Topology) *pather {
	p := &pather{t: t, index: map[string]int{}, out: make([][]int, len(t.Nodes)), room: make([]float64, len(t.Links)), distance: make([]float64, len(t.Nodes)), by: make([]int, len(t.Nodes))}
	for i, n := range t.Nodes {
		p.index[n.Name] = i
	}
	for i, l := range t.Links {
		p.out[p.index[l.From]] = append(p.out[p.index[l.From]], i)
	}
	return p
}

// fits says whether all demands find room on links that are filled up to a utilisation.
func (p *pather) fits(demands []te.Demand, utilisation float64) bool {
	for i, l := range p.t.Links {
		p.room[i] = l.Capacity * utilisation
	}
	for _, d := range demands {
		from, to := p.index[d.Headend], p.index[d.Endpoint]
		if !p.find(from, to, d.Rate) {
			return false
		}
		for at := to; at != from; at = p.index[p.t.Links[p.by[at]].From] {
			p.room[p.by[at]] -= d.Rate
		}
	}
	return true
}

// find finds the shortest path with room for a rate (Dijkstra).
func (p *pather) find(from, to int, rate float64) bool {
	for i := range p.distance {
		p.distance[i] = math.Inf(1)
	}
	p.distance[from] = 0
	queue := &reachedQueue{{from, 0}}
	for queue.Len() > 0 {
		at := heap.Pop(queue).(reached)
		if at.node == to {
			return true
		}
		if at.distance > p.distance[at.node] {
			continue
		}
		for _, link := range p.out[at.node] {
			l := p.t.Links[link]
			next, d := p.index[l.To], at.distance+float64(l.Metric)
			if p.room[link] >= rate && d < p.distance[next] {
				p.distance[next], p.by[next] = d, link
				heap.Push(queue, reached{next, d})
			}
		}
	}
	return false
}

type reached struct {
	node     int
	distance float64
}

// reachedQueue has the closest first.
type reachedQueue []reached

func (q reachedQueue) Len() int           { return len(q) }
func (q reachedQueue) Less(i, j int) bool { return q[i].distance < q[j].distance }
func (q reachedQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *reachedQueue) Push(x any)        { *q = append(*q, x.(reached)) }
func (q *reachedQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
