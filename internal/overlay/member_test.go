package overlay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// TestMembers: each node, BGP peers and the next hops of services are inside, and so are
// the SIDs of all of them, each by the shortest prefix.
func TestMembers(t *testing.T) {
	double, chosen := self, node(3)
	double.Double = true
	chosen.IPv4 = addrs("fcdd::44")
	for name, tt := range map[string]struct {
		self  Self
		nodes []Node
		reach []Reach
		bgp   string
		pool  netip.Prefix
		lists []srpolicy.SegmentList
		left  []netip.Addr
		want  string
	}{
		"one that moved":    {self: self, left: addrs("2001:db8::7"), want: "2001:db8::1/128, 2001:db8::7/128, SIDs fc00:0:1::/48"},
		"alone":             {self: self, want: "2001:db8::1/128, SIDs fc00:0:1::/48"},
		"another":           {self: self, nodes: []Node{node(2)}, want: "2001:db8::1/128, 2001:db8::2/128, SIDs fc00:0:1::/48, SIDs fc00:0:2::/48"},
		"by nodes":          {self: double, nodes: []Node{Complete(Node{Name: "node-2", Address: addr("2001:db8::2"), Locator: node(2).Locator, Prefixes: node(2).Prefixes}, true)}, want: "2001:db8::1/128, 2001:db8::2/128, SIDs fc00:0:1::/48, SIDs fc00:0:2::/48"},
		"a SID elsewhere":   {self: self, nodes: []Node{chosen}, want: "2001:db8::1/128, 2001:db8::3/128, SIDs fc00:0:1::/48, SIDs fc00:0:3::/48, SIDs fcdd::44/128"},
		"a BGP peer":        {self: self, bgp: "2001:db8::99", want: "2001:db8::1/128, 2001:db8::99/128, SIDs fc00:0:1::/48"},
		"an IPv4 BGP peer":  {self: self, bgp: "192.0.2.1", want: "2001:db8::1/128, SIDs fc00:0:1::/48"},
		"a service's SID":   {self: self, reach: []Reach{{Prefix: prefixes("10.9.0.0/16")[0], Address: addr("2001:db8::99"), Segments: addrs("fc09::46")}}, want: "2001:db8::1/128, 2001:db8::99/128, SIDs fc00:0:1::/48, SIDs fc09::46/128"},
		"a pool":            {self: self, nodes: []Node{node(2)}, pool: prefixes("fc00::/32")[0], want: "2001:db8::1/128, 2001:db8::2/128, SIDs fc00::/32"},
		"a router's SID":    {self: self, lists: []srpolicy.SegmentList{{Segments: addrs("fc09:f:e::", "fc00:0:1:4::")}}, want: "2001:db8::1/128, SIDs fc00:0:1::/48, SIDs fc09:f:e::/128"},
		"without a locator": {self: Self{Name: "node-1", Address: addr("2001:db8::1"), Prefixes: self.Prefixes[:1], DT4: addr("fcdd::4")}, want: "2001:db8::1/128, SIDs fcdd::4/128"},
	} {
		var bgp = addrs()
		if tt.bgp != "" {
			bgp = addrs(tt.bgp)
		}
		w := Remote(Cluster{Self: tt.self, Nodes: tt.nodes, Reaches: tt.reach})
		w.Left = tt.left
		var got []string
		for _, m := range w.Members(tt.self, bgp, tt.pool, tt.lists) {
			got = append(got, fmt.Sprint(m))
		}
		slices.Sort(got)
		want := strings.Split(tt.want, ", ")
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, ", "), tt.want)
		}
	}
}
