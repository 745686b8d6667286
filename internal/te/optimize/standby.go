package optimize

import (
	"math"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Standbys finds lists for headends to hold ready.
type Standbys struct {
	s       *solver
	classes map[uint32]*suitability
}

// Standby is a list that a headend holds ready behind those in use.
type Standby struct {
	Kind te.Disjoint
	List te.List
	// Common is what it shares with the lists in use, where none is disjoint from these: it is the
	// list that shares least. None says that all share everything: there is no list to hold ready.
	Common []string
	None   bool
}

// NewStandbys prepares to find the standbys of classes that ask for them.
func NewStandbys(g *graph.Graph, classes []te.Class) *Standbys {
	b := &Standbys{classes: map[uint32]*suitability{}}
	for _, c := range classes {
		if c.Standby == "" {
			continue
		}
		if b.s == nil {
			b.s = newSolver(g, Options{})
			b.s.prepare()
		}
		b.classes[c.Color] = newSuitability(b.s, c)
	}
	return b
}

// Of finds the standby of a demand behind its lists: the quickest one that its class allows and that
// shares nothing with them, or else that shares least. It says false where the class asks for none, or
// nothing leads to the endpoint.
func (b *Standbys) Of(key te.Key, lists []te.List) (out Standby, asked bool) {
	class := b.classes[key.Color]
	if class == nil {
		return out, false
	}
	from, known := b.s.g.Node(key.Headend)
	to, also := b.s.g.Node(key.Endpoint)
	if !known || !also || class.problem(from, to) != "" {
		return out, false
	}
	out.Kind = class.class.Standby
	risks := b.s.risks(out.Kind)
	ways, _, _ := b.s.g.Flows().Ways(key, lists)
	used, ends := risks.On(ways...), risks.Ends(from, to)
	c := &commodity{Demand: te.Demand{Key: key}, from: from, to: to, class: class}
	w, least, quickest, below := newWay(b.s), len(risks.Names(used.Less(ends))), math.Inf(-1), math.Inf(1)
	out.None, out.Common = true, risks.Names(used.Less(ends))
	b.s.delays.cheaper(c, &below, func(via int32, delay float64) {
		set := w.risks(c, via, risks)
		n := set.Common(used, ends)
		if n > least || n == least && delay >= quickest {
			return
		}
		out.None, out.Common = false, risks.Names(set.And(used).Less(ends))
		out.List = te.List{Weight: 1, Waypoints: b.s.waypoints(via, to)}
		if least, quickest = n, delay; n == 0 {
			below = delay
		}
	})
	return out, true
}
