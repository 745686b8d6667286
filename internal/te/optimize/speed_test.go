package optimize

import (
	"fmt"
	"testing"

	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// BenchmarkSolve says how long a solution takes, and how far above its bound it is.
func BenchmarkSolve(b *testing.B) {
	for _, p := range []generate.Parameters{
		{Nodes: 8, Links: 44, Seed: 1}, {Nodes: 20, Links: 120, Seed: 2}, {Nodes: 30, Links: 180, Seed: 3}, {Nodes: 50, Links: 300, Seed: 4},
		{Nodes: 100, Links: 600, Seed: 5, Pairs: 3000}, {Nodes: 500, Links: 3000, Seed: 6, Pairs: 3000},
	} {
		topology, demands := generate.Make(p)
		g := graph.New(topology, graph.Without{})
		b.Run(fmt.Sprintf("nodes=%d/links=%d/demands=%d", p.Nodes, len(topology.Links), len(demands)), func(b *testing.B) {
			for b.Loop() {
				r, err := Solve(b.Context(), g, nil, demands, Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(r.Fractional/r.Bound, "fractional/bound")
				b.ReportMetric(r.Utilisation/r.Bound, "rounded/bound")
			}
		})
	}
}
