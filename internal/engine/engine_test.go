package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/te"
)

// Color 1 may not take the links that it has.
const swap = `
nodes: [{name: a}, {name: b, sid: "fc00::b"}, {name: c, sid: "fc00::c"}, {name: d}]
links:
  - {from: a, to: b, capacity: 1Gbit, affinity: [1]}
  - {from: b, to: d, capacity: 1Gbit, affinity: [1]}
  - {from: a, to: c, capacity: 1Gbit, affinity: [2]}
  - {from: c, to: d, capacity: 1Gbit, affinity: [2]}
classes: [{color: 1, exclude: [1]}, {color: 2, exclude: [2]}]
demands: [{headend: a, endpoint: d, color: 1, rate: 900Mbit}, {headend: a, endpoint: d, color: 2, rate: 1200Mbit}]
policies: [{headend: a, endpoint: d, color: 1, lists: [{via: [b]}]}, {headend: a, endpoint: d, color: 2, lists: [{via: [b], weight: 3}, {via: [c]}]}]
`

func parsed(t *testing.T, text string) te.Network {
	t.Helper()
	n, err := netfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n.Values()
}

func TestPlan(t *testing.T) {
	n := parsed(t, swap)
	p, err := Compute(t.Context(), n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Moves) != 1 || p.Then != 1.2 || p.Links[0].Link != "a-b" || len(p.By) != p.Steps || p.Overload != 0 {
		t.Errorf("%+v", p)
	}
	e, err := p.Explain(n, te.Key{Headend: "a", Endpoint: "d", Color: 1})
	if err != nil || len(e.Now) != 1 || len(e.Then) != 1 || e.Then[0].List != "by c" || e.Then[0].Utilisation != 1.2 || !strings.Contains(e.Why, "the fullest link that it leaves is a-b") {
		t.Errorf("%+v, %v", e, err)
	}
	if e.Repair == nil || *e.Repair != (RepairReport{Link: "a-c", List: "by b"}) {
		t.Errorf("repair %+v", e.Repair)
	}
	if e, err := p.Explain(n, te.Key{Headend: "a", Endpoint: "d", Color: 2}); err != nil || e.Repair != nil && len(p.Routing[e.Key]) > 1 {
		t.Errorf("two links carry it: %+v, %v", e.Repair, err)
	}
	if _, err := p.Explain(n, te.Key{Headend: "a", Endpoint: "d", Color: 3}); err == nil {
		t.Error("there is no demand of color 3")
	}
	stays, err := Compute(t.Context(), n, Options{Target: 2})
	if err != nil || len(stays.Moves) != 0 || stays.Steps != 0 || !strings.Contains(stays.Why, "at most the target") {
		t.Errorf("below the target: %+v, %v", stays, err)
	}
}

// An installed list that takes longer than its class allows is left, however empty links are,
// and one for which there is no quicker list stays.
func TestSlowList(t *testing.T) {
	const file = `
nodes: [{name: a, sid: "fc00:a::1"}, {name: b, sid: "fc00:b::1"}, {name: c, sid: "fc00:c::1"}, {name: d, sid: "fc00:d::1"}]
links:
  - {from: a, to: b, capacity: 1Gbit, delay: 30ms}
  - {from: b, to: d, capacity: 1Gbit, delay: 30ms}
  - {from: a, to: c, capacity: 1Gbit, delay: 5ms, metric: 20}
  - {from: c, to: d, capacity: 1Gbit, delay: 5ms, metric: 20}
classes: [{color: 1, max_delay: 20ms}, {color: 2, max_delay: 1ms}]
demands: [{headend: a, endpoint: d, color: 1, rate: 10Mbit}, {headend: a, endpoint: d, color: 2, rate: 10Mbit}, {headend: a, endpoint: d, color: 3, rate: 10Mbit}]
`
	p, err := Compute(t.Context(), parsed(t, file), Options{Target: 0.8})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Moves) != 1 || p.Moves[0].Color != 1 || p.Moves[0].Then != "by c" || !strings.Contains(p.Why, "longer than their class allows") {
		t.Errorf("%+v, because %s", p.Moves, p.Why)
	}
}

