package netfile

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

func TestOver(t *testing.T) {
	n, err := Parse([]byte(`
nodes: [{name: a, sid: "fc00:1::1", locator: "fc00:1::/32", max_segments: 3}, {name: b}, {name: gone}, {name: edge, outside: true}]
links:
  - {from: a, to: b, metric: 99, capacity: 10Gbit, delay: 2ms, affinity: [1]}
  - {from: a, to: b, name: second, capacity: 1Gbit, sid: "fc00:1::2"}
  - {from: b, to: gone, capacity: 1Gbit, one_way: true}
  - {from: edge, to: a, capacity: 1Gbit, one_way: true}
demands: [{headend: a, endpoint: gone, rate: 1bit}]
policies: [{headend: b, endpoint: a, lists: [{via: ["a-b:second"]}, {via: [b-gone]}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	got, left := n.Over(te.Topology{
		Nodes: []te.Node{{Name: "a"}, {Name: "b", SID: netip.MustParseAddr("fc00:2::1")}, {Name: "c"}},
		Links: []te.Link{
			{From: "a", To: "b", Name: "first", Metric: 5, Capacity: 7, Delay: time.Second},
			{From: "b", To: "a", Name: "first", Metric: 6},
			{From: "a", To: "b", Name: "second", Metric: 7, Affinity: 9},
			{From: "b", To: "c", Name: "third", Metric: 8, Capacity: 1e6},
			{From: "c", To: "b", Name: "third", Metric: 8},
		},
	})
	sid := netip.MustParseAddr
	want := te.Topology{
		Nodes: []te.Node{
			{Name: "a", SID: sid("fc00:1::1"), Locator: netip.MustParsePrefix("fc00:1::/32"), MaxSegments: 3},
			{Name: "b", SID: sid("fc00:2::1")}, {Name: "c"}, {Name: "gone"}, {Name: "edge"},
		},
		Links: []te.Link{
			{From: "a", To: "b", Name: "first", Metric: 5, Capacity: 10e9, Delay: 2 * time.Millisecond, Affinity: 2},
			{From: "b", To: "a", Metric: 6, Capacity: 10e9, Delay: 2 * time.Millisecond, Affinity: 2},
			{From: "a", To: "b", Name: "second", Metric: 7, Capacity: 1e9, Affinity: 9, SID: sid("fc00:1::2")},
			{From: "b", To: "c", Metric: 8, Capacity: 1e6},
			{From: "edge", To: "a", Metric: 10, Capacity: 1e9},
		},
	}
	if !reflect.DeepEqual(got.Topology, want) {
		t.Errorf("%+v\nwant %+v", got.Topology, want)
	}
	if len(got.Demands) != 1 || got.Demands[0].Endpoint != "gone" {
		t.Errorf("demands %+v", got.Demands)
	}
	if lists := got.Routing[te.Key{Headend: "b", Endpoint: "a"}]; lists[0].Waypoints[0] != (te.Waypoint{Node: "a", Link: 3}) || lists[1].Waypoints[0].Link != 0 {
		t.Errorf("lists %+v: want the links of the running network", lists)
	}
	wantLeft := []te.LeftOut{
		{What: "node gone", Why: "the running network does not have it: it has no links"},
		{What: "link c to b", Why: "its capacity is unknown: add it to links"},
		{What: "link b to a called second", Why: "the running network does not have it"},
		{What: "link b to gone without a name", Why: "the running network does not have it"},
	}
	if !reflect.DeepEqual(left, wantLeft) {
		t.Errorf("left out %+v\nwant %+v", left, wantLeft)
	}
}
