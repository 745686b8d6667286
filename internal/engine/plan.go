// Package engine computes which segment lists headends should have, says why, and what
// happens when links fail.
package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/change"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/optimize"
)

// Options say when a plan changes something. The zero value is valid.
type Options struct {
	Change   change.Options
	Optimize optimize.Options
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
	// a link may reach between them if there is no order without; else 0.
	Steps    int                `json:"steps"`
	Overload float64            `json:"overload,omitempty"`
	Moves    []Move             `json:"moves"`
	Links    []Link             `json:"links"` // the fullest first
	Problems []optimize.Problem `json:"problems,omitempty"`

	// Routing is all lists after the plan, and By the steps that lead there.
	Routing te.Routing    `json:"-"`
	By      []change.Step `json:"-"`

	prices []float64 // of links
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

// Compute finds a plan.
func Compute(ctx context.Context, n te.Network, o Options) (*Plan, error) {
	g := graph.New(n.Topology, graph.Without{})
	o.Optimize.Target = o.Change.Target
	best, err := optimize.Solve(ctx, g, n.Classes, n.Demands, o.Optimize)
	if err != nil {
		return nil, err
	}
	o.Change.Must = slow(g, n, best.Routing)
	choice := change.Choose(g, n.Demands, n.Routing, best.Routing, o.Change)
	steps, overload := change.Steps(g, n.Demands, n.Routing, choice.Routing, choice.Moves)
	p := &Plan{
		Why: choice.Why, Now: choice.Now, Then: choice.Then, Best: best.Utilisation, Bound: best.Bound,
		Steps: len(steps), Overload: overload, Moves: []Move{}, Problems: best.Problems, Routing: choice.Routing, By: steps, prices: best.Prices,
	}
	before, after := loads(g, n.Demands, n.Routing), loads(g, n.Demands, choice.Routing)
	for i, l := range n.Topology.Links {
		if g.Used(i) {
			p.Links = append(p.Links, Link{LinkName(l), l.Capacity, before[i] / l.Capacity, after[i] / l.Capacity})
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

// slow are the demands whose installed lists take longer than their class allows, and whose
// wanted lists do not.
func slow(g *graph.Graph, n te.Network, wanted te.Routing) map[te.Key]bool {
	bounds := map[uint32]time.Duration{}
	for _, c := range n.Classes {
		bounds[c.Color] = c.MaxDelay
	}
	flows := g.Flows()
	within := func(key te.Key, lists []te.List, bound time.Duration) bool {
		ways, _, fate := flows.Ways(key, lists)
		return fate != graph.Nowhere && !slices.ContainsFunc(ways, func(w graph.Way) bool { return w.Longest > bound })
	}
	out := map[te.Key]bool{}
	for _, d := range n.Demands {
		if bound := bounds[d.Color]; bound > 0 && !within(d.Key, n.Routing[d.Key], bound) && within(d.Key, wanted[d.Key], bound) {
			out[d.Key] = true
		}
	}
	return out
}

// move says what a demand's change is.
func (p *Plan) move(g *graph.Graph, n te.Network, key te.Key, before []float64) Move {
	at := slices.IndexFunc(n.Demands, func(d te.Demand) bool { return d.Key == key })
	m := Move{Demand: n.Demands[at], Now: Words(n.Routing[key]), Then: Words(p.Routing[key])}
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
			fullest, m.Away = u, LinkName(l)
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

// LinkName is a link's direction: FROM-TO, with :NAME where it has one.
func LinkName(l te.Link) string {
	if l.Name != "" {
		return l.From + "-" + l.To + ":" + l.Name
	}
	return l.From + "-" + l.To
}

// Words say which lists a demand has, the heaviest first.
func Words(lists []te.List) string {
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
			nodes := make([]string, len(l.Waypoints))
			for j, w := range l.Waypoints {
				nodes[j] = w.Node
			}
			by = "by " + strings.Join(nodes, ", ")
		}
		if words[i] = by; len(lists) > 1 {
			words[i] = fmt.Sprintf("%.0f %% %s", 100*float64(l.Weight)/sum, by)
		}
	}
	return strings.Join(words, "; ")
}
