package optimize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// square has two ways from a to d: by b, which is short, and by c.
//
//	a --1-- b --1-- d --1-- e
//	 \--2-- c --2--/
func square() (t te.Topology) {
	for i, name := range []string{"a", "b", "c", "d", "e", "alone"} {
		sid := netip.MustParseAddr("fc00::").As16()
		sid[3] = byte(i)
		t.Nodes = append(t.Nodes, te.Node{Name: name, SID: netip.AddrFrom16(sid)})
	}
	for _, l := range []te.Link{
		{From: "a", To: "b", Metric: 1, Delay: time.Millisecond, Affinity: 1}, {From: "b", To: "d", Metric: 1, Delay: time.Millisecond, Affinity: 1},
		{From: "a", To: "c", Metric: 2, Delay: 5 * time.Millisecond, Affinity: 2}, {From: "c", To: "d", Metric: 2, Delay: 5 * time.Millisecond, Affinity: 2},
		{From: "d", To: "e", Metric: 1, Delay: time.Millisecond, Affinity: 3},
	} {
		l.Capacity = 1e9
		if l.To == "e" {
			l.Capacity = 1e10
		}
		back := l
		back.From, back.To = l.To, l.From
		t.Links = append(t.Links, l, back)
	}
	return t
}

func demand(from, to string, color uint32, rate float64) te.Demand {
	return te.Demand{Key: te.Key{Headend: from, Endpoint: to, Color: color}, Rate: rate}
}

// words are a routing's: "a>d 25 by c, 25".
func words(r Result, demands []te.Demand) string {
	var all []string
	for _, d := range demands {
		var lists []string
		for _, l := range r.Routing[d.Key] {
			text := fmt.Sprint(l.Weight)
			for _, w := range l.Waypoints {
				text += " by " + w.Node
			}
			lists = append(lists, text)
		}
		all = append(all, d.Headend+">"+d.Endpoint+" "+strings.Join(lists, ", "))
	}
	return strings.Join(all, "; ")
}

// pair has demands that must be disjoint from each other.
func pair(kind te.Disjoint, demands ...te.Demand) []te.Group {
	g := te.Group{Name: "pair", Disjoint: kind}
	for _, d := range demands {
		g.Demands = append(g.Demands, d.Key)
	}
	return []te.Group{g}
}

