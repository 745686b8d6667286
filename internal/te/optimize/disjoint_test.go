package optimize

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// brute is what a demand can have, found by looking at all lists and all pairs.
type brute struct {
	possible bool    // there are two disjoint lists
	best     float64 // the least utilisation of disjoint lists that carry the demand alone
}

// fails are what a list fails with, in words of its own: the graph's are what is judged.
func fails(g *graph.Graph, key te.Key, l te.List, kind te.Disjoint) map[string]bool {
	w, leads := g.Flows().Way(key, l)
	if !leads {
		return nil
	}
	set := map[string]bool{}
	for _, s := range w.Shares {
		link := g.Topology.Links[s.Link]
		set[min(link.From, link.To)+"="+max(link.From, link.To)+"="+link.Name] = true
		for _, node := range []string{link.From, link.To} {
			if kind == te.DisjointByNode && node != key.Headend && node != key.Endpoint {
				set[node] = true
			}
		}
		for _, group := range link.SRLG {
			if kind == te.DisjointBySRLG {
				set[fmt.Sprint("group ", group)] = true
			}
		}
	}
	return set
}

func disjoint(a, b map[string]bool) bool {
	for name := range a {
		if b[name] {
			return false
		}
	}
	return true
}

// every is all lists that a headend can have.
func every(g *graph.Graph, headend string) []te.List {
	lists := []te.List{{Weight: 1}}
	for _, n := range g.Topology.Nodes {
		if n.Name != headend {
			lists = append(lists, te.List{Weight: 1, Waypoints: []te.Waypoint{{Node: n.Name}}})
		}
	}
	for i, l := range g.Topology.Links {
		if l.SID.IsValid() && l.From != headend {
			lists = append(lists, te.List{Weight: 1, Waypoints: []te.Waypoint{{Node: l.From, Link: i + 1}}})
		}
	}
	return lists
}

func judge(g *graph.Graph, d te.Demand, kind te.Disjoint) (out brute) {
	out.best = math.Inf(1)
	lists := every(g, d.Headend)
	var sets []map[string]bool
	var room []float64 // bit/s at a utilisation of 1
	for _, l := range lists {
		sets = append(sets, fails(g, d.Key, l, kind))
		w, _ := g.Flows().Way(d.Key, l)
		part := make([]float64, len(g.Topology.Links))
		for _, s := range w.Shares {
			part[s.Link] += float64(s.Part) / g.Topology.Links[s.Link].Capacity
		}
		room = append(room, 1/slices.Max(part))
	}
	var grow func(chosen []int, sum float64)
	grow = func(chosen []int, sum float64) {
		if len(chosen) >= 2 {
			out.possible, out.best = true, min(out.best, d.Rate/sum)
		}
		first := 0
		if len(chosen) > 0 {
			first = chosen[len(chosen)-1] + 1
		}
		for i := first; i < len(lists); i++ {
			if !slices.ContainsFunc(chosen, func(j int) bool { return !disjoint(sets[i], sets[j]) }) {
				grow(append(slices.Clone(chosen), i), sum+room[i])
			}
		}
	}
	grow(nil, 0)
	return out
}

