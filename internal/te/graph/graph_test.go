package graph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// both has a link in both directions: "a b metric delay/ms".
func both(texts ...string) (t te.Topology) {
	for _, text := range texts {
		var l te.Link
		var ms int
		if _, err := fmt.Sscan(text, &l.From, &l.To, &l.Metric, &ms); err != nil {
			panic(err)
		}
		l.Delay, l.Capacity = time.Duration(ms)*time.Millisecond, 1e9
		back := l
		back.From, back.To = l.To, l.From
		t.Links = append(t.Links, l, back)
		for _, name := range []string{l.From, l.To} {
			if !slices.ContainsFunc(t.Nodes, func(n te.Node) bool { return n.Name == name }) {
				t.Nodes = append(t.Nodes, te.Node{Name: name})
			}
		}
	}
	return t
}

// sharesOf are the shares of a flow, in words.
func sharesOf(g *Graph, from, to string) string {
	a, _ := g.Node(from)
	b, _ := g.Node(to)
	var words []string
	for _, s := range g.Flows().Append(nil, a, b) {
		x, y := g.Ends(int(s.Link))
		words = append(words, fmt.Sprintf("%s%s:%.4g", g.Topology.Nodes[x].Name, g.Topology.Nodes[y].Name, s.Part))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func TestShares(t *testing.T) {
	// a to d: by b, by c, and by two links from c.
	diamond := both("a b 1 1", "a c 1 2", "b d 1 1", "c d 1 2", "c d 1 5", "a d 5 0")
	oneWay := both("a b 1 1")
	oneWay.Links = append(oneWay.Links[:1], te.Link{From: "b", To: "nowhere", Metric: 1}, te.Link{From: "a", To: "a", Metric: 1})
	for name, tt := range map[string]struct {
		topology te.Topology
		without  Without
		from, to string
		want     string
	}{
		"equal paths":                    {diamond, Without{}, "a", "d", "ab:0.5 ac:0.5 bd:0.5 cd:0.25 cd:0.25"},
		"the way back shares otherwise":  {diamond, Without{}, "d", "a", "ba:0.3333 ca:0.6667 db:0.3333 dc:0.3333 dc:0.3333"},
		"without a node":                 {diamond, Without{Nodes: []int{1}}, "a", "d", "ac:1 cd:0.5 cd:0.5"},
		"without a link":                 {diamond, Without{Links: []int{0}}, "a", "d", "ac:1 cd:0.5 cd:0.5"},
		"the other direction goes too":   {diamond, Without{Links: []int{1}}, "a", "b", "ac:1 cd:0.5 cd:0.5 db:1"},
		"the long way":                   {diamond, Without{Nodes: []int{1, 2}}, "a", "d", "ad:1"},
		"itself":                         {diamond, Without{}, "a", "a", ""},
		"no link has another direction":  {oneWay, Without{}, "a", "b", ""},
		"a node that lost all its links": {diamond, Without{Nodes: []int{3}}, "a", "d", ""},
	} {
		g := New(tt.topology, tt.without)
		if got := sharesOf(g, tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %s to %s: %q, want %q", name, tt.from, tt.to, got, tt.want)
		}
	}
}

func TestDelay(t *testing.T) {
	g := New(both("a b 1 1", "a c 1 2", "b d 1 1", "c d 1 2", "c d 1 5", "a e 1 1"), Without{})
	a, _ := g.Node("a")
	d, _ := g.Node("d")
	// By b 2 ms; by c 4 and 7 ms, which share what c gets.
	if mean, longest := g.Delay(a, d); mean != 3750*time.Microsecond || longest != 7*time.Millisecond {
		t.Errorf("from a to d: %v, at most %v", mean, longest)
	}
	if got := g.Distance(a, d); got != 2 {
		t.Errorf("distance %d, want 2", got)
	}
	if len(g.Next(a, d)) != 2 || !g.Reaches(a, d) {
		t.Errorf("next hops %v", g.Next(a, d))
	}
	lost := New(g.Topology, Without{Nodes: []int{a}})
	if e, known := lost.Node("e"); !known || lost.Reaches(e, d) {
		t.Error("e reaches d through a node that is lost")
	}
	if _, known := g.Node("z"); known {
		t.Error("z is no node")
	}
}

// What a node gets leaves it, and what is sent arrives, in random graphs with equal paths.
func TestFlowIsConserved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		n := 3 + r.IntN(10)
		var texts []string
		for i := range 3 * n {
			texts = append(texts, fmt.Sprintf("n%d n%d %d 1", i%n, r.IntN(n), 1+r.IntN(3)))
		}
		g := New(both(texts...), Without{})
		flows := g.Flows()
		for from := range g.Topology.Nodes {
			for to := range g.Topology.Nodes {
				balance := make([]float64, len(g.Topology.Nodes))
				shares := flows.Append(nil, from, to)
				for _, s := range shares {
					a, b := g.Ends(int(s.Link))
					balance[a], balance[b] = balance[a]-float64(s.Part), balance[b]+float64(s.Part)
					if d := g.Distance(a, to); d != g.Distance(b, to)+uint64(g.Topology.Links[s.Link].Metric) {
						t.Fatalf("link %d of a flow to %d is on no shortest path", s.Link, to)
					}
				}
				if from != to && g.Reaches(from, to) {
					balance[from], balance[to] = balance[from]+1, balance[to]-1
				}
				for node, v := range balance {
					if math.Abs(v) > 1e-5 {
						t.Fatalf("flow %d to %d: %v stays in node %d", from, to, v, node)
					}
				}
			}
		}
	}
}

