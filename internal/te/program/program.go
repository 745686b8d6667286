// Package program writes what package optimize approximates as a linear program, for solvers
// that judge it.
package program

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Text is the smallest largest utilisation by lists of one waypoint at most, in CPLEX's format:
// x_D_K is the part of demand D that visits node K, x_D_l_L the part that leaves a node by link L,
// which has an End.X SID, and u the largest utilisation.
func Text(g *graph.Graph, demands []te.Demand) []byte {
	var b bytes.Buffer
	p := program{flows: g.Flows(), on: make([]strings.Builder, len(g.Topology.Links))}
	fmt.Fprintln(&b, "Minimize\n obj: u\nSubject To")
	for i, d := range demands {
		from, _ := g.Node(d.Headend)
		to, _ := g.Node(d.Endpoint)
		fmt.Fprintf(&b, " d%d: 0 u", i)
		for k := range g.Topology.Nodes {
			if k != from {
				fmt.Fprintf(&b, " + x_%d_%d\n", i, k)
				p.put(fmt.Sprintf("x_%d_%d", i, k), d.Rate, p.flows.Append(p.flows.Append(nil, from, k), k, to))
			}
		}
		for l, link := range g.Topology.Links {
			if tail, head := g.Ends(l); link.SID.IsValid() && g.Used(l) && tail != from {
				fmt.Fprintf(&b, " + x_%d_l_%d\n", i, l)
				p.put(fmt.Sprintf("x_%d_l_%d", i, l), d.Rate, append(p.flows.Append(p.flows.Append(nil, from, tail), head, to), graph.Share{Link: int32(l), Part: 1}))
			}
		}
		fmt.Fprintln(&b, " = 1")
	}
	for link := range p.on {
		if p.on[link].Len() > 0 {
			fmt.Fprintf(&b, " l%d:%s - %.9f u <= 0\n", link, p.on[link].String(), g.Topology.Links[link].Capacity/1e9)
		}
	}
	fmt.Fprintln(&b, "End")
	return b.Bytes()
}

// program collects what is on each link.
type program struct {
	flows *graph.Flows
	on    []strings.Builder
}

// put adds a variable's flow, once to a link that it takes twice.
func (p *program) put(variable string, rate float64, shares []graph.Share) {
	part := map[int32]float64{}
	for _, s := range shares {
		part[s.Link] += float64(s.Part)
	}
	for _, link := range slices.Sorted(maps.Keys(part)) {
		fmt.Fprintf(&p.on[link], " + %.9f %s\n", rate/1e9*part[link], variable)
	}
}
