package optimize

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

const (
	// attempts is how often lists are chosen by the prices that the last choice led to.
	attempts = 3
	// few is how many of the cheapest lists are tried before all.
	few = 64
)

// apart finds lists for the commodities whose class or group asks for disjoint ones, and what these
// carry. The flow has to be run: its prices say which lists are cheap, and its bound holds for
// disjoint lists too. Below the target the quick ones are cheap, if links stay below it by them.
func (s *solver) apart(ctx context.Context, r round, f *flow) (*flow, error) {
	clusters := s.clusters(r)
	if len(clusters) == 0 {
		return f, nil
	}
	var best *flow
	var problems []Problem
	prices, tariff, quick := f.prices, newTariff(s), f.found <= s.options.Target
	for left := attempts; left > 0; left-- {
		next, by := r, tariff
		next.commodities = slices.Clone(r.commodities)
		if quick {
			by = s.delays
		} else {
			tariff.set(prices)
		}
		var found []Problem
		for _, c := range clusters {
			found = append(found, s.separate(by, next, c)...)
		}
		g := newFlow(s, next)
		if err := g.run(ctx); err != nil {
			return nil, err
		}
		if quick && g.found > s.options.Target {
			quick = false // by prices, then
			continue
		}
		if prices = g.prices; best == nil || g.found < best.found {
			best, problems = g, found
		}
		if quick {
			break
		}
	}
	s.result.Problems = append(s.result.Problems, problems...)
	best.bound, best.prices = f.bound, f.prices
	return best, nil
}

// cluster is commodities whose lists depend on each other's, by their numbers, and the groups that
// make it so.
type cluster struct {
	of     []int
	groups []te.Group
}

// clusters are those of a round.
func (s *solver) clusters(r round) (list []cluster) {
	at, in := map[te.Key]int{}, make([]int, len(r.commodities)) // by commodity: its cluster, from 1 on
	for i, c := range r.commodities {
		if at[c.Key] = i; c.class.class.Disjoint != "" || c.class.class.Standby != "" {
			list = append(list, cluster{of: []int{i}})
			in[i] = len(list)
		}
	}
	for _, group := range s.options.Groups {
		list = append(list, cluster{groups: []te.Group{group}})
		n := len(list)
		for _, key := range group.Demands {
			i, has := at[key]
			switch {
			case !has || in[i] == n:
			case in[i] == 0:
				in[i], list[n-1].of = n, append(list[n-1].of, i)
			default: // the other cluster joins this one
				other := &list[in[i]-1]
				list[n-1].of, list[n-1].groups = append(list[n-1].of, other.of...), append(list[n-1].groups, other.groups...)
				for _, j := range other.of {
					in[j] = n
				}
				*other = cluster{}
			}
		}
	}
	return slices.DeleteFunc(list, func(c cluster) bool { return len(c.of) == 0 })
}

// separate chooses the lists that the commodities of a cluster may have: the cheapest without a common
// risk, and more that have none with any of those. Where there are no such lists it takes those that
// share least, and says so.
func (s *solver) separate(t *tariff, r round, c cluster) []Problem {
	var m *mesh
	all := s.shares.nodes + s.links + 1
	for _, most := range []int{min(few, all), all} {
		m = s.mesh(t, r, c, most)
		if len(m.relations) == 0 {
			return nil
		}
		if m.search() == 0 || !slices.ContainsFunc(m.members, func(v *member) bool { return len(v.columns) == most }) {
			break
		}
	}
	problems := m.problems()
	m.extend()
	for _, v := range m.members {
		if v.c == nil {
			continue
		}
		for _, i := range v.lists {
			v.c.only = append(v.c.only, v.columns[i].via)
		}
		if v.c.class.class.Disjoint != "" {
			v.c.fewest = min(len(v.lists), 2)
		}
	}
	return problems
}

// mesh is the demands of a cluster, and what their lists must not share.
type mesh struct {
	members   []*member
	relations []*relation
}

// member is a demand with the lists that it may have, the cheapest first.
type member struct {
	key     te.Key
	c       *commodity // nil: it keeps its lists, which are one column
	columns []column
	sets    map[te.Disjoint][]graph.RiskSet // by column
	lists   []int                           // columns that are chosen
	standby int                             // the column that is left for a standby, where its class asks for one
}

// relation is what lists of two members must not share, two of one, or those of one and its standby.
type relation struct {
	a, b    *member
	kind    te.Disjoint
	standby bool
	group   string
	risks   *graph.Risks
	but     graph.RiskSet // what they may share
}

// common is how many risks the lists of two columns must not have in common, and do.
func (r *relation) common(i, j int) int {
	return r.a.sets[r.kind][i].Common(r.b.sets[r.kind][j], r.but)
}

