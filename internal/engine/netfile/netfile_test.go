package netfile

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

func TestValues(t *testing.T) {
	n, err := Parse([]byte(`
nodes:
  - {name: a, sid: "fc00:1::1", locator: "fc00:1::/32", max_segments: 3}
  - {name: b}
links:
  - {from: a, to: b, capacity: 2.5Gbit/s, delay: 150us, affinity: [0, 31], sid: "fc00:1::2", reverse_sid: "fc00:2::2", srlg: [7, 8]}
  - {from: a, to: b, name: second, metric: 7, capacity: 100Mbit, one_way: true}
classes: [{color: 46, name: voice, priority: 2, max_delay: 3ms, exclude: [1], include_any: [0, 2], max_lists: 4, disjoint: srlg, standby: node, delay_bound: 15ms, lowest_delay: true}]
groups: [{name: pair, disjoint: node, demands: [{headend: a, endpoint: b, color: 46}, {headend: b, endpoint: a, color: 46}]}]
demands: [{headend: a, endpoint: b, color: 46, rate: 64kbit}]
policies: [{headend: a, endpoint: b, color: 46, lists: [{via: [b], weight: 3}, {}, {via: [b-a, "a-b:second"]}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	v := n.Values()
	if len(v.Topology.Links) != 3 {
		t.Fatalf("links %+v", v.Topology.Links)
	}
	there, back, second := v.Topology.Links[0], v.Topology.Links[1], v.Topology.Links[2]
	if there.Capacity != 2.5e9 || there.Delay != 150*time.Microsecond || there.Affinity != 1|1<<31 || there.Metric != 10 || !there.SID.IsValid() {
		t.Errorf("%+v", there)
	}
	if back.From != "b" || back.To != "a" || back.SID.String() != "fc00:2::2" || back.Capacity != there.Capacity || !slices.Equal(back.SRLG, []uint32{7, 8}) {
		t.Errorf("the other direction: %+v", back)
	}
	if second.Name != "second" || second.Metric != 7 || second.Capacity != 1e8 {
		t.Errorf("%+v", second)
	}
	want := te.Class{Color: 46, Name: "voice", Priority: 2, MaxDelay: 3 * time.Millisecond, Exclude: 2, IncludeAny: 5, MaxLists: 4, Disjoint: te.DisjointBySRLG, Standby: te.DisjointByNode,
		DelayConstraint: srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(15 * time.Millisecond), LowestDelay: true}}
	if v.Delays(46) != want.DelayConstraint || v.Delays(0).IsSet() {
		t.Errorf("delays %+v and %+v", v.Delays(46), v.Delays(0))
	}
	if v.Classes[0] != want {
		t.Errorf("class %+v, want %+v", v.Classes[0], want)
	}
	key := te.Key{Headend: "a", Endpoint: "b", Color: 46}
	if want := []te.Group{{Name: "pair", Disjoint: te.DisjointByNode, Demands: []te.Key{key, {Headend: "b", Endpoint: "a", Color: 46}}}}; !reflect.DeepEqual(v.Groups, want) {
		t.Errorf("groups %+v", v.Groups)
	}
	if v.Demands[0] != (te.Demand{Key: key, Rate: 64e3}) {
		t.Errorf("demand %+v", v.Demands[0])
	}
	if lists := v.Routing[key]; len(lists) != 3 || !slices.Equal(lists[2].Waypoints, []te.Waypoint{{Node: "b", Link: 2}, {Node: "a", Link: 3}}) || lists[0].Weight != 3 || lists[0].Waypoints[0].Node != "b" || lists[1].Weight != 1 || len(lists[1].Waypoints) != 0 {
		t.Errorf("lists %+v", lists)
	}
	if v.Topology.Nodes[0].MaxSegments != 3 || !v.Topology.Nodes[0].Locator.IsValid() {
		t.Errorf("node %+v", v.Topology.Nodes[0])
	}
}

func TestFaults(t *testing.T) {
	const two = "nodes: [{name: a}, {name: b}]\n"
	for text, want := range map[string]string{
		"nodes: [{name: a}, {name: a}]":                                                                              "nodes[1]: node a is also nodes[0] (fix: keep one)",
		"nodes: [{name: 'a b'}]":                                                                                     "nodes[0].name",
		"nodes: [{name: a, sid: 'ff02::1'}]":                                                                         "nodes[0].sid",
		"nodes: [{name: a, sid: 'fc00:2::1', locator: 'fc00:1::/32'}]":                                               "fc00:2::1 is not in fc00:1::/32",
		"nodes: [{name: a, max_segments: -1}]":                                                                       "nodes[0].max_segments: is -1",
		two + "links: [{from: a, to: b}]":                                                                            "links[0].capacity: is missing (fix: give one such as 10Gbit)",
		two + "links: [{from: a, to: b, capacity: 10}]":                                                              `"10" is no rate`,
		two + "links: [{from: a, to: b, capacity: -1Gbit}]":                                                          `"-1Gbit" is no rate`,
		two + "links: [{from: a, to: b, capacity: 1e300Gbit}]":                                                       "is no rate",
		two + "links: [{from: a, to: b, capacity: NaNbit}]":                                                          "is no rate",
		two + "links: [{from: a, to: b, capacity: 1Gbit, delay: 2}]":                                                 `"2" is no delay`,
		two + "links: [{from: a, to: a, capacity: 1Gbit}]":                                                           "links[0].to: is where the link begins",
		two + "links: [{from: a, to: c, capacity: 1Gbit}]":                                                           `links[0].to: no node is called "c"`,
		two + "links: [{from: a, to: b, capacity: 1Gbit, affinity: [32]}]":                                           "32 is no bit of an affinity",
		two + "links: [{from: a, to: b, capacity: 1Gbit}, {from: b, to: a, capacity: 1Gbit}]":                        "link b to a without a name is also links[0]",
		"classes: [{color: 1}, {color: 1}]":                                                                          "class of color 1 is also classes[0]",
		"classes: [{color: 1, exclude: [3, 4], include_any: [3]}]":                                                   "asks only for what exclude forbids",
		"engine: {horizon: 2h}":                                                                                      `"2h" is no time up to 1h`,
		"classes: [{color: 1, disjoint: way}]":                                                                       "classes[0].disjoint: is \"way\"",
		"classes: [{color: 1, disjoint: node, max_lists: 1}]":                                                        "classes[0].max_lists: is 1, and disjoint asks for two lists",
		"classes: [{color: 1, standby: spare}]":                                                                      "classes[0].standby: is \"spare\"",
		two + "groups: [{name: p, demands: [{headend: a, endpoint: b}]}]":                                            "groups[0].disjoint: is \"\" (fix: give link, node or srlg)",
		two + "groups: [{disjoint: node}]":                                                                           "groups[0].name",
		two + "groups: [{name: p, disjoint: node}, {name: p, disjoint: node}]":                                       "groups[1]: group p is also groups[0]",
		two + "groups: [{name: p, disjoint: node, demands: [{headend: a, endpoint: c}]}]":                            `groups[0].demands[0].endpoint: no node is called "c"`,
		two + "groups: [{name: p, disjoint: node, demands: [{headend: a, endpoint: b}, {headend: a, endpoint: b}]}]": "groups[0].demands[1]: demand a:b of group p is also groups[0].demands[0]",
		two + "classes: [{color: 1, priority: 1}]\ngroups: [{name: p, disjoint: node, demands: [{headend: a, endpoint: b}, {headend: a, endpoint: b, color: 1}]}]": "groups[0].demands: have different priorities",
		"classes: [{color: 1, delay_bound: 15}]":                                                                                        "classes[0].delay_bound: give a time with its unit",
		"classes: [{color: 1, delay_bound: 11s}]":                                                                                       "classes[0].delay_bound: is 11s",
		"classes: [{color: 1, max_lists: 9}]":                                                                                           "classes[0].max_lists: is 9",
		two + "demands: [{headend: a, endpoint: a, rate: 1bit}]":                                                                        "demands[0].endpoint: is the headend",
		two + "demands: [{headend: a, endpoint: b, rate: 1bit}, {headend: a, endpoint: b, rate: 1bit}]":                                 "demand a to b, color 0 is also demands[0]",
		two + "policies: [{headend: a, endpoint: b}]":                                                                                   "policies[0].lists: has 0 lists",
		two + "policies: [{headend: a, endpoint: b, lists: [{via: [z]}]}]":                                                              `policies[0].lists[0].via[0]: no node or link is called "z"`,
		two + "links: [{from: a, to: b, capacity: 1Gbit, one_way: true}]\npolicies: [{headend: a, endpoint: b, lists: [{via: [b-a]}]}]": `no node or link is called "b-a"`,
		two + "links: [{from: a, to: b, capacity: 1Gbit, one_way: true, reverse_sid: 'fc00::1'}]":                                       "links[0].reverse_sid: is of a direction that the link does not have",
		two + "links: [{from: a, to: b, capacity: 1Gbit, reverse_sid: 'ff02::1'}]":                                                      "links[0].reverse_sid",
		two + "links: [{from: a, to: b, capacity: 1Gbit, sid: 'fc00::1', reverse_sid: 'fc00::1'}]":                                      "SID fc00::1 is also links[0]",
		"nodes: [{name: a, addresses: ['10.0.0.1']}]":                                                                                   "nodes[0].addresses[0]",
		"nodes: [{name: a, addresses: ['fc00::1']}, {name: b, addresses: ['fc00::1']}]":                                                 "address fc00::1 is also nodes[0].addresses[0]",
		"engine: {write: carrier pigeon}":                                                                                               `engine.write: "carrier pigeon" is no way to write candidate paths (fix: give api, bgp or kubernetes)`,
		"engine: {lease: {name: te}}":                                                                                                   "engine.lease: is not whole",
		"engine: {write: bgp, lease: {name: a, namespace: b}}":                                                                          "engine.lease: engines that write by BGP need none",
		"engine: {agents: {locator_pool: \"fc00::1/16\"}}":                                                                              "engine.agents.locator_pool: ",
		"engine: {agents: {tls_name: them}}":                                                                                            "engine.agents.port: is missing",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%s\ngot  %v\nwant %q, with its line", text, err, want)
		}
	}
	if _, err := Load("none.yaml"); err == nil || !strings.Contains(err.Error(), "none.yaml does not exist") {
		t.Error(err)
	}
}

func TestHorizon(t *testing.T) {
	for text, want := range map[string]time.Duration{"{}": 20 * time.Second, "{every: 30s}": 40 * time.Second, "{horizon: 0s}": 0, "{every: 30s, horizon: 5s}": 5 * time.Second} {
		n, err := Parse([]byte("engine: " + text))
		if err != nil || time.Duration(*n.Engine.Horizon) != want {
			t.Errorf("%s: %v, %v: want %v", text, n, err, want)
		}
	}
}

func TestRatesAreReadAsTheyArePrinted(t *testing.T) {
	for want, r := range map[string]Rate{"0bit/s": 0, "999bit/s": 999, "1kbit/s": 1000, "2.5Gbit/s": 2.5e9, "1Tbit/s": 1e12} {
		text, err := r.MarshalText()
		var back Rate
		if err != nil || string(text) != want || back.UnmarshalText(text) != nil || back != r {
			t.Errorf("%v prints %s, want %s; that reads as %v", float64(r), text, want, float64(back))
		}
	}
}
