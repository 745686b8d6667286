package graph

import (
	"fmt"
	"math/bits"

	"github.com/culvert-net/culvert/internal/te"
)

// Risks are what can fail, one at a time: each link with both of its directions, and each node or
// SRLG where lists have to be disjoint by these.
type Risks struct {
	g     *Graph
	names []string
	of    [][]int // by link: what it fails with
	nodes int     // index of the first node's risk; -1: nodes do not count
}

// RiskSet has one bit for each risk.
type RiskSet []uint64

// Risks numbers what lists of a kind of disjointness must not share.
func (g *Graph) Risks(d te.Disjoint) *Risks {
	r := &Risks{g: g, of: make([][]int, len(g.Topology.Links)), nodes: -1}
	known := map[string]int{}
	add := func(link int, name string) {
		at, has := known[name]
		if !has {
			at = len(r.names)
			known[name], r.names = at, append(r.names, name)
		}
		r.of[link] = append(r.of[link], at)
	}
	for i, l := range g.Topology.Links {
		if l.From > l.To {
			l.From, l.To = l.To, l.From
		}
		add(i, "link "+l.Direction())
		for _, group := range l.SRLG {
			if d == te.DisjointBySRLG {
				add(i, fmt.Sprintf("SRLG %d", group))
			}
		}
	}
	if d == te.DisjointByNode {
		r.nodes = len(r.names)
		for _, n := range g.Topology.Nodes {
			r.names = append(r.names, "node "+n.Name)
		}
	}
	return r
}

// Empty is a set without risks.
func (r *Risks) Empty() RiskSet { return make(RiskSet, (len(r.names)+63)/64) }

// Add adds the risks of a link.
func (r *Risks) Add(set RiskSet, link int) {
	for _, risk := range r.of[link] {
		set.add(risk)
	}
	if r.nodes >= 0 {
		set.add(r.nodes + r.g.ends[link][0])
		set.add(r.nodes + r.g.ends[link][1])
	}
}

// Ends are the risks of nodes that a demand begins and ends at: its lists cannot do without them.
func (r *Risks) Ends(from, to int) RiskSet {
	set := r.Empty()
	if r.nodes >= 0 {
		set.add(r.nodes + from)
		set.add(r.nodes + to)
	}
	return set
}

// On are the risks of the ways of lists, together.
func (r *Risks) On(ways ...Way) RiskSet {
	set := r.Empty()
	for _, w := range ways {
		for _, s := range w.Shares {
			r.Add(set, int(s.Link))
		}
	}
	return set
}

// Names are those of the risks in a set.
func (r *Risks) Names(set RiskSet) (names []string) {
	for i, name := range r.names {
		if set[i/64]&(1<<(i%64)) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (s RiskSet) add(risk int) { s[risk/64] |= 1 << (risk % 64) }

// And are the risks that two sets have in common.
func (s RiskSet) And(other RiskSet) RiskSet {
	both := make(RiskSet, len(s))
	for i := range s {
		both[i] = s[i] & other[i]
	}
	return both
}

// Or are the risks of both sets.
func (s RiskSet) Or(other RiskSet) RiskSet {
	all := make(RiskSet, len(s))
	for i := range s {
		all[i] = s[i] | other[i]
	}
	return all
}

// Less are the risks that another set does not have.
func (s RiskSet) Less(other RiskSet) RiskSet {
	rest := make(RiskSet, len(s))
	for i := range s {
		rest[i] = s[i] &^ other[i]
	}
	return rest
}

// Common is how many risks two sets have in common, without those of a third one.
func (s RiskSet) Common(other, but RiskSet) (n int) {
	for i := range s {
		n += bits.OnesCount64(s[i] & other[i] &^ but[i])
	}
	return n
}

// Together are the demands that fail together although they must not, with what fails then: those
// whose class asks for disjoint lists, and of which one failure takes all, and those of which one
// failure takes lists of another in their group. Demands without a path are none.
func (g *Graph) Together(classes []te.Class, groups []te.Group, demands []te.Demand, routing te.Routing) map[te.Key][]string {
	t := together{g: g, flows: g.Flows(), routing: routing, risks: map[te.Disjoint]*Risks{}}
	out, there := map[te.Key][]string{}, map[te.Key]bool{}
	kinds := map[uint32]te.Disjoint{}
	for _, c := range classes {
		kinds[c.Color] = c.Disjoint
	}
	for _, d := range demands {
		there[d.Key] = true
		if kind := kinds[d.Color]; kind != "" {
			if names := t.alone(kind, d.Key); len(names) > 0 {
				out[d.Key] = names
			}
		}
	}
	for _, group := range groups {
		for i, a := range group.Demands {
			for _, b := range group.Demands[:i] {
				if !there[a] || !there[b] {
					continue
				}
				if names := t.both(group.Disjoint, a, b); len(names) > 0 {
					out[a], out[b] = append(out[a], names...), append(out[b], names...)
				}
			}
		}
	}
	return out
}

// together finds what lists have in common.
type together struct {
	g       *Graph
	flows   *Flows
	routing te.Routing
	risks   map[te.Disjoint]*Risks
}

func (t *together) of(kind te.Disjoint) *Risks {
	if t.risks[kind] == nil {
		t.risks[kind] = t.g.Risks(kind)
	}
	return t.risks[kind]
}

// alone is what all lists of a demand have in common.
func (t *together) alone(kind te.Disjoint, key te.Key) []string {
	r := t.of(kind)
	ways, _, _ := t.flows.Ways(key, t.routing[key])
	if len(ways) == 0 {
		return nil
	}
	all := r.On(ways[0])
	for _, w := range ways[1:] {
		all = all.And(r.On(w))
	}
	return r.Names(all.Less(t.ends(r, key)))
}

// both is what lists of two demands have in common.
func (t *together) both(kind te.Disjoint, a, b te.Key) []string {
	r := t.of(kind)
	first, _, _ := t.flows.Ways(a, t.routing[a])
	second, _, _ := t.flows.Ways(b, t.routing[b])
	return r.Names(r.On(first...).And(r.On(second...)).Less(t.ends(r, a).And(t.ends(r, b))))
}

func (t *together) ends(r *Risks, key te.Key) RiskSet {
	from, _ := t.g.Node(key.Headend)
	to, _ := t.g.Node(key.Endpoint)
	return r.Ends(from, to)
}
