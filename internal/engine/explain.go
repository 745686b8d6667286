package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/optimize"
	"github.com/culvert-net/culvert/internal/te/repair"
)

// Explanation says why a demand goes where it goes.
type Explanation struct {
	te.Demand
	Why string `json:"why"`
	// Now and Then are its lists before and after the plan.
	Now  []ListReport `json:"now"`
	Then []ListReport `json:"then,omitempty"`
	// Repair is what its headend can take at once when it loses the link by which all lists leave
	// it; nil: no link is all lists', or it has a standby.
	Repair *RepairReport `json:"repair,omitempty"`
	// Standby is what its headend holds ready where its class asks for it.
	Standby *StandbyReport `json:"standby,omitempty"`
	// Groups say which demands it has to be disjoint from.
	Groups []string `json:"groups,omitempty"`
}

// StandbyReport is a list that shares nothing of a kind with those in use, or what it shares.
type StandbyReport struct {
	Disjoint te.Disjoint `json:"disjoint"`
	List     string      `json:"list,omitempty"`
	Common   []string    `json:"common,omitempty"`
}

// String says both.
func (s *StandbyReport) String() string {
	switch common := strings.Join(s.Common, ", "); {
	case s.List == "":
		return "none: all lists share " + common
	case common != "":
		return fmt.Sprintf("%s, which shares least: %s", s.List, common)
	}
	return fmt.Sprintf("%s, disjoint by %s", s.List, s.Disjoint)
}

// StandbyOf is the standby of a demand behind its lists; nil: its class asks for none.
func StandbyOf(b *optimize.Standbys, t te.Topology, key te.Key, lists []te.List) *StandbyReport {
	s, asked := b.Of(key, lists)
	if !asked {
		return nil
	}
	r := &StandbyReport{Disjoint: s.Kind, Common: s.Common}
	if !s.None {
		r.List = Words(t, []te.List{s.List})
	}
	return r
}

// RepairReport is a repair list, or why the headend has none.
type RepairReport struct {
	Link string `json:"link"` // that is lost
	List string `json:"list,omitempty"`
	Why  string `json:"why,omitempty"`
}

// ListReport is a list of a demand.
type ListReport struct {
	List string  `json:"list"` // in words: "by r3"
	Part float64 `json:"part"` // of the demand
	// Delay is the mean of the equal paths that it takes, and Longest that of the longest.
	Delay   time.Duration `json:"delay"`
	Longest time.Duration `json:"longest"`
	// Bottleneck is the fullest link on it, and Utilisation that link's.
	Bottleneck  string  `json:"bottleneck"`
	Utilisation float64 `json:"utilisation"`
	// Price is what a bit/s by the list costs where the network is full, relative to the
	// cheapest of all lists of the demand, up to 100; 0: the network is full nowhere on its ways.
	Price float64 `json:"price"`
}

// Explain finds why a demand goes where it goes after a plan.
func (p *Plan) Explain(n te.Network, key te.Key) (*Explanation, error) {
	at := slices.IndexFunc(n.Demands, func(d te.Demand) bool { return d.Key == key })
	if at < 0 {
		return nil, fmt.Errorf("there is no demand from %s to %s of color %d", key.Headend, key.Endpoint, key.Color)
	}
	g := graph.New(n.Topology, graph.Without{})
	e := &Explanation{Demand: n.Demands[at], Now: p.reports(g, n, key, n.Routing)}
	e.Why = "it stays: " + p.Why
	if why, held := p.held[key]; held {
		e.Why = "it keeps its lists: " + why
	}
	if i := slices.IndexFunc(p.Moves, func(m Move) bool { return m.Key == key }); i >= 0 {
		m := p.Moves[i]
		e.Then = p.reports(g, n, key, p.Routing)
		e.Why = fmt.Sprintf("it changes in step %d of %d: %s", m.Step, p.Steps, p.Why)
		if m.Away != "" {
			e.Why += "; the fullest link that it leaves is " + m.Away
		}
	}
	e.Standby = StandbyOf(optimize.NewStandbys(g, n.Classes), n.Topology, key, p.Routing[key])
	if r, needed := repair.Of(g, key, p.Routing[key]); needed && (e.Standby == nil || e.Standby.List == "") {
		e.Repair = &RepairReport{Link: n.Topology.Links[r.Link].Direction(), Why: r.Why}
		if r.Why == "" {
			e.Repair.List = Words(n.Topology, []te.List{r.List})
		}
	}
	for _, group := range n.Groups {
		if slices.Contains(group.Demands, key) {
			var others []string
			for _, other := range group.Demands {
				if other != key {
					others = append(others, other.Name())
				}
			}
			e.Groups = append(e.Groups, fmt.Sprintf("%s: disjoint by %s from %s", group.Name, group.Disjoint, strings.Join(others, ", ")))
		}
	}
	for _, problem := range p.Problems {
		if problem.Key == key {
			e.Why += "; " + problem.Why
		}
	}
	return e, nil
}

// reports are of a demand's lists in a routing of all.
func (p *Plan) reports(g *graph.Graph, n te.Network, key te.Key, r te.Routing) (list []ListReport) {
	all, flows := loads(g, n.Demands, r), g.Flows()
	cheapest := p.cheapest(g, key)
	lists := r[key]
	if len(lists) == 0 {
		lists = []te.List{{Weight: 1}}
	}
	var sum float64
	for _, l := range lists {
		sum += float64(l.Weight)
	}
	for _, l := range lists {
		w, leads := flows.Way(key, l)
		if !leads {
			list = append(list, ListReport{List: Words(n.Topology, []te.List{l}), Bottleneck: "it leads nowhere"})
			continue
		}
		v := ListReport{List: Words(n.Topology, []te.List{l}), Part: float64(l.Weight) / sum, Delay: w.Delay, Longest: w.Longest}
		for _, s := range w.Shares {
			link := n.Topology.Links[s.Link]
			if u := all[s.Link] / link.Capacity; u > v.Utilisation {
				v.Utilisation, v.Bottleneck = u, link.Direction()
			}
		}
		if cheapest > 0 {
			v.Price = min(p.price(w)/cheapest, 100)
		}
		list = append(list, v)
	}
	return list
}

// price is what a bit/s costs by a way; 0 where the optimiser had nothing to place.
func (p *Plan) price(w graph.Way) (sum float64) {
	if len(p.prices) == 0 {
		return 0
	}
	for _, s := range w.Shares {
		sum += p.prices[s.Link] * float64(s.Part)
	}
	return sum
}

// cheapest is the least price of all lists of one waypoint at most.
func (p *Plan) cheapest(g *graph.Graph, key te.Key) float64 {
	flows := g.Flows()
	w, _ := flows.Way(key, te.List{})
	least := p.price(w)
	if from, _ := g.Node(key.Headend); g.Topology.Nodes[from].MaxSegments == 1 {
		return least // it pushes the endpoint's segment, and none before it
	}
	var waypoints []te.Waypoint
	for _, node := range g.Topology.Nodes {
		if node.SID.IsValid() {
			waypoints = append(waypoints, te.Waypoint{Node: node.Name})
		}
	}
	for i, l := range g.Topology.Links {
		if l.SID.IsValid() && l.From != key.Headend {
			waypoints = append(waypoints, te.Waypoint{Node: l.From, Link: i + 1})
		}
	}
	for _, at := range waypoints {
		if w, leads := flows.Way(key, te.List{Waypoints: []te.Waypoint{at}}); leads {
			least = min(least, p.price(w))
		}
	}
	return least
}
