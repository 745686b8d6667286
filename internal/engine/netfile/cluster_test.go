package netfile

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/te"
)

func TestParseWith(t *testing.T) {
	node := func(name, sid, locator, address string) Node {
		return Node{Name: name, SID: netip.MustParseAddr(sid), Locator: netip.MustParsePrefix(locator), Addresses: []netip.Addr{netip.MustParseAddr(address)}, Outside: true}
	}
	cluster := []Node{
		node("node-1", "fc00:0:1:1::", "fc00:0:1::/48", "2001:db8::1"),
		node("node-4", "fc00:0:4:1::", "fc00:0:4::/48", "2001:db8::40"),
		node("node-2", "fc00:0:2:1::", "fc00:0:2::/48", "2001:db8::2"),
	}
	n, left, err := ParseWith([]byte(`
nodes:
  - {name: r1, sid: "fc00:a::1"}
  - {name: node-2, max_segments: 3, api: "127.0.0.1:7444", sid: "fc00:0:2:9::"}
  - {name: node-4, sid: "2001:db8::4"}
links:
  - {from: node-1, to: r1, capacity: 1Gbit}
  - {from: r1, to: node-3, capacity: 1Gbit}
demands: [{headend: node-3, endpoint: node-1, rate: 1bit}, {headend: node-1, endpoint: node-2, rate: 1bit}]
groups: [{name: pair, disjoint: node, demands: [{headend: node-3, endpoint: node-1}, {headend: node-1, endpoint: node-2}]}]
policies: [{headend: node-1, endpoint: node-2, lists: [{via: [node-3]}]}]
engine: {agents: {port: 7443, tls_name: culvert}, lease: {namespace: kube-system, name: te}, write: kubernetes}
`), cluster)
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{
		{Name: "r1", SID: netip.MustParseAddr("fc00:a::1")},
		{Name: "node-2", MaxSegments: 3, API: "127.0.0.1:7444", SID: netip.MustParseAddr("fc00:0:2:9::"), Locator: cluster[2].Locator, Addresses: cluster[2].Addresses, Outside: true},
		{Name: "node-4", SID: netip.MustParseAddr("2001:db8::4"), Addresses: cluster[1].Addresses, Outside: true, API: "[2001:db8::40]:7443", TLSName: "culvert"},
		{Name: "node-1", SID: cluster[0].SID, Locator: cluster[0].Locator, Addresses: cluster[0].Addresses, Outside: true, API: "[2001:db8::1]:7443", TLSName: "culvert"},
	}
	if !reflect.DeepEqual(n.Nodes, want) {
		t.Errorf("nodes\n%+v, want\n%+v", n.Nodes, want)
	}
	if len(n.Links) != 1 || len(n.Demands) != 1 || len(n.Policies) != 0 || len(n.Groups[0].Demands) != 1 {
		t.Errorf("links %+v, demands %+v, policies %+v, groups %+v", n.Links, n.Demands, n.Policies, n.Groups)
	}
	why := "neither the file nor the cluster has a node node-3"
	wantLeft := []te.LeftOut{
		{What: "link r1 to node-3 without a name", Why: why}, {What: "demand node-3 to node-1, color 0", Why: why},
		{What: "demand node-3:node-1 of group pair", Why: why}, {What: "policy node-1 to node-2, color 0", Why: why},
	}
	if !reflect.DeepEqual(left, wantLeft) {
		t.Errorf("left out %+v", left)
	}
	if got := n.Values().Topology.Owner(netip.MustParseAddr("2001:db8::2")); got != "node-2" {
		t.Errorf("the endpoint of policies to node-2 is that of %q", got)
	}
	// A fault of the file is one, whatever the cluster has.
	if _, _, err := ParseWith([]byte("links: [{from: node-1, to: node-2}]"), cluster); err == nil || !strings.Contains(err.Error(), "links[0].capacity: is missing") {
		t.Error(err)
	}
}
