package optimize

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/te/graph"
)

const (
	// attempts is how often lists are chosen by the prices that the last choice led to.
	attempts = 3
	// few is how many of the cheapest lists are tried before all.
	few = 64
)

// apart finds disjoint lists for the commodities whose class asks for them, and what these carry.
// The flow has to be run: its prices say which lists are cheap, and its bound holds for disjoint
// lists too.
func (s *solver) apart(ctx context.Context, r round, f *flow) (*flow, error) {
	var of []int
	for i, c := range r.commodities {
		if c.class.risks != nil {
			of = append(of, i)
		}
	}
	if len(of) == 0 {
		return f, nil
	}
	var best *flow
	var problems []Problem
	prices, tariff := f.prices, newTariff(s)
	for range attempts {
		next := r
		next.commodities = slices.Clone(r.commodities)
		tariff.set(prices)
		var found []Problem
		for _, i := range of {
			if why := s.separate(tariff, &next.commodities[i]); why != "" {
				found = append(found, Problem{next.commodities[i].Key, why})
			}
		}
		g := newFlow(s, next)
		if err := g.run(ctx); err != nil {
			return nil, err
		}
		if prices = g.prices; best == nil || g.found < best.found {
			best, problems = g, found
		}
	}
	s.result.Problems = append(s.result.Problems, problems...)
	best.bound, best.prices = f.bound, f.prices
	return best, nil
}

// separate chooses the lists that a commodity may have: the cheapest two without a common risk,
// and more of which no two have one. why says what all lists share if there are no two; then it
// chooses two that share least.
func (s *solver) separate(t *tariff, c *commodity) (why string) {
	all := s.shares.nodes + s.links + 1
	for _, most := range []int{min(few, all), all} {
		m := s.menu(t, c, most)
		a, b := m.cheapestPair()
		if b > 0 {
			c.only, c.fewest = m.chosen(c.most, a, b), 2
			return ""
		}
		if most < all && len(m.columns) == most {
			continue
		}
		common, whose := m.common(), "all"
		if len(m.columns) > 1 {
			if a, b = m.closestPair(); len(common) == 0 {
				common, whose = m.risks.Names(m.sets[a].And(m.sets[b])), "those that share least"
			}
			c.only, c.fewest = []int32{m.columns[a].via, m.columns[b].via}, 2
		}
		return "no two lists are disjoint by " + string(c.class.class.Disjoint) + ": " + whose + " have " + strings.Join(common, ", ") + " in common"
	}
	return ""
}

// menu is lists of a commodity, the cheapest first, and their risks.
type menu struct {
	risks   *graph.Risks
	columns []column
	sets    []graph.RiskSet
}

func (s *solver) menu(t *tariff, c *commodity, most int) menu {
	m := menu{risks: c.class.risks, columns: t.cheapest(nil, c, most, 0)}
	w := newWay(s)
	for _, column := range m.columns {
		set := m.risks.Empty()
		w.take(c.from, column.via, c.to)
		for _, l := range w.links {
			m.risks.Add(set, int(l), c.from, c.to)
		}
		m.sets = append(m.sets, set)
	}
	return m
}

// cheapestPair finds the two lists without a common risk that cost least together; b is 0 if there
// are none.
func (m menu) cheapestPair() (a, b int) {
	least := math.Inf(1)
	for i := range m.columns {
		for j := i + 1; j < len(m.columns); j++ {
			cost := m.columns[i].cost + m.columns[j].cost
			if cost >= least {
				break
			}
			if m.sets[i].Common(m.sets[j]) == 0 {
				a, b, least = i, j, cost
			}
		}
	}
	return a, b
}

// closestPair finds the two lists that have the fewest risks in common, the cheapest of them.
func (m menu) closestPair() (a, b int) {
	least := math.MaxInt
	for i := range m.columns {
		for j := i + 1; j < len(m.columns); j++ {
			if n := m.sets[i].Common(m.sets[j]); n < least {
				a, b, least = i, j, n
			}
		}
	}
	return a, b
}

// chosen are two lists, and others that have no risk in common with any.
func (m menu) chosen(most, a, b int) []int32 {
	list, at := []int32{m.columns[a].via, m.columns[b].via}, []int{a, b}
	for i := 0; i < len(m.columns) && len(list) < most; i++ {
		if !slices.ContainsFunc(at, func(j int) bool { return i == j || m.sets[i].Common(m.sets[j]) > 0 }) {
			list, at = append(list, m.columns[i].via), append(at, i)
		}
	}
	return list
}

// common are the risks of all lists.
func (m menu) common() []string {
	all := m.sets[0]
	for _, set := range m.sets {
		all = all.And(set)
	}
	return m.risks.Names(all)
}
