package optimize

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

// commodity is a demand that lists can carry.
type commodity struct {
	te.Demand
	from, to int
	via      []int32 // nodes that its lists may visit; `to` stands for the IGP's way
	most     int     // lists
}

// round is the demands of a priority. fixed has what is on each link whatever they do, in
// bit/s.
type round struct {
	priority    int
	commodities []commodity
	fixed       []float64
}

// rounds sorts demands by priority, the highest priority first. What no list suits
// goes by the IGP, and is no commodity; neither is what keeps its lists.
func (s *solver) rounds(classes []te.Class, demands []te.Demand) (rounds []round) {
	class := map[uint32]te.Class{}
	for _, c := range classes {
		class[c.Color] = c
	}
	suits := map[uint32]*suitability{}
	byPriority := map[int][]commodity{}
	flows := s.g.Flows()
	for _, d := range sum(demands) {
		if lists, fixed := s.options.Fixed[d.Key]; fixed {
			s.result.Routing[d.Key] = lists
			flows.Load(s.result.Loads, d, lists)
			continue
		}
		c, known := class[d.Color]
		if !known {
			c = te.Class{Color: d.Color}
		}
		if suits[c.Color] == nil {
			suits[c.Color] = newSuitability(s, c)
		}
		from, _ := s.g.Node(d.Headend)
		to, _ := s.g.Node(d.Endpoint)
		via, why := suits[c.Color].lists(from, to)
		if why != "" {
			s.result.Problems = append(s.result.Problems, Problem{d.Key, why})
		}
		switch {
		case from == to || !s.g.Reaches(from, to):
		case why != "":
			s.result.Routing[d.Key] = []te.List{{Weight: 1}}
			flows.Load(s.result.Loads, d, nil)
		default:
			byPriority[c.Priority] = append(byPriority[c.Priority], commodity{
				Demand: d, from: from, to: to, via: via, most: min(cmp.Or(c.MaxLists, srpolicy.MaxSegmentLists), srpolicy.MaxSegmentLists)})
		}
	}
	for priority, list := range byPriority {
		rounds = append(rounds, round{priority: priority, commodities: list})
	}
	slices.SortFunc(rounds, func(a, b round) int { return cmp.Compare(b.priority, a.priority) })
	return rounds
}

// sum joins demands of one key, in the order of keys.
func sum(demands []te.Demand) []te.Demand {
	rates := map[te.Key]float64{}
	for _, d := range demands {
		rates[d.Key] += d.Rate
	}
	list := make([]te.Demand, 0, len(rates))
	for key, rate := range rates {
		list = append(list, te.Demand{Key: key, Rate: rate})
	}
	slices.SortFunc(list, func(a, b te.Demand) int {
		return cmp.Or(strings.Compare(a.Headend, b.Headend), strings.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Color, b.Color))
	})
	return list
}

// suitability says which lists have what a class asks for.
type suitability struct {
	s     *solver
	class te.Class
	clear []bool // by pair: none of its links is one that the class avoids
}

func newSuitability(s *solver, c te.Class) *suitability {
	u := &suitability{s: s, class: c, clear: make([]bool, s.shares.nodes*s.shares.nodes)}
	for i := range u.clear {
		u.clear[i] = true
	}
	for link, users := range s.shares.users {
		a := s.g.Topology.Links[link].Affinity
		if a&c.Exclude == 0 && (c.IncludeAny == 0 || a&c.IncludeAny != 0) {
			continue
		}
		for _, p := range users {
			u.clear[int(p.from)*s.shares.nodes+int(p.to)] = false
		}
	}
	return u
}

// lists are the waypoints of those that suit. why says what speaks against all.
func (u *suitability) lists(from, to int) (via []int32, why string) {
	g, nodes := u.s.g, u.s.g.Topology.Nodes
	if from == to {
		return nil, "headend and endpoint are the same node"
	}
	if !g.Reaches(from, to) {
		return nil, "no path leads there"
	}
	var shortest time.Duration = -1
	affine := false
	for k, node := range nodes {
		if k == from || k != to && (!node.SID.IsValid() || nodes[from].MaxSegments == 1) || !g.Reaches(from, k) || !g.Reaches(k, to) {
			continue
		}
		if !u.clear[from*len(nodes)+k] || !u.clear[k*len(nodes)+to] {
			continue
		}
		affine = true
		_, first := g.Delay(from, k)
		_, second := g.Delay(k, to)
		if d := first + second; u.class.MaxDelay > 0 && d > u.class.MaxDelay {
			if shortest < 0 || d < shortest {
				shortest = d
			}
			continue
		}
		via = append(via, int32(k))
	}
	switch {
	case len(via) > 0:
		return via, ""
	case affine:
		return nil, fmt.Sprintf("the quickest list takes %v, more than max_delay: %v; it goes by the IGP", shortest, u.class.MaxDelay)
	}
	return nil, "each list has a link with an affinity that the class excludes, or without one that it asks for; it goes by the IGP"
}
