package optimize

import (
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// quickestSpare tries all lists: the least delay of those that share least with some lists, and what
// these share.
func quickestSpare(g *graph.Graph, key te.Key, lists []te.List, kind te.Disjoint) (shared int, delay time.Duration) {
	used := map[string]bool{}
	for _, l := range lists {
		for what := range fails(g, key, l, kind) {
			used[what] = true
		}
	}
	shared = len(used)
	for _, l := range every(g, key.Headend) {
		n := 0
		for what := range fails(g, key, l, kind) {
			if used[what] {
				n++
			}
		}
		if w, _ := g.Flows().Way(key, l); n < shared || n == shared && w.Delay < delay {
			shared, delay = n, w.Delay
		}
	}
	return shared, delay
}

// Solve leaves a disjoint list for the standby exactly where two disjoint lists are possible, and says
// so where not; the standby is the quickest of the lists that share least.
func TestStandbysAgainstAllLists(t *testing.T) {
	possible, not := 0, 0
	for seed := range uint64(12) {
		for i, kind := range []te.Disjoint{te.DisjointByLink, te.DisjointByNode, te.DisjointBySRLG} {
			topology, demands := generate.Make(generate.Parameters{Nodes: 7, Links: 18, Seed: 10*seed + uint64(i), LinkSIDs: seed%2 == 0})
			for l := range topology.Links { // both directions are neighbours
				topology.Links[l].SRLG = []uint32{uint32(l/2) % 4}
			}
			g, classes := graph.New(topology, graph.Without{}), []te.Class{{Standby: kind}}
			for _, d := range demands[:8] {
				want := judge(g, d, kind).possible
				r, err := Solve(t.Context(), g, classes, []te.Demand{d}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				lists := r.Routing[d.Key]
				s, asked := NewStandbys(g, classes).Of(d.Key, lists)
				shared, delay := quickestSpare(g, d.Key, lists, kind)
				if !asked || s.Kind != kind || (len(s.Common) == 0) != want || want != (len(r.Problems) == 0) || len(s.Common) != shared {
					t.Errorf("seed %d, %s, %v: %+v behind %v; possible: %v, shared %d; %v", seed, kind, d.Key, s, lists, want, shared, r.Problems)
				}
				if w, _ := g.Flows().Way(d.Key, s.List); !s.None && w.Delay > delay {
					t.Errorf("seed %d, %s, %v: %v takes %v, the quickest one %v", seed, kind, d.Key, s.List, w.Delay, delay)
				}
				if want {
					possible++
				} else {
					not++
				}
			}
		}
	}
	t.Logf("%d demands have a disjoint standby, %d not", possible, not)
	if possible < 20 || not < 20 {
		t.Error("want 20 of both")
	}
}

// A standby keeps to its class, and nobody has one who did not ask.
func TestStandbyOfClass(t *testing.T) {
	g := graph.New(square(), graph.Without{})
	b := NewStandbys(g, []te.Class{{Color: 1, Standby: te.DisjointByLink, MaxDelay: 3 * time.Millisecond}, {Color: 2}, {Color: 3, Standby: te.DisjointByNode, Exclude: 3}})
	key := te.Key{Headend: "a", Endpoint: "d", Color: 1}
	if s, asked := b.Of(key, nil); !asked || !s.None || len(s.Common) != 2 {
		t.Errorf("what the class allows shares everything: %+v, %v", s, asked)
	}
	for name, key := range map[string]te.Key{
		"a class without one": {Headend: "a", Endpoint: "d", Color: 2}, "no class": {Headend: "a", Endpoint: "d"}, "no list suits": {Headend: "a", Endpoint: "d", Color: 3},
		"no path": {Headend: "a", Endpoint: "alone", Color: 1}, "no such node": {Headend: "a", Endpoint: "z", Color: 1},
	} {
		if s, asked := b.Of(key, nil); asked {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
