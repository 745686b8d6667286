package change

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/optimize"
)

// problem is a network whose fullest link the IGP fills to a utilisation, and a better routing.
func problem(t *testing.T, seed uint64, utilisation float64) (*graph.Graph, []te.Demand, te.Routing) {
	t.Helper()
	topology, demands := generate.Make(generate.Parameters{Nodes: 12, Links: 40, Seed: seed, Utilisation: utilisation})
	g := graph.New(topology, graph.Without{})
	r, err := optimize.Solve(t.Context(), g, nil, demands, optimize.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g, demands, r.Routing
}

// fullest is the largest utilisation of a routing, computed anew.
func fullest(g *graph.Graph, demands []te.Demand, r te.Routing) float64 {
	loads, flows := make([]float64, len(g.Topology.Links)), g.Flows()
	for _, d := range demands {
		flows.Load(loads, d, r[d.Key])
	}
	_, u := g.Fullest(loads)
	return u
}

func TestChoose(t *testing.T) {
	g, demands, wanted := problem(t, 1, 0.9)
	best := fullest(g, demands, wanted)
	few := Choose(g, demands, nil, wanted, Options{Most: 5})
	if len(few.Moves) == 0 || len(few.Moves) > 5 || few.Now < 0.89 || few.Then >= few.Now {
		t.Errorf("5 changes: %+v", few)
	}
	if u := fullest(g, demands, few.Routing); u < few.Then*0.999 || u > few.Then*1.001 {
		t.Errorf("it says %v, and is %v", few.Then, u)
	}
	all := Choose(g, demands, nil, wanted, Options{Most: 1000})
	if all.Then > best*1.01 || len(all.Moves) >= len(demands) {
		t.Errorf("%d of %d demands change, to %v; all of them reach %v", len(all.Moves), len(demands), all.Then, best)
	}
	target := Choose(g, demands, nil, wanted, Options{Target: 0.8, Aim: 0.8, Most: 1000})
	if target.Then > 0.8 || len(target.Moves) >= len(all.Moves) {
		t.Errorf("to a target of 80 %%: %d changes, %v; to the best: %d", len(target.Moves), target.Then, len(all.Moves))
	}
}

// What breaks a bound changes first, also below the target, and no more than may change.
func TestMust(t *testing.T) {
	g, demands, wanted := problem(t, 1, 0.9)
	must := map[te.Key]bool{}
	for _, d := range demands {
		if lists, has := wanted[d.Key]; has && !same(lists, orIGP(nil)) && len(must) < 3 {
			must[d.Key] = true
		}
	}
	c := Choose(g, demands, nil, wanted, Options{Target: 1, Must: must})
	if len(c.Moves) != 3 || !strings.Contains(c.Why, "longer than their class allows") {
		t.Errorf("below the target: %d changes, %q", len(c.Moves), c.Why)
	}
	for _, key := range c.Moves {
		if !must[key] || !same(c.Routing[key], wanted[key]) {
			t.Errorf("%v changes to %v", key, c.Routing[key])
		}
	}
	if u := fullest(g, demands, c.Routing); u < c.Then*0.999 || u > c.Then*1.001 {
		t.Errorf("it says %v, and is %v", c.Then, u)
	}
	if c := Choose(g, demands, nil, wanted, Options{Target: 1, Must: must, Most: 2}); len(c.Moves) != 2 {
		t.Errorf("at most 2: %d changes", len(c.Moves))
	}
	if c := Choose(g, demands, nil, wanted, Options{Must: must, Most: 1000}); len(c.Moves) <= 3 || !must[c.Moves[0]] || c.Then >= c.Now {
		t.Errorf("above the target: %d changes to %v, %q", len(c.Moves), c.Then, c.Why)
	}
}

func TestNothingChanges(t *testing.T) {
	g, demands, wanted := problem(t, 2, 0.9)
	for why, tt := range map[string]struct {
		now     te.Routing
		options Options
	}{
		"at most the target of 95.0 %":   {nil, Options{Target: 0.95}},
		"no 20 changes lower it by 5.0 ": {wanted, Options{}},
		"no 3 changes lower it by 99.0 ": {nil, Options{Most: 3, Gain: 0.99}},
	} {
		if c := Choose(g, demands, tt.now, wanted, tt.options); len(c.Moves) > 0 || c.Then != c.Now || !strings.Contains(c.Why, why) {
			t.Errorf("want %q: %d changes, %q", why, len(c.Moves), c.Why)
		}
	}
}

// Whichever headends have changed in a step, no link is above what it carries, or what it does
// before or after all steps; and the last step ends with the wanted lists.
func TestSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	inParts := 0
	for seed := range uint64(12) {
		g, demands, wanted := problem(t, seed, []float64{0.9, 2, 6}[seed%3])
		var moves []te.Key
		for _, d := range demands {
			moves = append(moves, d.Key)
		}
		now := te.Routing{}
		limit := max(1, fullest(g, demands, now), fullest(g, demands, wanted)) * 1.0001
		before, by := now, Steps(g, demands, now, wanted, moves, nil, nil)
		steps := by.Steps
		if by.Overload != 0 || len(by.Moves) == 0 || len(by.Moves)+len(by.Left) != len(moves) {
			t.Errorf("seed %d: overload %v, %d changes, %d left of %d", seed, by.Overload, len(by.Moves), len(by.Left), len(moves))
		}
		for i, s := range steps {
			if s.Fullest > limit {
				t.Errorf("seed %d: step %d may fill a link to %v, limit %v", seed, i, s.Fullest, limit)
			}
			for range 20 {
				some := Step{Lists: te.Routing{}}
				for key, lists := range s.Lists {
					if r.IntN(2) == 0 {
						some.Lists[key] = lists
					}
				}
				if u := fullest(g, demands, Apply(now, some)); u > s.Fullest*1.0001 {
					t.Fatalf("seed %d: in step %d a link is used to %v, and it said %v", seed, i, u, s.Fullest)
				}
			}
			now = Apply(now, s)
			if len(steps) > 1 {
				inParts++
			}
		}
		for _, key := range moves {
			want := wanted[key]
			if slices.Contains(by.Left, key) {
				want = before[key]
			}
			if !same(now[key], want) {
				t.Errorf("seed %d: %v ends with %v, want %v", seed, key, now[key], want)
			}
		}
	}
	if inParts == 0 {
		t.Error("one step was enough for all: nothing is tested of more")
	}
}