func TestWays(t *testing.T) {
	g := New(both("a b 1 1", "b d 1 1", "a c 2 5", "c d 2 5", "c d 9 1", "e f 1 1"), Without{})
	list := func(weight uint32, waypoints ...te.Waypoint) te.List {
		return te.List{Weight: weight, Waypoints: waypoints}
	}
	slow := 2*4 + 1 // link c to d of metric 9, plus 1
	for name, tt := range map[string]struct {
		from, to string
		lists    []te.List
		want     string
		fate     Fate
	}{
		"no list":                 {"a", "d", nil, "1x2ms", ByIGP},
		"the IGP's way":           {"a", "d", []te.List{list(1)}, "1x2ms", ByLists},
		"by a node":               {"a", "d", []te.List{list(1, te.Waypoint{Node: "c"})}, "1x10ms", ByLists},
		"by a link":               {"a", "d", []te.List{list(1, te.Waypoint{Node: "c", Link: slow})}, "1x6ms", ByLists},
		"there and back":          {"a", "a", []te.List{list(1, te.Waypoint{Node: "b"})}, "1x2ms", ByLists},
		"by weight":               {"a", "d", []te.List{list(3), list(1, te.Waypoint{Node: "c"})}, "0.75x2ms 0.25x10ms", ByLists},
		"weight of a broken list": {"a", "d", []te.List{list(3, te.Waypoint{Node: "e"}), list(1, te.Waypoint{Node: "c"})}, "1x10ms", ByLists},
		"weight 0":                {"a", "d", []te.List{list(0), list(1, te.Waypoint{Node: "c"})}, "1x10ms", ByLists},
		"no such node":            {"a", "d", []te.List{list(1, te.Waypoint{Node: "z"})}, "1x2ms", ByIGP},
		"a link of another node":  {"a", "d", []te.List{list(1, te.Waypoint{Node: "b", Link: slow})}, "1x2ms", ByIGP},
		"no such link":            {"a", "d", []te.List{list(1, te.Waypoint{Node: "c", Link: 99})}, "1x2ms", ByIGP},
		"no path":                 {"a", "e", []te.List{list(1)}, "", Nowhere},
		"no such endpoint":        {"a", "z", []te.List{list(1)}, "", Nowhere},
	} {
		ways, parts, fate := g.Flows().Ways(te.Key{Headend: tt.from, Endpoint: tt.to}, tt.lists)
		var words []string
		for i, w := range ways {
			words = append(words, fmt.Sprintf("%.4gx%v", parts[i], w.Delay))
		}
		if got := strings.Join(words, " "); got != tt.want || fate != tt.fate {
			t.Errorf("%s: %q, fate %d, want %q, %d", name, got, fate, tt.want, tt.fate)
		}
	}
	loads := make([]float64, len(g.Topology.Links))
	if link, _ := g.Fullest(loads); link != -1 {
		t.Errorf("nothing is sent, and link %d is the fullest", link)
	}
	g.Flows().Load(loads, te.Demand{Key: te.Key{Headend: "a", Endpoint: "d"}, Rate: 4e8}, []te.List{list(3), list(1, te.Waypoint{Node: "c"})})
	if link, u := g.Fullest(loads); link != 0 || math.Abs(u-0.3) > 1e-9 || math.Abs(loads[4]-1e8) > 1 {
		t.Errorf("link %d is used to %v; loads %v", link, u, loads)
	}
}
