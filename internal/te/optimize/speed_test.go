package optimize

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// BenchmarkSolve says how long a solution takes, and how far above its bound it is. cpu-s is the
// processor's time in seconds, which other programs do not add to.
func BenchmarkSolve(b *testing.B) {
	for _, p := range []generate.Parameters{
		{Nodes: 8, Links: 44, Seed: 1}, {Nodes: 20, Links: 120, Seed: 2}, {Nodes: 30, Links: 180, Seed: 3}, {Nodes: 50, Links: 300, Seed: 4},
		{Nodes: 50, Links: 300, Seed: 4, LinkSIDs: true}, {Nodes: 100, Links: 600, Seed: 5, Pairs: 3000}, {Nodes: 500, Links: 3000, Seed: 6, Pairs: 3000},
		{Nodes: 500, Links: 3000, Seed: 6, Pairs: 3000, LinkSIDs: true}, {Nodes: 500, Links: 3000, Seed: 6}, {Nodes: 500, Links: 3000, Seed: 6, LinkSIDs: true},
	} {
		topology, demands := generate.Make(p)
		g := graph.New(topology, graph.Without{})
		b.Run(fmt.Sprintf("nodes=%d/links=%d/demands=%d/sids=%v", p.Nodes, len(topology.Links), len(demands), p.LinkSIDs), func(b *testing.B) {
			before := processor(b)
			for b.Loop() {
				r, err := Solve(b.Context(), g, nil, demands, Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(r.Fractional/r.Bound, "fractional/bound")
				b.ReportMetric(r.Utilisation/r.Bound, "rounded/bound")
			}
			b.ReportMetric((processor(b)-before)/float64(b.N), "cpu-s")
		})
	}
}

// processor is the time that this process has had, in seconds.
func processor(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