// Lists that fail together are left where the class asks for disjoint ones, however empty links
// are; what cannot be apart is said.
func TestDisjointLists(t *testing.T) {
	n := parsed(t, strings.Replace(swap, "classes: [{color: 1, exclude: [1]}, {color: 2, exclude: [2]}]", "classes: [{color: 1, disjoint: link}]", 1))
	key := te.Key{Headend: "a", Endpoint: "d", Color: 1}
	p, err := Compute(t.Context(), n, Options{Target: 5})
	if err != nil || len(p.Moves) != 1 || p.Moves[0].Key != key || len(p.Routing[key]) != 2 || !strings.Contains(p.Why, "fail together") {
		t.Errorf("%+v, %v", p, err)
	}
	n.Routing = p.Routing
	if p, err = Compute(t.Context(), n, Options{Target: 5}); err != nil || len(p.Moves) != 0 {
		t.Errorf("they are apart: %+v, %v", p, err)
	}
	n.Topology.Links = n.Topology.Links[:4] // c is gone
	if p, err = Compute(t.Context(), n, Options{Target: 5}); err != nil {
		t.Fatal(err)
	}
	if e, err := p.Explain(n, key); err != nil || !strings.Contains(e.Why, "no two lists are disjoint by link: all have link a-b, link b-d in common") ||
		*e.Repair != (RepairReport{Link: "a-b", Why: "no other link of a leads to d"}) {
		t.Errorf("%+v, %v", e, err)
	}
}

// Lists that leave no disjoint one for a standby are left where the class asks for it.
func TestRoomForAStandby(t *testing.T) {
	n := parsed(t, strings.Replace(swap, "classes: [{color: 1, exclude: [1]}, {color: 2, exclude: [2]}]", "classes: [{color: 2, standby: link}]", 1))
	key := te.Key{Headend: "a", Endpoint: "d", Color: 2} // its lists take all links
	p, err := Compute(t.Context(), n, Options{Target: 5})
	if err != nil || len(p.Moves) != 1 || p.Moves[0].Key != key || len(p.Routing[key]) != 1 || !strings.Contains(p.Why, "or leave no standby") {
		t.Fatalf("%+v, %v", p, err)
	}
	if e, err := p.Explain(n, key); err != nil || e.Standby == nil || len(e.Standby.Common) > 0 || e.Repair != nil {
		t.Errorf("%+v, %v", e, err)
	}
	n.Routing = p.Routing
	if p, err = Compute(t.Context(), n, Options{Target: 5}); err != nil || len(p.Moves) != 0 {
		t.Errorf("there is room: %+v, %v", p, err)
	}
}

// What is held keeps its lists, with the reason; what is broken changes though all others are held.
func TestHeld(t *testing.T) {
	n := parsed(t, swap)
	key := te.Key{Headend: "a", Endpoint: "d", Color: 1}
	p, err := Compute(t.Context(), n, Options{Held: map[te.Key]string{key: "it changed a moment ago"}})
	if err != nil || slices.ContainsFunc(p.Moves, func(m Move) bool { return m.Key == key }) {
		t.Errorf("%+v, %v", p, err)
	}
	if e, err := p.Explain(n, key); err != nil || e.Why != "it keeps its lists: it changed a moment ago" {
		t.Errorf("%+v, %v", e, err)
	}
	if p, err := Compute(t.Context(), n, Options{OnlyBroken: true}); err != nil || len(p.Moves) != 0 {
		t.Errorf("nothing is broken: %+v, %v", p, err)
	}
	n.Topology.Links = n.Topology.Links[4:] // a-b and b-d are gone
	p, err = Compute(t.Context(), n, Options{OnlyBroken: true})
	if err != nil || len(p.Moves) != 2 || !strings.Contains(p.Why, "lead nowhere") {
		t.Errorf("%+v, %v", p, err)
	}
}

// A list that leads nowhere and a class that no list suits are said where users look.
func TestExplainProblems(t *testing.T) {
	n := parsed(t, strings.Replace(strings.Replace(swap, "exclude: [1]}", "exclude: [1, 2]}", 1), "{name: c,", "{name: z}, {name: c,", 1))
	key := te.Key{Headend: "a", Endpoint: "d", Color: 1}
	n.Routing[key] = append(n.Routing[key], te.List{Weight: 1, Waypoints: []te.Waypoint{{Node: "z"}}})
	p, err := Compute(t.Context(), n, Options{Target: 5})
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Explain(n, key)
	if err != nil || !strings.Contains(e.Why, "an affinity that the class excludes") || len(e.Now) != 2 || e.Now[1].Bottleneck != "it leads nowhere" || e.Now[1].Part != 0 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestWords(t *testing.T) {
	topology := te.Topology{Links: []te.Link{{From: "r3", To: "r4"}, {From: "r4", To: "r5", Name: "x"}}}
	by := func(weight uint32, nodes ...string) te.List {
		l := te.List{Weight: weight}
		for _, n := range nodes {
			l.Waypoints = append(l.Waypoints, te.Waypoint{Node: n})
		}
		return l
	}
	for want, lists := range map[string][]te.List{
		"the IGP's way":                  nil,
		"by r3-r4, r4-r5:x":              {{Weight: 1, Waypoints: []te.Waypoint{{Node: "r3", Link: 1}, {Node: "r4", Link: 2}}}},
		"by r3, r4":                      {by(7, "r3", "r4")},
		"75 % by r3; 25 % the IGP's way": {by(1), by(3, "r3")},
	} {
		if got := Words(topology, lists); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
