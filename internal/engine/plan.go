// Package engine computes which segment lists headends should have, says why, and what
// happens when links fail.
package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/change"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/optimize"
)

// Options say what a plan may change, and when. The zero value is valid.
type Options struct {
	// Target is the utilisation up to which nothing has to change: 0.8 is 80 %.
	Target float64
	// Most is how many demands may change; 0: 20.
	Most int
	// Held are demands that keep their lists, and why.
	Held map[te.Key]string
	// OnlyBroken holds all demands but those whose lists lead nowhere, or take too long.
	OnlyBroken bool
}

// Plan is what should change, and what that does.
type Plan struct {
	// Why says why something changes, or nothing does.
	Why string `json:"why"`
	// Now and Then are the largest utilisations before and after: 1 is full. Best is what the
	// optimiser reaches if all demands may change, and Bound what no lists of two segments are
	// below.
	Now   float64 `json:"now"`
	Then  float64 `json:"then"`
	Best  float64 `json:"best"`
	Bound float64 `json:"bound"`
	// Steps is how many there are, one behind the other. Overload is the utilisation that
	// a link may reach between them where packets that lead nowhere get a path without room; else 0.
	Steps    int     `json:"steps"`
	Overload float64 `json:"overload,omitempty"`
	// Left are the demands that keep their lists, because no order of steps has room for their change.
	Left     []te.Key           `json:"left,omitempty"`
	Moves    []Move             `json:"moves"`
	Links    []Link             `json:"links"` // the fullest first
	Problems []optimize.Problem `json:"problems,omitempty"`

	// Routing is all lists after the plan, and By the steps that lead there.
	Routing te.Routing    `json:"-"`
	By      []change.Step `json:"-"`

	prices []float64 // of links
	held   map[te.Key]string
}

// Move is a demand that gets other lists.
type Move struct {
	te.Demand
	Now  string `json:"now"` // lists in words: "60 % by r3, 40 % by the IGP"
	Then string `json:"then"`
	// Away is the fullest of the links that it leaves.
	Away string `json:"away,omitempty"`
	Step int    `json:"step"` // in which it has all of its lists, from 1 on
}

// Link is one direction of a link, and its utilisation.
type Link struct {
	Link     string  `json:"link"`
	Capacity float64 `json:"capacity"` // bit/s
	Now      float64 `json:"now"`
	Then     float64 `json:"then"`
}

// aim is how far below the target changes bring the largest utilisation, relative to it.
const aim = 0.9