func (s *solver) mesh(t *tariff, r round, c cluster, most int) *mesh {
	m, at := &mesh{}, map[te.Key]*member{}
	add := func(v *member) {
		v.sets = map[te.Disjoint][]graph.RiskSet{}
		m.members, at[v.key] = append(m.members, v), v
	}
	for _, i := range c.of {
		v := &r.commodities[i]
		add(&member{key: v.Key, c: v, columns: t.cheapest(nil, v, most, 0)})
	}
	for _, v := range m.members {
		if kind := v.c.class.class.Disjoint; kind != "" {
			s.relate(m, relation{a: v, b: v, kind: kind})
		}
		if kind := v.c.class.class.Standby; kind != "" {
			s.relate(m, relation{a: v, b: v, kind: kind, standby: true})
		}
	}
	for _, group := range c.groups {
		for i, key := range group.Demands {
			if lists, placed := s.result.Routing[key]; placed && at[key] == nil {
				add(&member{key: key, columns: []column{{}}})
				s.stay(at[key], lists, group.Disjoint)
			}
			for _, other := range group.Demands[:i] {
				if a, b := at[other], at[key]; a != nil && b != nil && (a.c != nil || b.c != nil) {
					s.relate(m, relation{a: a, b: b, kind: group.Disjoint, group: group.Name})
				}
			}
		}
	}
	return m
}

// stay has a member keep its lists.
func (s *solver) stay(v *member, lists []te.List, kind te.Disjoint) {
	ways, _, _ := s.g.Flows().Ways(v.key, lists)
	v.sets[kind] = []graph.RiskSet{s.risks(kind).On(ways...)}
}

// relate adds a relation, and the risks that it needs.
func (s *solver) relate(m *mesh, r relation) {
	r.risks = s.risks(r.kind)
	r.but = r.a.ends(s.g, r.risks).And(r.b.ends(s.g, r.risks))
	for _, v := range []*member{r.a, r.b} {
		if v.sets[r.kind] == nil {
			w := newWay(s)
			for _, column := range v.columns {
				v.sets[r.kind] = append(v.sets[r.kind], w.risks(v.c, column.via, r.risks))
			}
		}
	}
	m.relations = append(m.relations, &r)
}

func (v *member) ends(g *graph.Graph, r *graph.Risks) graph.RiskSet {
	from, _ := g.Node(v.key.Headend)
	to, _ := g.Node(v.key.Endpoint)
	return r.Ends(from, to)
}

// risks numbers those of a kind, once.
func (s *solver) risks(kind te.Disjoint) *graph.Risks {
	if s.byKind[kind] == nil {
		s.byKind[kind] = s.g.Risks(kind)
	}
	return s.byKind[kind]
}

// risks are those of a list.
func (w *way) risks(c *commodity, via int32, r *graph.Risks) graph.RiskSet {
	set := r.Empty()
	w.take(c.from, via, c.to)
	for _, l := range w.links {
		r.Add(set, int(l))
	}
	return set
}

// problems say which of the chosen lists share what they must not. From then on they may.
func (m *mesh) problems() (list []Problem) {
	for _, r := range m.relations {
		shared := r.risks.Empty()
		for _, i := range r.a.lists {
			switch {
			case r.standby:
				shared = shared.Or(r.shared(i, r.a.standby))
			case r.a != r.b:
				for _, j := range r.b.lists {
					shared = shared.Or(r.shared(i, j))
				}
			case i != r.a.lists[0] || len(r.a.lists) == 1:
				shared = shared.Or(r.shared(r.a.lists[0], i))
			}
		}
		names := r.risks.Names(shared)
		if len(names) == 0 {
			continue
		}
		for _, v := range []*member{r.a, r.b} {
			if p := (Problem{v.key, r.why(v, names)}); v.c != nil && !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
		r.but = r.but.Or(shared)
	}
	return list
}

func (r *relation) shared(i, j int) graph.RiskSet {
	return r.a.sets[r.kind][i].And(r.b.sets[r.kind][j]).Less(r.but)
}

// why says to a member what its lists share.
func (r *relation) why(v *member, names []string) string {
	whose := "those that share least"
	if r.group == "" {
		all := v.sets[r.kind][0]
		for _, set := range v.sets[r.kind] {
			all = all.And(set)
		}
		if common := r.risks.Names(all.Less(r.but)); len(common) > 0 {
			whose, names = "all", common
		}
	}
	common := whose + " have " + strings.Join(names, ", ") + " in common"
	switch {
	case r.standby:
		return fmt.Sprintf("no list is disjoint by %s from those in use, for a standby: %s", r.kind, common)
	case r.group == "":
		return fmt.Sprintf("no two lists are disjoint by %s: %s", r.kind, common)
	}
	other := r.a
	if v == r.a {
		other = r.b
	}
	keeps := ""
	if other.c == nil {
		keeps = ", which keeps its lists"
	}
	return fmt.Sprintf("group %s: no lists are disjoint by %s from those of %s%s: %s", r.group, r.kind, other.key.Name(), keeps, common)
}
