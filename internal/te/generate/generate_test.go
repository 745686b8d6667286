package generate

import (
	"fmt"
	"math"
	"testing"

	"github.com/culvert-net/culvert/internal/te/graph"
)

func TestMake(t *testing.T) {
	p := Parameters{Nodes: 12, Links: 41, Seed: 3, Colors: []uint32{4, 6}, Pairs: 20, Utilisation: 0.5}
	topology, demands := Make(p)
	if len(topology.Nodes) != 12 || len(topology.Links) != 40 || len(demands) != 2*20 {
		t.Errorf("%d nodes, %d links, %d demands", len(topology.Nodes), len(topology.Links), len(demands))
	}
	if a, b := Make(p); fmt.Sprint(a, b) != fmt.Sprint(topology, demands) {
		t.Error("equal parameters make another topology")
	}
	p.Seed++
	if a, _ := Make(p); fmt.Sprint(a) == fmt.Sprint(topology) {
		t.Error("another seed makes the same topology")
	}
	g := graph.New(topology, graph.Without{})
	load, fullest := make([]float64, len(topology.Links)), 0.0
	for _, d := range demands {
		from, _ := g.Node(d.Headend)
		to, _ := g.Node(d.Endpoint)
		if !g.Reaches(from, to) {
			t.Fatalf("%s does not reach %s", d.Headend, d.Endpoint)
		}
		for _, s := range g.Flows().Append(nil, from, to) {
			load[s.Link] += d.Rate * float64(s.Part)
			fullest = max(fullest, load[s.Link]/topology.Links[s.Link].Capacity)
		}
	}
	if math.Abs(fullest-0.5) > 1e-6 {
		t.Errorf("the fullest link is used to %v, want 0.5", fullest)
	}
	if few, all := Make(Parameters{Nodes: 4, Links: 100}); len(few.Links) != 12 || len(all) != 12 {
		t.Errorf("four nodes have %d links and %d demands, want 12 of each", len(few.Links), len(all))
	}
}