// Compute finds a plan.
func Compute(ctx context.Context, n te.Network, o Options) (*Plan, error) {
	g := graph.New(n.Topology, graph.Without{})
	fixed := o.fixed(g, n)
	best, err := optimize.Solve(ctx, g, n.Classes, n.Demands, optimize.Options{Target: aim * o.Target, Groups: n.Groups, Fixed: fixed})
	if err != nil {
		return nil, err
	}
	best.Problems = append(best.Problems, stranded(g, n, fixed)...)
	must := repaired(g, n, best.Routing)
	choice := change.Choose(g, n.Demands, n.Routing, best.Routing, change.Options{Target: o.Target, Aim: aim * o.Target, Most: o.Most, Must: must, Groups: n.Groups})
	by := change.Steps(g, n.Demands, n.Routing, choice.Routing, choice.Moves, astray(g, n.Demands, n.Routing, nil), n.Groups)
	if len(by.Left) > 0 {
		by = choice.Keep(g, n.Demands, n.Routing, by, must)
	}
	p := &Plan{
		Why: choice.Why, Now: choice.Now, Then: choice.Then, Best: best.Utilisation, Bound: best.Bound,
		Steps: len(by.Steps), Overload: by.Overload, Left: by.Left, Moves: []Move{}, Problems: best.Problems, Routing: choice.Routing, By: by.Steps, prices: best.Prices, held: o.Held,
	}
	before, after := loads(g, n.Demands, n.Routing), loads(g, n.Demands, choice.Routing)
	for i, l := range n.Topology.Links {
		if g.Used(i) {
			p.Links = append(p.Links, Link{l.Direction(), l.Capacity, before[i] / l.Capacity, after[i] / l.Capacity})
		}
	}
	slices.SortStableFunc(p.Links, func(a, b Link) int {
		if x, y := max(a.Now, a.Then), max(b.Now, b.Then); x != y {
			if x > y {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Link, b.Link)
	})
	for _, key := range choice.Moves {
		p.Moves = append(p.Moves, p.move(g, n, key, before))
	}
	return p, nil
}

// fixed are the demands that keep their lists.
func (o Options) fixed(g *graph.Graph, n te.Network) te.Routing {
	r, broken := te.Routing{}, broken(g, n)
	for _, d := range n.Demands {
		if _, held := o.Held[d.Key]; held || o.OnlyBroken && !broken[d.Key] {
			r[d.Key] = n.Routing[d.Key]
		}
	}
	return r
}

// stranded are problems of the demands that keep their lists, and that nothing leads to their
// endpoints: the optimiser says it of the others.
func stranded(g *graph.Graph, n te.Network, fixed te.Routing) (list []optimize.Problem) {
	flows := g.Flows()
	for _, d := range n.Demands {
		if lists, kept := fixed[d.Key]; kept {
			if _, _, fate := flows.Ways(d.Key, lists); fate == graph.Nowhere {
				list = append(list, optimize.Problem{Key: d.Key, Why: "no path leads there"})
			}
		}
	}
	return list
}

// broken are the demands that have a list which leads nowhere, or takes longer than their
// class allows, and those whose lists fail with what they must not fail with.
func broken(g *graph.Graph, n te.Network) map[te.Key]bool {
	out := astray(g, n.Demands, n.Routing, nil)
	maps.Copy(out, astray(g, n.Demands, n.Routing, bounds(n.Classes)))
	for key := range lacking(g, n, n.Routing) {
		out[key] = true
	}
	return out
}

// lacking are the demands whose lists fail together, or with lists of their group, although they must
// not, or that leave no disjoint list for a standby: with how many failures are to blame.
func lacking(g *graph.Graph, n te.Network, routing te.Routing) map[te.Key]int {
	out, standbys := map[te.Key]int{}, optimize.NewStandbys(g, n.Classes)
	for key, common := range g.Together(n.Classes, n.Groups, n.Demands, routing) {
		out[key] = len(common)
	}
	for _, d := range n.Demands {
		if s, asked := standbys.Of(d.Key, routing[d.Key]); asked && len(s.Common) > 0 {
			out[d.Key] += len(s.Common)
		}
	}
	return out
}

// repaired are the demands that are broken, and better with the wanted lists.
func repaired(g *graph.Graph, n te.Network, wanted te.Routing) map[te.Key]bool {
	out := map[te.Key]bool{}
	for _, bounds := range []map[uint32]time.Duration{nil, bounds(n.Classes)} {
		then := astray(g, n.Demands, wanted, bounds)
		for key := range astray(g, n.Demands, n.Routing, bounds) {
			if !then[key] {
				out[key] = true
			}
		}
	}
	then := lacking(g, n, wanted)
	for key, now := range lacking(g, n, n.Routing) {
		if then[key] < now {
			out[key] = true
		}
	}
	return out
}

// bounds are the delays that colors allow.
func bounds(classes []te.Class) map[uint32]time.Duration {
	out := map[uint32]time.Duration{}
	for _, c := range classes {
		out[c.Color] = c.MaxDelay
	}
	return out
}

// astray are the demands that have a list which leads nowhere, or takes longer than the bound of
// their color where there is one.
func astray(g *graph.Graph, demands []te.Demand, r te.Routing, bounds map[uint32]time.Duration) map[te.Key]bool {
	flows, out := g.Flows(), map[te.Key]bool{}
	for _, d := range demands {
		lists, bound := r[d.Key], bounds[d.Color]
		if len(lists) == 0 {
			lists = []te.List{{Weight: 1}}
		}
		if slices.ContainsFunc(lists, func(l te.List) bool {
			w, leads := flows.Way(d.Key, l)
			return !leads || bound > 0 && w.Longest > bound
		}) {
			out[d.Key] = true
		}
	}
	return out
}

// move says what a demand's change is.
func (p *Plan) move(g *graph.Graph, n te.Network, key te.Key, before []float64) Move {
	at := slices.IndexFunc(n.Demands, func(d te.Demand) bool { return d.Key == key })
	m := Move{Demand: n.Demands[at], Now: Words(n.Topology, n.Routing[key]), Then: Words(n.Topology, p.Routing[key])}
	for i, s := range p.By {
		if _, changes := s.Lists[key]; changes {
			m.Step = i + 1
		}
	}
	old, new := make([]float64, len(before)), make([]float64, len(before))
	g.Flows().Load(old, m.Demand, n.Routing[key])
	g.Flows().Load(new, m.Demand, p.Routing[key])
	var fullest float64
	for i, l := range n.Topology.Links {
		if u := before[i] / l.Capacity; old[i] > new[i] && u > fullest {
			fullest, m.Away = u, l.Direction()
		}
	}
	return m
}

// loads are of all links, in bit/s.
func loads(g *graph.Graph, demands []te.Demand, r te.Routing) []float64 {
	loads, flows := make([]float64, len(g.Topology.Links)), g.Flows()
	for _, d := range demands {
		flows.Load(loads, d, r[d.Key])
	}
	return loads
}

// Words say which lists a demand has, the heaviest first. A link is FROM-TO: packets leave FROM by
// it.
func Words(t te.Topology, lists []te.List) string {
	if len(lists) == 0 {
		return "the IGP's way"
	}
	lists = slices.Clone(lists)
	slices.SortStableFunc(lists, func(a, b te.List) int { return int(b.Weight) - int(a.Weight) })
	var sum float64
	for _, l := range lists {
		sum += float64(l.Weight)
	}
	words := make([]string, len(lists))
	for i, l := range lists {
		by := "the IGP's way"
		if len(l.Waypoints) > 0 {
			names := make([]string, len(l.Waypoints))
			for j, w := range l.Waypoints {
				if names[j] = w.Node; w.Link > 0 {
					names[j] = t.Links[w.Link-1].Direction()
				}
			}
			by = "by " + strings.Join(names, ", ")
		}
		if words[i] = by; len(lists) > 1 {
			words[i] = fmt.Sprintf("%.0f %% %s", 100*float64(l.Weight)/sum, by)
		}
	}
	return strings.Join(words, "; ")
}
