package optimize

import (
	"math"
	"testing"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// ofPair are what lists of one of two demands fail with: its own ends stay, unless they are
// the other one's too.
func ofPair(g *graph.Graph, key, other te.Key, lists []te.List, kind te.Disjoint) map[string]bool {
	all := map[string]bool{}
	for _, l := range lists {
		for what := range fails(g, key, l, kind) {
			all[what] = true
		}
	}
	for _, node := range []string{key.Headend, key.Endpoint} {
		if kind == te.DisjointByNode && node != other.Headend && node != other.Endpoint {
			all[node] = true
		}
	}
	return all
}

// apart says whether no list of any demand shares something with one of another.
func apart(g *graph.Graph, demands []te.Demand, r te.Routing, kind te.Disjoint) bool {
	for i, a := range demands {
		for _, b := range demands[:i] {
			if !disjoint(ofPair(g, a.Key, b.Key, r[a.Key], kind), ofPair(g, b.Key, a.Key, r[b.Key], kind)) {
				return false
			}
		}
	}
	return true
}

// judgeGroup tries all lists of all demands: whether one each is disjoint from the others', and
// the least utilisation of such lists.
func judgeGroup(g *graph.Graph, demands []te.Demand, kind te.Disjoint) (out brute) {
	out.best = math.Inf(1)
	r := te.Routing{}
	var grow func(n int)
	grow = func(n int) {
		if !apart(g, demands[:n], r, kind) {
			return
		}
		if n == len(demands) {
			loads := make([]float64, len(g.Topology.Links))
			for _, d := range demands {
				g.Flows().Load(loads, d, r[d.Key])
			}
			_, u := g.Fullest(loads)
			out.possible, out.best = true, min(out.best, u)
			return
		}
		for _, l := range every(g, demands[n].Headend) {
			r[demands[n].Key] = []te.List{l}
			grow(n + 1)
		}
		delete(r, demands[n].Key)
	}
	grow(0)
	return out
}

// Solve finds lists of demands that are disjoint from each other exactly where there are any, and says
// so where not; then they have the lists that share least.
func TestGroupsAgainstAllLists(t *testing.T) {
	possible, not, worst := 0, 0, 0.0
	for seed := range uint64(16) {
		for i, kind := range []te.Disjoint{te.DisjointByLink, te.DisjointByNode, te.DisjointBySRLG} {
			topology, demands := generate.Make(generate.Parameters{Nodes: 7, Links: 20, Seed: 10*seed + uint64(i), LinkSIDs: seed%2 == 0})
			for l := range topology.Links { // both directions are neighbours
				topology.Links[l].SRLG = []uint32{uint32(l/2) % 5}
			}
			g := graph.New(topology, graph.Without{})
			for first := range 4 {
				members := []te.Demand{demands[first], demands[len(demands)-1-first]}
				if first == 0 {
					members = append(members, demands[len(demands)/2])
				}
				group := te.Group{Name: "pair", Disjoint: kind}
				for _, d := range members {
					group.Demands = append(group.Demands, d.Key)
				}
				want := judgeGroup(g, members, kind)
				r, err := Solve(t.Context(), g, nil, members, Options{Groups: []te.Group{group}})
				if err != nil {
					t.Fatal(err)
				}
				got := apart(g, members, r.Routing, kind)
				if got != want.possible || want.possible != (len(r.Problems) == 0) {
					t.Errorf("seed %d, %s, %v: disjoint: %v, possible: %v; %v", seed, kind, group.Demands, got, want.possible, r.Problems)
				}
				if together := g.Together(nil, []te.Group{group}, members, r.Routing); got != (len(together) == 0) {
					t.Errorf("seed %d, %s, %v: disjoint: %v, and these fail together: %v", seed, kind, group.Demands, got, together)
				}
				for _, d := range members {
					if len(r.Routing[d.Key]) == 0 {
						t.Errorf("seed %d, %s: %v has no list", seed, kind, d.Key)
					}
				}
				if !want.possible {
					not++
					continue
				}
				possible++
				worst = max(worst, r.Utilisation/want.best)
			}
		}
	}
	t.Logf("%d groups have disjoint lists, %d not; at most %.3f times the utilisation of the best single lists", possible, not, worst)
	if possible < 20 || not < 20 || worst > 1.1 {
		t.Errorf("%d and %d: want 20 of both; at most %.3f times the best: want 1.1", possible, not, worst)
	}
}
