package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/culvert-net/culvert/internal/engine"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/engine/simulate"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/change"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// mostDemands is how many demands a page has, the largest ones.
const mostDemands = 200

// OfPlan is the page of a network and a plan for it: now, and after each step. Outcomes are of
// failures; none: it says nothing about failures.
func OfPlan(title string, n te.Network, p *engine.Plan, target float64, outcomes []simulate.Outcome) Page {
	g := graph.New(n.Topology, graph.Without{})
	page := Page{Title: title, Links: n.Topology.Links, Target: target, All: len(n.Demands), Facts: planFacts(p)}
	for _, v := range n.Topology.Nodes {
		page.Nodes = append(page.Nodes, v.Name)
	}
	for _, d := range largest(n.Demands) {
		page.Demands = append(page.Demands, Demand{Demand: d})
	}
	flows, r := g.Flows(), n.Routing
	for i := range len(p.By) + 1 {
		label := "now"
		if i > 0 {
			r, label = change.Apply(r, p.By[i-1]), fmt.Sprintf("after step %d", i)
		}
		page.Frames = append(page.Frames, Frame{Label: label, Used: usedBy(g, n.Demands, r)})
		for j := range page.Demands {
			d := &page.Demands[j]
			d.see(Path{i, engine.Words(n.Topology, r[d.Key]), sharesOf(flows, d.Key, r[d.Key])})
		}
	}
	if len(p.Moves) > 0 {
		page.Tables = append(page.Tables, moves(p))
	}
	if len(outcomes) > 0 {
		page.Tables = append(page.Tables, failures(outcomes))
	}
	return page
}

func planFacts(p *engine.Plan) [][2]string {
	facts := [][2]string{
		{"plan", p.Why},
		{"fullest link", fmt.Sprintf("%s now, %s then; %s if all demands may change; %s is a bound for all lists of two segments",
			change.Percent(p.Now), change.Percent(p.Then), change.Percent(p.Best), change.Percent(p.Bound))},
	}
	if p.Overload > 0 {
		facts = append(facts, [2]string{"steps", fmt.Sprintf("%d; a link can fill to %s, because packets that lead nowhere get a path first", p.Steps, change.Percent(p.Overload))})
	}
	for _, v := range p.Problems {
		facts = append(facts, [2]string{"problem", v.Name() + ": " + v.Why})
	}
	return facts
}

func moves(p *engine.Plan) Table {
	t := Table{Title: "Demands that change", Head: []string{"step", "demand", "rate", "now", "then", "leaves"}}
	for _, m := range p.Moves {
		t.Rows = append(t.Rows, []string{fmt.Sprint(m.Step), m.Name(), netfile.Rate(m.Rate).String(), m.Now, m.Then, m.Away})
	}
	return t
}

func failures(outcomes []simulate.Outcome) Table {
	t := Table{
		Title: "Failures", Head: []string{"failure", "fullest link", "used", "repaired", "lost lists", "without a path"},
		Caption: "What fails alone, the worst first: used is when the IGP has found its new paths, repaired after new lists.",
	}
	outcomes = slices.Clone(outcomes)
	slices.SortStableFunc(outcomes, func(a, b simulate.Outcome) int {
		return cmp.Or(cmp.Compare(len(b.Nowhere), len(a.Nowhere)), cmp.Compare(b.Repaired, a.Repaired), cmp.Compare(b.Utilisation, a.Utilisation))
	})
	for _, o := range outcomes {
		t.Rows = append(t.Rows, []string{o.Failure, o.Link, change.Percent(o.Utilisation), change.Percent(o.Repaired), fmt.Sprint(o.Broken), fmt.Sprint(len(o.Nowhere))})
	}
	return t
}

// largest are the demands that a page has.
func largest(demands []te.Demand) []te.Demand {
	demands = slices.Clone(demands)
	slices.SortStableFunc(demands, func(a, b te.Demand) int { return cmp.Compare(b.Rate, a.Rate) })
	return demands[:min(len(demands), mostDemands)]
}

// usedBy are the utilisations of links.
func usedBy(g *graph.Graph, demands []te.Demand, r te.Routing) []float32 {
	loads, flows := make([]float64, len(g.Topology.Links)), g.Flows()
	for _, d := range demands {
		flows.Load(loads, d, r[d.Key])
	}
	list := make([]float32, len(loads))
	for i, l := range g.Topology.Links {
		if list[i] = float32(loads[i] / l.Capacity); !g.Used(i) {
			list[i] = -1
		}
	}
	return list
}

// see adds a path, if it differs from the last one.
func (d *Demand) see(next Path) {
	if len(next.Shares) == 0 {
		next.Lists = "no path"
	}
	if n := len(d.Paths); n > 0 && d.Paths[n-1].Lists == next.Lists && slices.Equal(d.Paths[n-1].Shares, next.Shares) {
		return
	}
	d.Paths = append(d.Paths, next)
}

// sharesOf are the parts of a demand that links carry, by link.
func sharesOf(flows *graph.Flows, key te.Key, lists []te.List) (shares []Share) {
	ways, parts, _ := flows.Ways(key, lists)
	sum := map[int]float64{}
	for i, w := range ways {
		for _, s := range w.Shares {
			sum[int(s.Link)] += parts[i] * float64(s.Part)
		}
	}
	for _, link := range slices.Sorted(maps.Keys(sum)) {
		shares = append(shares, Share{link, float32(sum[link])})
	}
	return shares
}
