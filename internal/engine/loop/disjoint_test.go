package loop

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/te"
)

func pair(n *te.Network, kind te.Disjoint) {
	n.Groups = []te.Group{{Name: "pair", Disjoint: kind, Demands: []te.Key{{Headend: "a", Endpoint: "d", Color: 1}, {Headend: "a", Endpoint: "d", Color: 2}}}}
}

// Two demands of a group that take one path are led apart, and stay there however many rounds pass.
// When the second path goes, best effort is kept, and the state says what they share.
func TestGroup(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		pair(&w.in.Network, te.DisjointByNode)
		e := w.engine()
		var s State
		for range 20 {
			s = w.round(1e8, 1e8, e)
		}
		const byC = "fc00:c::1,fc00:d::d1"
		if w.a.puts != 1 || (w.path("te:red") == byC) == (w.path("te:blue") == byC) || len(s.Plan.Problems) > 0 {
			t.Fatalf("%d changes, red %q, blue %q, %+v", w.a.puts, w.path("te:red"), w.path("te:blue"), s.Plan)
		}
		whole, puts := w.in.Network.Topology, w.a.puts
		w.in.Network.Topology.Links = slices.Clone(whole.Links[:4]) // without c
		for range 20 {
			s = w.round(1e8, 1e8, e)
		}
		if n := len(s.Plan.Problems); n != 2 || !strings.Contains(s.Plan.Problems[0].Why, "group pair: no lists are disjoint by node from those of a:d:2: those that share least have link a-b, link b-d, node b in common") {
			t.Errorf("without c: %+v", s.Plan.Problems)
		}
		if w.path("te:red") == byC || w.path("te:blue") == byC || w.a.puts != puts+1 {
			t.Errorf("without c: %d changes, red %q, blue %q", w.a.puts-puts, w.path("te:red"), w.path("te:blue"))
		}
		w.in.Network.Topology = whole
		for range 60 {
			s = w.round(1e8, 1e8, e)
		}
		if len(s.Plan.Problems) > 0 || w.a.puts != puts+2 {
			t.Errorf("c is back: %d changes, %+v", w.a.puts-puts, s.Plan.Problems)
		}
	})
}

// The headend of a class with a standby holds a disjoint list ready, takes it when the list in use
// is lost, and keeps the traffic of another class without one.
func TestStandby(t *testing.T) {
	const byC = "fc00:c::1,fc00:d::d1"
	in(t, func(t *testing.T, w *world) {
		w.in.Network.Classes = []te.Class{{Color: 1, Standby: te.DisjointByNode}}
		e := w.engine()
		var s State
		for range 12 {
			s = w.round(1e8, 1e8, e)
		}
		if w.ready() != "red own "+byC || w.a.puts != 1 || len(s.Unprotected) > 0 {
			t.Fatalf("%s, %d changes, %+v", w.ready(), w.a.puts, s)
		}
		w.a.dead = w.a.policies[0].Lists[0].Key() // of the policies' own lists
		for range 12 {
			s = w.round(1e8, 1e8, e)
		}
		if p, _ := w.a.Policies(t.Context()); p[0].Active().Path != "te:repair:red" || w.a.puts != 1 || s.Problem != "" {
			t.Errorf("packets take %+v; %d changes, %+v", p[0].Active(), w.a.puts, s)
		}
		w.a.dead = ""
		whole := w.in.Network.Topology
		w.in.Network.Topology.Links = slices.Clone(whole.Links[:4]) // without c
		s = w.round(1e8, 1e8, e)
		if w.ready() != "" || len(s.Unprotected) != 1 || s.Unprotected[0].Why != "it has no standby: all lists share link a-b, link b-d, node b" ||
			len(s.Plan.Problems) != 1 || !strings.Contains(s.Plan.Problems[0].Why, "no list is disjoint by node from those in use, for a standby: all have link a-b, link b-d, node b in common") {
			t.Errorf("without c: %s, %+v, %+v", w.ready(), s.Unprotected, s.Plan.Problems)
		}
		w.in.Network.Topology = whole
		w.in.Settings.Repair = true // the other class has what it needs besides
		for range 7 {
			w.round(1e8, 1e8, e)
		}
		if w.ready() != "blue own "+byC+"; red own "+byC {
			t.Errorf("with repair lists: %s", w.ready())
		}
	})
}

// A class that asks for a standby leaves a path for it, and the standby of a path that changes changes
// with it.
func TestStandbyOfFullPath(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.in.Network.Classes = []te.Class{{Color: 1, Standby: te.DisjointByLink}}
		e := w.engine()
		for range 20 {
			w.round(6e8, 6e8, e)
		}
		red, blue := w.path("te:red"), w.path("te:blue")
		if strings.Contains(red, ";") || w.ready() == "" || red == "" && blue == "" {
			t.Errorf("red %q, blue %q, held ready: %s", red, blue, w.ready())
		}
	})
}
