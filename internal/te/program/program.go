// Package program writes what package optimize approximates as a linear program, for solvers
// that judge it.
package program

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Text is the smallest largest utilisation by lists of one waypoint at most, in CPLEX's format:
// x_D_K is the part of demand D that visits node K, u the largest utilisation.
func Text(g *graph.Graph, demands []te.Demand) []byte {
	var b bytes.Buffer
	flows := g.Flows()
	on := make([]strings.Builder, len(g.Topology.Links))
	fmt.Fprintln(&b, "Minimize\n obj: u\nSubject To")
	for i, d := range demands {
		from, _ := g.Node(d.Headend)
		to, _ := g.Node(d.Endpoint)
		fmt.Fprintf(&b, " d%d: 0 u", i)
		for k := range g.Topology.Nodes {
			if k == from {
				continue
			}
			fmt.Fprintf(&b, " + x_%d_%d\n", i, k)
			for _, s := range flows.Append(flows.Append(nil, from, k), k, to) {
				fmt.Fprintf(&on[s.Link], " + %.9f x_%d_%d\n", d.Rate/1e9*float64(s.Part), i, k)
			}
		}
		fmt.Fprintln(&b, " = 1")
	}
	for link := range on {
		if on[link].Len() > 0 {
			fmt.Fprintf(&b, " l%d:%s - %.9f u <= 0\n", link, on[link].String(), g.Topology.Links[link].Capacity/1e9)
		}
	}
	fmt.Fprintln(&b, "End")
	return b.Bytes()
}