// Solve finds disjoint lists exactly where there are any, and says so where not; what they carry is
// near the best.
func TestDisjointAgainstAllPairs(t *testing.T) {
	possible, not, worst := 0, 0, 0.0
	for seed := range uint64(12) {
		for i, kind := range []te.Disjoint{te.DisjointByLink, te.DisjointByNode, te.DisjointBySRLG} {
			topology, demands := generate.Make(generate.Parameters{Nodes: 6, Links: 14, Seed: 10*seed + uint64(i), LinkSIDs: seed%2 == 0})
			for l := range topology.Links { // both directions are neighbours
				topology.Links[l].SRLG = []uint32{uint32(l/2) % 3}
			}
			g := graph.New(topology, graph.Without{})
			for _, d := range demands[:8] {
				want := judge(g, d, kind)
				r, err := Solve(t.Context(), g, []te.Class{{Disjoint: kind}}, []te.Demand{d}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				lists, apart := r.Routing[d.Key], len(r.Routing[d.Key]) > 1
				for i := range lists {
					for j := range i {
						apart = apart && disjoint(fails(g, d.Key, lists[i], kind), fails(g, d.Key, lists[j], kind))
					}
				}
				if apart != want.possible || want.possible != (len(r.Problems) == 0) {
					t.Errorf("seed %d, %s, %v: %v are disjoint: %v, possible: %v; %v", seed, kind, d.Key, lists, apart, want.possible, r.Problems)
				}
				if together := g.Together([]te.Class{{Disjoint: kind}}, nil, []te.Demand{d}, r.Routing); apart && len(together) > 0 {
					t.Errorf("seed %d, %s, %v: %v, and %v fails all lists", seed, kind, d.Key, lists, together)
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
	t.Logf("%d demands have disjoint lists, %d not; at most %.3f times the best utilisation", possible, not, worst)
	if possible < 20 || not < 20 || worst > 1.1 {
		t.Errorf("%d and %d: want 20 of both; at most %.3f times the best: want 1.1", possible, not, worst)
	}
}

// Of three ways each two share an SRLG, and no SRLG is all three's: two ways are better than one.
func TestNoPairIsDisjoint(t *testing.T) {
	topology := te.Topology{Nodes: []te.Node{{Name: "a"}, {Name: "d"}}}
	for i, name := range []string{"x", "y", "z"} {
		topology.Nodes = append(topology.Nodes, te.Node{Name: name, SID: netip.AddrFrom16([16]byte{0xfc, byte(i)})})
		for _, ends := range [][2]string{{"a", name}, {name, "d"}} {
			l := te.Link{From: ends[0], To: ends[1], Metric: uint32(1 + i), Capacity: 1e9, SRLG: []uint32{uint32(i), uint32(i+1) % 3}}
			back := l
			back.From, back.To = l.To, l.From
			topology.Links = append(topology.Links, l, back)
		}
	}
	demands := []te.Demand{demand("a", "d", 0, 6e8)}
	r, err := Solve(t.Context(), graph.New(topology, graph.Without{}), []te.Class{{Disjoint: te.DisjointBySRLG}}, demands, Options{})
	if err != nil || len(r.Routing[demands[0].Key]) != 2 || len(r.Problems) != 1 || r.Problems[0].Why != "no two lists are disjoint by srlg: those that share least have SRLG 1 in common" {
		t.Errorf("%s, %v, %v", words(r, demands), r.Problems, err)
	}
}

// Demands with disjoint lists share a network with others: all stay disjoint, however full it is.
func TestDisjointTogether(t *testing.T) {
	topology, demands := generate.Make(generate.Parameters{Nodes: 14, Links: 60, Seed: 9, Colors: []uint32{1, 2}})
	g := graph.New(topology, graph.Without{})
	classes := []te.Class{{Color: 1, Disjoint: te.DisjointByLink, MaxLists: 3}, {Color: 2}}
	free, err := Solve(t.Context(), g, nil, demands, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Solve(t.Context(), g, classes, demands, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if together := g.Together(classes, nil, demands, r.Routing); len(together) != len(r.Problems) {
		t.Errorf("%d demands fail together, and %d problems are said: %v", len(together), len(r.Problems), r.Problems)
	}
	for _, d := range demands {
		if n := len(r.Routing[d.Key]); d.Color == 1 && (n < 2 || n > 3) {
			t.Errorf("%v has %d lists", d.Key, n)
		}
	}
	t.Logf("the largest utilisation is %.4f, without disjointness %.4f", r.Utilisation, free.Utilisation)
	if r.Utilisation > 1.5*free.Utilisation || r.Bound > r.Utilisation {
		t.Errorf("%v, bound %v; without disjointness %v", r.Utilisation, r.Bound, free.Utilisation)
	}
}
