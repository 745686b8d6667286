package optimize

import "github.com/culvert-net/culvert/internal/te/graph"

// pairs has the shares of all flows between two nodes, one behind the other.
type pairs struct {
	nodes int
	begin []int32 // of a pair's in all; one more than there are pairs
	all   []graph.Share
}

func allShares(g *graph.Graph) *pairs {
	n := len(g.Topology.Nodes)
	p := &pairs{nodes: n, begin: make([]int32, 0, n*n+1)}
	flows := g.Flows()
	for from := range n {
		for to := range n {
			p.begin = append(p.begin, int32(len(p.all)))
			p.all = flows.Append(p.all, from, to)
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

// A list is known by its waypoint: a node by its number, and a link by its number plus that of
// all nodes. The list without a waypoint is known by its end.

// legs are what the IGP does of a list: to its waypoint, and from there. link is what it leaves
// the waypoint by; -1: the IGP's choice.
func (s *solver) legs(via int32) (enter, leave, link int) {
	n := s.shares.nodes
	if int(via) < n {
		return int(via), int(via), -1
	}
	link = int(via) - n
	enter, leave = s.g.Ends(link)
	return enter, leave, link
}

// way sums the shares of a list.
type way struct {
	s     *solver
	part  []float64 // by link
	links []int32   // that have a part
}

func newWay(s *solver) *way { return &way{s: s, part: make([]float64, len(s.g.Topology.Links))} }

// take has the way of a list.
func (w *way) take(from int, via int32, to int) {
	w.clear()
	enter, leave, link := w.s.legs(via)
	w.add(w.s.shares.of(from, enter))
	if link >= 0 {
		w.put(int32(link), 1)
	}
	w.add(w.s.shares.of(leave, to))
}

func (w *way) clear() {
	for _, l := range w.links {
		w.part[l] = 0
	}
	w.links = w.links[:0]
}

func (w *way) add(shares []graph.Share) {
	for _, s := range shares {
		w.put(s.Link, float64(s.Part))
	}
}

func (w *way) put(link int32, part float64) {
	if w.part[link] == 0 {
		w.links = append(w.links, link)
	}
	w.part[link] += part
}

// subtract leaves what the way puts on links more than another one.
func (w *way) subtract(other *way) {
	for _, l := range other.links {
		w.put(l, -other.part[l])
	}
}

// carry has links carry so much more by the way.
func (w *way) carry(load []float64, amount float64) {
	for _, l := range w.links {
		load[l] += amount * w.part[l]
	}
}
