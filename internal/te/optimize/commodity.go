package optimize

import (
	"cmp"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

// commodity is a demand that lists can carry.
type commodity struct {
	te.Demand
	from, to int
	class    *suitability
	most     int     // lists
	only     []int32 // that it may have; nil: all
	fewest   int     // lists, where only has as many
}

// suits says whether a list has what the class asks for.
func (c *commodity) suits(via int32) bool { return c.class.suits(c.from, via, c.to) }

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
		why := suits[c.Color].problem(from, to)
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
				Demand: d, from: from, to: to, class: suits[c.Color], most: min(cmp.Or(c.MaxLists, srpolicy.MaxSegmentLists), srpolicy.MaxSegmentLists)})
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
