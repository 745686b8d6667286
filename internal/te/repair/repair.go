// Package repair computes the lists that a headend takes at once when it loses the link by which it
// sends (RFC 9855: TI-LFA).
//
// Other routers still forward as before the loss. A repair list leads along the shortest paths that
// the IGP will have found without the link, by nodes and links that the others' old paths lead to
// without it: a leg to a node of the P-space, and where no such node is next on the new path, an
// End.X SID over the link there.
package repair

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Repair is what a headend has ready for the loss of a link.
type Repair struct {
	// Link is the index of the link in the topology.
	Link int
	// List is the repair list, if Why is empty. Why says why the headend has none.
	List te.List
	Why  string
}

// Of finds the repair of a policy with these lists. It says false where the loss of no single link of
// the headend takes all lists: those that are left carry the packets.
func Of(g *graph.Graph, key te.Key, lists []te.List) (r Repair, needed bool) {
	from, known := g.Node(key.Headend)
	to, also := g.Node(key.Endpoint)
	if !known || !also || from == to {
		return r, false
	}
	if r.Link = onlyLink(g, from, to, lists); r.Link < 0 {
		return r, false
	}
	s := newSearch(g, from, to, r.Link)
	if s.left[from] == graph.Far {
		r.Why = "no other link of " + key.Headend + " leads to " + key.Endpoint
		return r, true
	}
	waypoints, found := s.run(cmp.Or(g.Topology.Nodes[from].MaxSegments, srpolicy.MaxSegments))
	if r.List = (te.List{Weight: 1, Waypoints: waypoints}); !found {
		r.Why = fmt.Sprintf("on the paths without it there is no SID that %s reaches before other routers know of the loss", key.Headend)
	}
	return r, true
}

// onlyLink is the link by which all lists leave the headend; -1: they have several.
func onlyLink(g *graph.Graph, from, to int, lists []te.List) int {
	if len(lists) == 0 {
		lists = []te.List{{}}
	}
	only := -1
	for _, l := range lists {
		end := to
		if len(l.Waypoints) > 0 {
			node, known := g.Node(l.Waypoints[0].Node)
			if end = node; !known {
				return -1
			}
		}
		next := g.Next(from, end)
		if len(next) != 1 || only >= 0 && next[0] != only {
			return -1
		}
		only = next[0]
	}
	return only
}

// search looks for the shortest list, segment by segment.
type search struct {
	g        *graph.Graph // with the link
	from, to int
	keeps    []bool   // by link: it is not lost
	left     []uint64 // by node: the distance to the endpoint without the link
	spared   [][]bool // by destination and node: no old path takes the lost link
}

func newSearch(g *graph.Graph, from, to, lost int) *search {
	s := &search{g: g, from: from, to: to, keeps: make([]bool, len(g.Topology.Links)), spared: make([][]bool, len(g.Topology.Nodes))}
	for i := range s.keeps {
		s.keeps[i] = i != lost && !reverse(g.Topology.Links[i], g.Topology.Links[lost])
	}
	s.left = g.Distances(to, s.keeps)
	return s
}

// reverse says whether a link is the other direction of another.
func reverse(a, b te.Link) bool { return a.From == b.To && a.To == b.From && a.Name == b.Name }

// reaches says whether packets from one node to another, which routers forward as before, do without
// the lost link. Their paths are then the shortest ones without it, too.
func (s *search) reaches(from, to int) bool {
	if s.spared[to] == nil {
		s.spared[to] = make([]bool, len(s.g.Topology.Nodes))
		s.g.All(to, s.keeps, s.spared[to])
	}
	return s.spared[to][from]
}

// ahead says whether packets from one node reach another, and that one is on a shortest path without
// the link.
func (s *search) ahead(from, node int) bool {
	return s.left[node] != graph.Far && s.g.Reaches(from, node) && s.g.Distance(from, node)+s.left[node] == s.left[from] && s.reaches(from, node)
}

// state is a node with the waypoints that lead there.
type state struct {
	at        int
	waypoints []te.Waypoint
}

// run finds the fewest waypoints, so that with the endpoint's segment there are at most so many.
func (s *search) run(segments int) (waypoints []te.Waypoint, found bool) {
	seen := make([]bool, len(s.g.Topology.Nodes))
	seen[s.from] = true
	for queue := []state{{at: s.from}}; len(queue) > 0; queue = queue[1:] {
		now := queue[0]
		if s.reaches(now.at, s.to) {
			return now.waypoints, true
		}
		if len(now.waypoints)+1 >= segments {
			continue
		}
		for _, next := range s.next(now) {
			if !seen[next.at] {
				seen[next.at] = true
				queue = append(queue, next)
			}
		}
	}
	return nil, false
}

// next are the nodes that one more waypoint leads to: nodes first, and then the far ends of links. The
// headend has no route to its own SIDs.
func (s *search) next(now state) (list []state) {
	add := func(at int, w te.Waypoint) {
		list = append(list, state{at, append(slices.Clone(now.waypoints), w)})
	}
	for node, n := range s.g.Topology.Nodes {
		if node != now.at && n.SID.IsValid() && s.ahead(now.at, node) {
			add(node, te.Waypoint{Node: n.Name})
		}
	}
	for i, l := range s.g.Topology.Links {
		near, far := s.g.Ends(i)
		if s.g.Used(i) && s.keeps[i] && l.SID.IsValid() && near != s.from && s.left[far] != graph.Far &&
			uint64(l.Metric)+s.left[far] == s.left[near] && s.ahead(now.at, near) {
			add(far, te.Waypoint{Node: l.From, Link: i + 1})
		}
	}
	return list
}
