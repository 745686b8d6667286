package optimize

import (
	"math"
	"slices"

	"github.com/culvert-net/culvert/internal/te"
)

const (
	// patience is how many pairs of lists a search compares at most. All pairs of 4,000 lists are fewer.
	patience = 1 << 24
	// spare is what a standby counts by the price of its links: it carries nothing.
	spare = 1e-3
)

// slot is a list that a member needs.
type slot struct {
	of      *member
	standby bool
	weight  float64   // of what it costs
	with    []partner // among the slots before it
}

// partner is a slot whose list must not share what a relation says.
type partner struct {
	slot  int
	r     *relation
	first bool // the partner is of the relation's second member
}

// slots are those of all members.
func (m *mesh) slots() (list []slot) {
	for _, v := range m.members {
		n, spares, weight := 1, 0, 0.0
		if v.c != nil {
			weight = max(v.c.Rate, 1)
			if v.c.class.class.Disjoint != "" {
				n = 2
			}
			if v.c.class.class.Standby != "" {
				spares = 1
			}
		}
		for range n {
			list = append(list, slot{of: v, weight: weight})
		}
		for range spares {
			list = append(list, slot{of: v, standby: true, weight: spare * weight})
		}
	}
	for q := range list {
		for p := range q {
			for _, r := range m.relations {
				if a, b := list[p], list[q]; r.standby == b.standby && !a.standby && (r.a == a.of && r.b == b.of || r.a == b.of && r.b == a.of) {
					list[q].with = append(list[q].with, partner{p, r, r.a != r.b && r.a == b.of})
				}
			}
		}
	}
	return list
}

// search looks for the columns of all slots that share least, and of those for the cheapest.
type search struct {
	slots  []slot
	rest   []float64 // what the slots from one on cost at least
	chosen []int
	left   int // pairs that it may compare

	best   []int
	shared int
	cost   float64
}

// search chooses lists of all members, and returns how many risks they share that they must not.
func (m *mesh) search() (shared int) {
	s := &search{slots: m.slots(), left: patience, shared: math.MaxInt, cost: math.Inf(1)}
	s.chosen, s.rest = make([]int, len(s.slots)), make([]float64, len(s.slots)+1)
	for i := len(s.slots) - 1; i >= 0; i-- {
		s.rest[i] = s.rest[i+1] + s.slots[i].weight*s.slots[i].of.columns[0].cost
	}
	s.try(0, 0, 0)
	for _, v := range m.members {
		v.lists = nil
	}
	for i, at := range s.best {
		switch v := s.slots[i].of; {
		case s.slots[i].standby:
			v.standby = at
		case !slices.Contains(v.lists, at):
			v.lists = append(v.lists, at)
		}
	}
	return s.shared
}

// try chooses the columns of the slots from one on, where those before share and cost so much.
func (s *search) try(at, shared int, cost float64) {
	if at == len(s.slots) {
		s.best, s.shared, s.cost = slices.Clone(s.chosen), shared, cost
		return
	}
	this := &s.slots[at]
	for i, column := range this.of.columns {
		then := cost + this.weight*column.cost
		if s.better(shared, then+s.rest[at+1]) && (s.left > 0 || s.best == nil) {
			if n := shared + s.common(this, i); s.better(n, then+s.rest[at+1]) {
				s.chosen[at] = i
				s.try(at+1, n, then)
			}
			continue
		}
		return // the others cost more
	}
}

func (s *search) better(shared int, cost float64) bool {
	return shared < s.shared || shared == s.shared && cost < s.cost
}

// common is how many risks a column of a slot shares with the columns chosen before.
func (s *search) common(this *slot, column int) (n int) {
	for _, p := range this.with {
		s.left--
		if p.first {
			n += p.r.common(column, s.chosen[p.slot])
		} else {
			n += p.r.common(s.chosen[p.slot], column)
		}
	}
	return n
}

// extend gives members more lists, one after the other, that share nothing with what is chosen but
// what that shares anyway.
func (m *mesh) extend() {
	next := make([]int, len(m.members))
	for more := true; more; {
		more = false
		for i, v := range m.members {
			most := mostColumns
			if v.c == nil || v.c.class.class.Disjoint != "" {
				most = 0
				if v.c != nil {
					most = v.c.most
				}
			}
			for ; next[i] < len(v.columns) && len(v.lists) < most; next[i]++ {
				if !slices.Contains(v.lists, next[i]) && m.fits(v, next[i]) {
					v.lists, more = append(v.lists, next[i]), true
					break
				}
			}
		}
	}
}

// fits says whether a member may have one more column.
func (m *mesh) fits(v *member, column int) bool {
	return !slices.ContainsFunc(m.relations, func(r *relation) bool {
		switch {
		case r.standby:
			return r.a == v && r.common(column, v.standby) > 0
		case r.a == v:
			return slices.ContainsFunc(r.b.lists, func(i int) bool { return r.common(column, i) > 0 })
		case r.b == v:
			return slices.ContainsFunc(r.a.lists, func(i int) bool { return r.common(i, column) > 0 })
		}
		return false
	})
}

// absent says which demands of groups are not there.
func (s *solver) absent(demands []te.Demand) {
	for _, group := range s.options.Groups {
		for _, key := range group.Demands {
			if !slices.ContainsFunc(demands, func(d te.Demand) bool { return d.Key == key }) {
				s.result.Problems = append(s.result.Problems, Problem{key, "group " + group.Name + ": there is no such demand, in the file or at a headend"})
			}
		}
	}
}
