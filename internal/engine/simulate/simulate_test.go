package simulate

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/te"
)

func network(t *testing.T) te.Network {
	t.Helper()
	n, err := netfile.Parse([]byte(`
nodes: [{name: a, sid: "fc00::a"}, {name: b, sid: "fc00::b"}, {name: c, sid: "fc00::c"}, {name: d, sid: "fc00::d"}, {name: e}]
links:
  - {from: a, to: b, metric: 1, capacity: 1Gbit}
  - {from: b, to: d, metric: 1, capacity: 1Gbit}
  - {from: a, to: c, metric: 2, capacity: 1Gbit}
  - {from: c, to: d, metric: 2, capacity: 1Gbit}
  - {from: c, to: d, name: spare, metric: 9, capacity: 1Gbit}
  - {from: d, to: e, metric: 1, capacity: 1Gbit}
demands:
  - {headend: a, endpoint: d, rate: 800Mbit}
  - {headend: a, endpoint: d, color: 7, rate: 200Mbit}
  - {headend: d, endpoint: e, rate: 100Mbit}
policies:
  - {headend: a, endpoint: d, lists: [{via: [b], weight: 3}, {via: [c], weight: 1}]}
  - {headend: a, endpoint: d, color: 7, lists: [{via: [b]}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	return n.Values()
}

func TestRun(t *testing.T) {
	n := network(t)
	for name, want := range map[string]Outcome{
		// Through b go 600 + 200, through c 200.
		"d-e": {Utilisation: 0.8, Link: "a-b", Repaired: 0.5, Nowhere: []te.Key{{Headend: "d", Endpoint: "e"}}},
		// Without b the first demand has the list by c left, and the second has none.
		"b":   {Utilisation: 1, Link: "a-c", Repaired: 1, Broken: 2, ByIGP: 1},
		"b-d": {Utilisation: 1, Link: "a-c", Repaired: 1},
		"e":   {Utilisation: 0.8, Link: "a-b", Repaired: 0.5, Gone: 1},
		"a":   {Utilisation: 0.1, Link: "d-e", Repaired: 0.1, Gone: 2},
		// From c the IGP goes back by a and b: the spare link's metric is higher.
		"c-d":       {Utilisation: 1, Link: "a-b", Repaired: 1},
		"d-c:spare": {Utilisation: 0.8, Link: "a-b", Repaired: 0.5},
	} {
		failures, err := Failures(n.Topology, name)
		if err != nil || len(failures) != 1 {
			t.Errorf("%s: %v, %v", name, failures, err)
			continue
		}
		outcomes, err := Run(t.Context(), n, failures, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := outcomes[0]
		if math.Abs(o.Utilisation-want.Utilisation) > 1e-9 || math.Abs(o.Repaired-want.Repaired) > 0.011 || o.Link != want.Link ||
			o.Broken != want.Broken || o.ByIGP != want.ByIGP || o.Gone != want.Gone || len(o.Nowhere) != len(want.Nowhere) || o.Repaired < o.Bound*0.999 {
			t.Errorf("%s: %+v\nwant %+v", name, o, want)
		}
	}
}

// After repair lists are disjoint where the network still allows it.
func TestDisjoint(t *testing.T) {
	n := network(t)
	n.Classes = []te.Class{{Color: 7, Disjoint: te.DisjointByNode}}
	for name, together := range map[string]int{"d-e": 0, "c-d:spare": 0, "b": 1, "a-c": 1} {
		failures, err := Failures(n.Topology, name)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := Run(t.Context(), n, failures, nil); err != nil || len(o[0].Together) != together {
			t.Errorf("%s: %+v, %v: want %d demands without disjoint lists", name, o, err, together)
		}
	}
}

func TestAllFailures(t *testing.T) {
	n := network(t)
	failures, err := Failures(n.Topology, "all")
	if err != nil || len(failures) != 5+6 {
		t.Fatalf("%d failures, %v: want 5 nodes and 6 links", len(failures), err)
	}
	done := 0
	outcomes, err := Run(t.Context(), n, failures, func(int) { done++ })
	if err != nil || done != len(failures) {
		t.Errorf("%d of %d were told: %v", done, len(failures), err)
	}
	for i, o := range outcomes {
		if o.Failure != failures[i].Name {
			t.Errorf("outcome %d is of %s, want %s", i, o.Failure, failures[i].Name)
		}
	}
	if _, err := Failures(n.Topology, "a-e"); err == nil {
		t.Error("a-e is no link")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, n, failures, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
