package graph

import (
	"fmt"
	"math/bits"

	"github.com/culvert-net/culvert/internal/te"
)

// Risks are what can fail, one at a time: each link with both of its directions, and each node or
// SRLG where lists have to be disjoint by these.
type Risks struct {
	g     *Graph
	names []string
	of    [][]int // by link: what it fails with
	nodes int     // index of the first node's risk; -1: nodes do not count
}

// RiskSet has one bit for each risk.
type RiskSet []uint64

// Risks numbers what lists of a kind of disjointness must not share.
func (g *Graph) Risks(d te.Disjoint) *Risks {
	r := &Risks{g: g, of: make([][]int, len(g.Topology.Links)), nodes: -1}
	known := map[string]int{}
	add := func(link int, name string) {
		at, has := known[name]
		if !has {
			at = len(r.names)
			known[name], r.names = at, append(r.names, name)
		}
		r.of[link] = append(r.of[link], at)
	}
	for i, l := range g.Topology.Links {
		if l.From > l.To {
			l.From, l.To = l.To, l.From
		}
		add(i, "link "+l.Direction())
		for _, group := range l.SRLG {
			if d == te.DisjointBySRLG {
				add(i, fmt.Sprintf("SRLG %d", group))
			}
		}
	}
	if d == te.DisjointByNode {
		r.nodes = len(r.names)
		for _, n := range g.Topology.Nodes {
			r.names = append(r.names, "node "+n.Name)
		}
	}
	return r
}

// Empty is a set without risks.
func (r *Risks) Empty() RiskSet { return make(RiskSet, (len(r.names)+63)/64) }

// Add adds the risks of a link that a flow between two nodes takes. The nodes themselves are none.
func (r *Risks) Add(set RiskSet, link, from, to int) {
	for _, risk := range r.of[link] {
		set[risk/64] |= 1 << (risk % 64)
	}
	if r.nodes < 0 {
		return
	}
	for _, node := range r.g.ends[link] {
		if risk := r.nodes + node; node != from && node != to {
			set[risk/64] |= 1 << (risk % 64)
		}
	}
}

// Names are those of the risks in a set.
func (r *Risks) Names(set RiskSet) (names []string) {
	for i, name := range r.names {
		if set[i/64]&(1<<(i%64)) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// And are the risks that two sets have in common.
func (s RiskSet) And(other RiskSet) RiskSet {
	both := make(RiskSet, len(s))
	for i := range s {
		both[i] = s[i] & other[i]
	}
	return both
}

// Common is how many risks two sets have in common.
func (s RiskSet) Common(other RiskSet) (n int) {
	for i := range s {
		n += bits.OnesCount64(s[i] & other[i])
	}
	return n
}

// Together are the demands whose class asks for disjoint lists, and of which one failure takes all
// lists, with what fails then. Demands without a path are none.
func (g *Graph) Together(classes []te.Class, demands []te.Demand, routing te.Routing) map[te.Key][]string {
	kinds, risks := map[uint32]te.Disjoint{}, map[te.Disjoint]*Risks{}
	for _, c := range classes {
		if kinds[c.Color] = c.Disjoint; c.Disjoint != "" && risks[c.Disjoint] == nil {
			risks[c.Disjoint] = g.Risks(c.Disjoint)
		}
	}
	flows, out := g.Flows(), map[te.Key][]string{}
	for _, d := range demands {
		r := risks[kinds[d.Color]]
		if r == nil {
			continue
		}
		ways, _, _ := flows.Ways(d.Key, routing[d.Key])
		from, _ := g.Node(d.Headend)
		to, _ := g.Node(d.Endpoint)
		var all RiskSet
		for _, w := range ways {
			set := r.Empty()
			for _, s := range w.Shares {
				r.Add(set, int(s.Link), from, to)
			}
			if all == nil {
				all = set
			}
			all = all.And(set)
		}
		if names := r.Names(all); all != nil && len(names) > 0 {
			out[d.Key] = names
		}
	}
	return out
}