func TestSolve(t *testing.T) {
	red, blue, far := demand("a", "d", 7, 5e8), demand("a", "d", 8, 5e8), demand("a", "e", 8, 5e8)
	for name, tt := range map[string]struct {
		classes     []te.Class
		demands     []te.Demand
		options     Options
		change      func(*te.Topology)
		want        string
		utilisation float64
		problems    []string
	}{
		"both ways carry half": {demands: []te.Demand{demand("a", "d", 0, 1.5e9)}, want: "a>d 25, 25 by c", utilisation: 0.75},
		"equal demands are one": {demands: []te.Demand{demand("a", "d", 0, 1e9), demand("a", "d", 0, 0.5e9)},
			want: "a>d 25, 25 by c; a>d 25, 25 by c", utilisation: 0.75},
		"no trouble, the quickest": {demands: []te.Demand{demand("a", "d", 0, 5e8)}, options: Options{Target: 0.6}, want: "a>d 50", utilisation: 0.5},
		"as much of the quick one as the target lets": {demands: []te.Demand{demand("a", "d", 0, 1e9)}, options: Options{Target: 0.8},
			want: "a>d 40, 10 by c", utilisation: 0.8},
		"one list": {classes: []te.Class{{MaxLists: 1}}, demands: []te.Demand{demand("a", "d", 0, 8e8), demand("a", "e", 0, 6e8)},
			want: "a>d 50 by c; a>e 50", utilisation: 0.8},
		"the headend pushes no waypoint": {demands: []te.Demand{demand("a", "d", 0, 1.5e9)}, want: "a>d 50", utilisation: 1.5,
			change: func(t *te.Topology) { t.Nodes[0].MaxSegments = 1 }},
		"no SID, no waypoint": {demands: []te.Demand{demand("a", "d", 0, 1.5e9)}, want: "a>d 50", utilisation: 1.5,
			change: func(t *te.Topology) { t.Nodes[2].SID = netip.Addr{} }},
		"a bound": {classes: []te.Class{{Color: 7, MaxDelay: 3 * time.Millisecond}}, demands: []te.Demand{demand("a", "d", 7, 6e8), demand("a", "d", 0, 6e8)},
			want: "a>d 50; a>d 50 by c", utilisation: 0.6},
		"a bound that no list keeps": {classes: []te.Class{{Color: 7, MaxDelay: time.Millisecond}}, demands: []te.Demand{demand("a", "d", 7, 5e8), demand("a", "d", 0, 5e8)},
			want: "a>d 1; a>d 50 by c", utilisation: 0.5, problems: []string{"the quickest list takes 2ms, more than max_delay: 1ms; it goes by the IGP"}},
		"excluded":  {classes: []te.Class{{Color: 7, Exclude: 1}}, demands: []te.Demand{demand("a", "d", 7, 5e8)}, want: "a>d 50 by c", utilisation: 0.5},
		"asked for": {classes: []te.Class{{Color: 7, IncludeAny: 2}}, demands: []te.Demand{demand("a", "e", 7, 5e8)}, want: "a>e 50 by c", utilisation: 0.5},
		"excluded everywhere": {classes: []te.Class{{Color: 7, Exclude: 3}}, demands: []te.Demand{demand("a", "d", 7, 5e8)}, want: "a>d 1", utilisation: 0.5,
			problems: []string{"each list has a link with an affinity that the class excludes, or without one that it asks for; it goes by the IGP"}},
		"disjoint below the target": {classes: []te.Class{{Color: 7, Disjoint: te.DisjointByNode}}, demands: []te.Demand{demand("a", "d", 7, 5e8)}, options: Options{Target: 0.8},
			want: "a>d 49, 1 by c", utilisation: 0.49},
		"not disjoint behind d": {classes: []te.Class{{Color: 7, Disjoint: te.DisjointByLink}}, demands: []te.Demand{demand("a", "e", 7, 5e8)}, options: Options{Target: 0.8},
			want: "a>e 49, 1 by c", utilisation: 0.49, problems: []string{"no two lists are disjoint by link: all have link d-e in common"}},
		"disjoint by SRLG": {classes: []te.Class{{Color: 7, Disjoint: te.DisjointBySRLG}}, demands: []te.Demand{demand("a", "d", 7, 5e8)}, options: Options{Target: 0.8},
			change: func(t *te.Topology) { t.Links[0].SRLG, t.Links[4].SRLG = []uint32{1, 9}, []uint32{2, 9} },
			want:   "a>d 49, 1 by c", utilisation: 0.49, problems: []string{"no two lists are disjoint by srlg: all have SRLG 9 in common"}},
		"disjoint, and delay leaves one": {classes: []te.Class{{Color: 7, Disjoint: te.DisjointByLink, MaxDelay: 3 * time.Millisecond}}, demands: []te.Demand{demand("a", "d", 7, 5e8)},
			want: "a>d 50", utilisation: 0.5, problems: []string{"no two lists are disjoint by link: all have link a-b, link b-d in common"}},
		"a group": {demands: []te.Demand{red, blue}, options: Options{Groups: pair(te.DisjointByNode, red, blue)}, want: "a>d 50; a>d 50 by c", utilisation: 0.5},
		"a group, and what only one of it takes": {demands: []te.Demand{red, far}, options: Options{Groups: pair(te.DisjointByLink, red, far)},
			want: "a>d 50; a>e 50 by c", utilisation: 0.5},
		"a group, and d is no end of both": {demands: []te.Demand{red, far}, options: Options{Groups: pair(te.DisjointByNode, red, far)},
			want: "a>d 50; a>e 50 by c", utilisation: 0.5, problems: []string{
				"group pair: no lists are disjoint by node from those of a:e:8: those that share least have node d in common",
				"group pair: no lists are disjoint by node from those of a:d:7: those that share least have node d in common"}},
		"a group of which one stays on the quick way": {demands: []te.Demand{red, blue}, options: Options{Groups: pair(te.DisjointByLink, red, blue), Target: 1.1, Fixed: te.Routing{red.Key: {{Weight: 1}}}},
			want: "a>d 1; a>d 50 by c", utilisation: 0.5},
		"a group of which one stays": {demands: []te.Demand{red, blue}, options: Options{Groups: pair(te.DisjointByLink, red, blue), Fixed: te.Routing{red.Key: {{Weight: 1, Waypoints: []te.Waypoint{{Node: "c"}}}}}},
			want: "a>d 1 by c; a>d 50", utilisation: 0.5},
		"a group of which one stays on all ways": {demands: []te.Demand{red, blue}, options: Options{Groups: pair(te.DisjointByLink, red, blue), Fixed: te.Routing{red.Key: {{Weight: 1}, {Weight: 1, Waypoints: []te.Waypoint{{Node: "c"}}}}}},
			want: "a>d 1, 1 by c; a>d 50 by c", utilisation: 0.75, problems: []string{
				"group pair: no lists are disjoint by link from those of a:d:7, which keeps its lists: those that share least have link a-c, link c-d in common"}},
		"two groups that have one in common": {demands: []te.Demand{red, blue, far}, options: Options{Groups: append(pair(te.DisjointByLink, red, blue), pair(te.DisjointByLink, red, far)...)},
			want: "a>d 50; a>d 50 by c; a>e 50 by c", utilisation: 1},
		"a group with disjoint lists of its own": {classes: []te.Class{{Color: 7, Disjoint: te.DisjointByLink}}, demands: []te.Demand{red, blue}, options: Options{Groups: pair(te.DisjointByLink, red, blue), Target: 0.8},
			want: "a>d 49, 1 by e; a>d 50 by c", utilisation: 0.5, problems: []string{
				"no two lists are disjoint by link: those that share least have link a-b, link b-d in common"}},
		"a group of one that is unknown": {demands: []te.Demand{red}, options: Options{Groups: pair(te.DisjointByLink, red, blue)},
			want: "a>d 25, 25 by c", utilisation: 0.25, problems: []string{"group pair: there is no such demand, in the file or at a headend"}},
		"a group of which one has no path": {demands: []te.Demand{red, demand("a", "alone", 8, 1)}, options: Options{Target: 0.8, Groups: pair(te.DisjointByLink, red, demand("a", "alone", 8, 1))},
			want: "a>d 50; a>alone ", utilisation: 0.5, problems: []string{"no path leads there"}},
		"a standby": {classes: []te.Class{{Color: 7, Standby: te.DisjointByLink}}, demands: []te.Demand{red}, options: Options{Target: 0.8}, want: "a>d 50", utilisation: 0.5},
		"a standby, and the quick way is full": {classes: []te.Class{{Color: 7, Standby: te.DisjointByLink}}, demands: []te.Demand{red, demand("a", "d", 0, 5e8)},
			options: Options{Target: 0.8, Fixed: te.Routing{{Headend: "a", Endpoint: "d"}: {{Weight: 1}}}}, want: "a>d 50 by c; a>d 1", utilisation: 0.5},
		"no standby": {classes: []te.Class{{Color: 8, Standby: te.DisjointByLink}}, demands: []te.Demand{far}, options: Options{Target: 0.8}, want: "a>e 50", utilisation: 0.5,
			problems: []string{"no list is disjoint by link from those in use, for a standby: all have link d-e in common"}},
		"the higher priority goes first": {classes: []te.Class{{Color: 7, Priority: 2, MaxDelay: 3 * time.Millisecond}, {Color: 8, Priority: 1}},
			demands: []te.Demand{demand("a", "d", 8, 5e8), demand("a", "d", 7, 5e8)}, want: "a>d 50 by c; a>d 50", utilisation: 0.5},
		"no path":         {demands: []te.Demand{demand("a", "alone", 0, 5e8)}, want: "a>alone ", problems: []string{"no path leads there"}},
		"to itself":       {demands: []te.Demand{demand("a", "a", 0, 5e8)}, want: "a>a ", problems: []string{"headend and endpoint are the same node"}},
		"nothing is sent": {demands: []te.Demand{demand("a", "d", 0, 0)}, want: "a>d 50"},
		"no demand":       {},
	} {
		topology := square()
		if tt.change != nil {
			tt.change(&topology)
		}
		r, err := Solve(t.Context(), graph.New(topology, graph.Without{}), tt.classes, tt.demands, tt.options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := words(r, tt.demands); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if math.Abs(r.Utilisation-tt.utilisation) > 1e-9 {
			t.Errorf("%s: utilisation %v, want %v", name, r.Utilisation, tt.utilisation)
		}
		if len(r.Problems) != len(tt.problems) || len(r.Problems) > 0 && r.Problems[0].Why != tt.problems[0] {
			t.Errorf("%s: problems %v, want %q", name, r.Problems, tt.problems)
		}
	}
}

func TestSolveErrors(t *testing.T) {
	for want, tt := range map[string]struct {
		classes []te.Class
		demand  te.Demand
		change  func(*te.Topology)
	}{
		"the topology has no node z":                           {demand: demand("a", "z", 0, 1)},
		"rate is -1 bit/s":                                     {demand: demand("a", "d", 0, -1)},
		"rate is NaN bit/s":                                    {demand: demand("a", "d", 0, math.NaN())},
		"link a to b: capacity is 0 bit/s":                     {change: func(t *te.Topology) { t.Links[0].Capacity = 0 }},
		"link a to b: capacity is NaN bit/s":                   {change: func(t *te.Topology) { t.Links[0].Capacity = math.NaN() }},
		"color 7 has two classes":                              {classes: []te.Class{{Color: 7}, {Color: 7, Priority: 1}}},
		"color 7 asks for disjoint lists, and for one at most": {classes: []te.Class{{Color: 7, Disjoint: te.DisjointByLink, MaxLists: 1}}},
	} {
		topology := square()
		if tt.change != nil {
			tt.change(&topology)
		}
		demands := []te.Demand{tt.demand}
		if tt.demand.Headend == "" {
			demands = nil
		}
		if _, err := Solve(t.Context(), graph.New(topology, graph.Without{}), tt.classes, demands, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Solve(ctx, graph.New(square(), graph.Without{}), nil, []te.Demand{demand("a", "d", 0, 1e9)}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// The loads are those of the routing, each weight is within what a class allows, and one
// question has one answer.
func TestRoutingIsWhatLoadsSay(t *testing.T) {
	topology, demands := generate.Make(generate.Parameters{Nodes: 14, Links: 50, Seed: 9, Colors: []uint32{1, 2}})
	classes := []te.Class{{Color: 1, Priority: 1, MaxLists: 2}, {Color: 2, MaxDelay: 12 * time.Millisecond}}
	g := graph.New(topology, graph.Without{})
	r, err := Solve(t.Context(), g, classes, demands, Options{})
	if err != nil {
		t.Fatal(err)
	}
	loads := make([]float64, len(topology.Links))
	flows := g.Flows()
	for _, d := range demands {
		var sum uint32
		for _, l := range r.Routing[d.Key] {
			sum += l.Weight
		}
		if n := len(r.Routing[d.Key]); n == 0 || n > srpolicy.MaxSegmentLists || d.Color == 1 && n > 2 {
			t.Errorf("%v has %d lists", d.Key, n)
		}
		for _, l := range r.Routing[d.Key] {
			at, _ := g.Node(d.Headend)
			end, _ := g.Node(d.Endpoint)
			var delay time.Duration
			for _, next := range append(waypoints(g, l), end) {
				_, longest := g.Delay(at, next)
				delay += longest
				for _, s := range flows.Append(nil, at, next) {
					loads[s.Link] += d.Rate * float64(s.Part) * float64(l.Weight) / float64(sum)
				}
				at = next
			}
			if d.Color == 2 && delay > classes[1].MaxDelay && sum != 1 {
				t.Errorf("%v takes %v", d.Key, delay)
			}
		}
	}
	for link, load := range loads {
		if math.Abs(load-r.Loads[link]) > 1e-3*(1+load) {
			t.Errorf("link %d carries %v, the result says %v", link, load, r.Loads[link])
		}
	}
	again, err := Solve(t.Context(), g, classes, demands, Options{})
	if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
		t.Errorf("another answer to the same question: %v", err)
	}
}

func waypoints(g *graph.Graph, l te.List) (nodes []int) {
	for _, w := range l.Waypoints {
		node, _ := g.Node(w.Node)
		nodes = append(nodes, node)
	}
	return nodes
}

// A demand that sends nothing has lists beside one that fills links: the engine measures such ones.
func TestNothingSent(t *testing.T) {
	topology, demands := generate.Make(generate.Parameters{Nodes: 8, Links: 44, Seed: 3})
	g := graph.New(topology, graph.Without{})
	for i := range demands {
		demands[i].Rate *= float64(i % 2)
	}
	for _, target := range []float64{0, 0.8} {
		r, err := Solve(t.Context(), g, nil, demands, Options{Target: target})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range demands {
			if len(r.Routing[d.Key]) == 0 {
				t.Errorf("%v has no lists", d)
			}
		}
	}
}
