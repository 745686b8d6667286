package optimize

import "github.com/culvert-net/culvert/internal/te/graph"

// pairs has the shares of all flows between two nodes, one behind the other.
type pairs struct {
	nodes int
	begin []int32 // of a pair's in shares; one more than there are pairs
	all   []graph.Share
	users [][]user // by link
}

// user is a pair whose flow takes a link.
type user struct {
	from, to int32
	part     float32
}

func allShares(g *graph.Graph) *pairs {
	n := len(g.Topology.Nodes)
	p := &pairs{nodes: n, begin: make([]int32, 0, n*n+1), users: make([][]user, len(g.Topology.Links))}
	flows := g.Flows()
	for from := range n {
		for to := range n {
			first := len(p.all)
			p.begin = append(p.begin, int32(first))
			p.all = flows.Append(p.all, from, to)
			for _, s := range p.all[first:] {
				p.users[s.Link] = append(p.users[s.Link], user{int32(from), int32(to), s.Part})
			}
		}
	}
	p.begin = append(p.begin, int32(len(p.all)))
	return p
}

// of are the shares of a pair.
func (p *pairs) of(from, to int) []graph.Share {
	at := from*p.nodes + to
	return p.all[p.begin[at]:p.begin[at+1]]
}

// way sums the shares of a list: of those to its waypoint, and of those from there.
type way struct {
	pairs *pairs
	part  []float64 // by link
	links []int32   // that have a part
}

func newWay(p *pairs) *way { return &way{pairs: p, part: make([]float64, len(p.users))} }

// take has the way of a list. A list without a waypoint is by its end.
func (w *way) take(from, via, to int) {
	for _, l := range w.links {
		w.part[l] = 0
	}
	w.links = w.links[:0]
	w.add(w.pairs.of(from, via))
	w.add(w.pairs.of(via, to))
}

func (w *way) add(shares []graph.Share) {
	for _, s := range shares {
		if w.part[s.Link] == 0 {
			w.links = append(w.links, s.Link)
		}
		w.part[s.Link] += float64(s.Part)
	}
}