// In each step, and whichever headends have changed, no failure takes all lists of a demand that
// has disjoint ones before and after.
func TestStepsKeepListsApart(t *testing.T) {
	topology, demands := generate.Make(generate.Parameters{Nodes: 12, Links: 60, Seed: 5, Utilisation: 4})
	g, classes := graph.New(topology, graph.Without{}), []te.Class{{Disjoint: te.DisjointByLink}}
	now, err := optimize.Solve(t.Context(), g, classes, demands[:40], optimize.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range demands {
		demands[i].Rate *= 1 + float64(i%7) // another optimum
	}
	wanted, err := optimize.Solve(t.Context(), g, classes, demands, optimize.Options{})
	if err != nil {
		t.Fatal(err)
	}
	demands = demands[:40]
	var moves []te.Key
	for _, d := range demands {
		moves = append(moves, d.Key)
	}
	before := len(g.Together(classes, nil, demands, now.Routing))
	steps := Steps(g, demands, now.Routing, wanted.Routing, moves, nil, nil).Steps
	if len(steps) < 2 {
		t.Errorf("%d steps: want some between the first and the last", len(steps))
	}
	routing := now.Routing
	for i, s := range steps {
		if routing = Apply(routing, s); len(g.Together(classes, nil, demands, routing)) > before {
			t.Errorf("after step %d: %v", i+1, g.Together(classes, nil, demands, routing))
		}
	}
}

// diamond is two equal ways from a to d, by b and by c.
func diamond() *graph.Graph {
	var topology te.Topology
	for _, name := range []string{"a", "b", "c", "d"} {
		topology.Nodes = append(topology.Nodes, te.Node{Name: name})
	}
	for _, l := range [][2]string{{"a", "b"}, {"b", "d"}, {"a", "c"}, {"c", "d"}} {
		topology.Links = append(topology.Links, te.Link{From: l[0], To: l[1], Metric: 1, Capacity: 1e9}, te.Link{From: l[1], To: l[0], Metric: 1, Capacity: 1e9})
	}
	return graph.New(topology, graph.Without{})
}

func by(node string) []te.List {
	return []te.List{{Weight: 1, Waypoints: []te.Waypoint{{Node: node}}}}
}

func key(color uint32) te.Key { return te.Key{Headend: "a", Endpoint: "d", Color: color} }

// Two demands that want each other's full links cannot change places without a third way;
// in parts they can, as far as links have room.
func TestSwap(t *testing.T) {
	now, wanted := te.Routing{key(1): by("b"), key(2): by("c")}, te.Routing{key(1): by("c"), key(2): by("b")}
	for _, tt := range []struct {
		rate     float64
		lost     bool // the first demand
		steps    int
		moves    int
		overload float64
	}{
		{4e8, false, 1, 2, 0},    // both fit on one way
		{8e8, false, 4, 2, 0},    // 20 % of a link is free: a quarter of each fits
		{9.6e8, false, 32, 2, 0}, // 4 %: a small part of each
		{1e9, false, 0, 0, 0},    // no room at all
		{1e9, true, 2, 2, 2},     // packets that lead nowhere go first, and the other one follows
	} {
		demands := []te.Demand{{Key: key(1), Rate: tt.rate}, {Key: key(2), Rate: tt.rate}}
		s := Steps(diamond(), demands, now, wanted, []te.Key{key(1), key(2)}, map[te.Key]bool{key(1): tt.lost}, nil)
		if len(s.Steps) != tt.steps || s.Overload != tt.overload || len(s.Moves) != tt.moves || len(s.Left) != 2-tt.moves {
			t.Errorf("at %v bit/s: %d steps: %+v", tt.rate, len(s.Steps), s)
		}
	}
}

// The demands of a group change as one, or none does.
func TestGroupsChangeAsOne(t *testing.T) {
	g, demands, wanted := problem(t, 1, 0.9)
	few := Choose(g, demands, nil, wanted, Options{Most: 5})
	first := few.Moves[0]
	group := te.Group{Demands: []te.Key{{Headend: "nobody"}, first}}
	for _, d := range demands {
		if _, has := wanted[d.Key]; has && !same(wanted[d.Key], orIGP(nil)) && !slices.Contains(few.Moves, d.Key) && len(group.Demands) < 4 {
			group.Demands = append(group.Demands, d.Key)
		}
	}
	for _, must := range []map[te.Key]bool{nil, {group.Demands[3]: true}} {
		c := Choose(g, demands, nil, wanted, Options{Most: 5, Groups: []te.Group{group}, Must: must})
		for _, key := range group.Demands[1:] {
			if !slices.Contains(c.Moves, key) || !same(c.Routing[key], wanted[key]) {
				t.Errorf("%v does not change with its group: %v", key, c.Moves)
			}
		}
		if u := fullest(g, demands, c.Routing); u < c.Then*0.999 || u > c.Then*1.001 {
			t.Errorf("it says %v, and is %v", c.Then, u)
		}
	}
}

// Where one of a group has no room to change, the others keep their lists, too.
func TestGroupsAreLeftAsOne(t *testing.T) {
	now := te.Routing{key(1): by("b"), key(2): by("c"), key(3): by("b")}
	wanted := te.Routing{key(1): by("c"), key(2): by("b"), key(3): by("c")}
	demands := []te.Demand{{Key: key(1), Rate: 1e9}, {Key: key(2), Rate: 1e9}, {Key: key(3)}}
	moves := []te.Key{key(1), key(2), key(3)}
	group := []te.Group{{Demands: []te.Key{key(1), key(3)}}}
	g := diamond()
	if s := Steps(g, demands, now, wanted, moves, nil, nil); len(s.Moves) != 1 || len(s.Left) != 2 {
		t.Errorf("without a group: %+v", s)
	}
	if s := Steps(g, demands, now, wanted, moves, nil, group); len(s.Moves) != 0 || len(s.Left) != 3 {
		t.Errorf("with it: %+v", s)
	}
}

// Parts of a demand keep their ratio, whatever the weights of its lists.
func TestPartsOfLargeWeights(t *testing.T) {
	list := func(node string, weight uint32) te.List {
		return te.List{Weight: weight, Waypoints: []te.Waypoint{{Node: node}}}
	}
	for _, tt := range []struct {
		from, to []te.List
		done     int
		want     []float64
	}{
		{[]te.List{list("a", 3e9), list("b", 1e9)}, []te.List{list("c", 4e9), list("d", 4e9)}, parts / 4, []float64{0.5625, 0.1875, 0.125, 0.125}},
		{[]te.List{list("a", 4294967291), list("b", 4294967279)}, []te.List{list("c", 1)}, parts / 2, []float64{0.25, 0.25, 0.5}},
		{nil, []te.List{list("c", 70000), list("d", 1)}, parts / 2, []float64{0.5, 0.5, 0}},
	} {
		lists, ok := (&moving{from: tt.from, to: tt.to}).after(tt.done)
		if !ok || len(lists) != len(tt.want) {
			t.Fatalf("%v to %v: %v, %v", tt.from, tt.to, lists, ok)
		}
		var sum float64
		for _, l := range lists {
			sum += float64(l.Weight)
		}
		for i, l := range lists {
			if part := float64(l.Weight) / sum; l.Weight == 0 || part < tt.want[i]-1e-3 || part > tt.want[i]+1e-3 {
				t.Errorf("%v to %v: list %d has %v, want %v", tt.from, tt.to, i, part, tt.want[i])
			}
		}
	}
}
