package plan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// A list to a member of the cluster has to end where the member takes what the policy's color
// carries. Of others nothing is known.
func TestLastSegment(t *testing.T) {
	address := netip.MustParseAddr("2001:db8::2")
	node := overlay.Complete(overlay.Node{Name: "node-2", Address: address, Locator: netip.MustParsePrefix("fc00:0:2::/48"),
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("fd00:2::/64")}}, false)
	g := &Goal{
		Self:   overlay.Self{Tenants: []overlay.Tenant{{Name: "red", ID: 7}}},
		Wanted: &overlay.Wanted{Peers: []overlay.Peer{{Node: node}, {Node: overlay.Node{Address: netip.MustParseAddr("2001:db8::3")}}}},
	}
	tables := &Tables{Links: &netdev.Snapshot{
		Links: []netdev.Link{{Index: 2, Name: "up", Up: true, Carrier: true}},
		Routes: []netdev.Route{{
			Table: netdev.TableMain, Type: netdev.RouteUnicast, Prefix: netip.MustParsePrefix("::/0"), Hops: []netdev.Hop{{Gateway: netip.MustParseAddr("2001:db8::ff"), Ifindex: 2}},
		}},
	}}
	for _, tt := range []struct {
		name     string
		color    uint32
		endpoint string
		last     string
		want     string
	}{
		{"its own, IPv4", 4, "2001:db8::2", "fc00:0:2:4::", ""},
		{"its own, IPv6", 6, "2001:db8::2", "fc00:0:2:6::", ""},
		{"a tenant's", 0x107, "2001:db8::2", "fc00:0:2:107::", ""},
		{"the other family's", 4, "2001:db8::2", "fc00:0:2:6::", "it ends at fc00:0:2:6::, and node-2 takes IPv4 at fc00:0:2:4::"},
		{"nobody's", 6, "2001:db8::2", "fc00:0:2:99::", "node-2 takes IPv6 at fc00:0:2:6::"},
		{"another tenant's", 0x107, "2001:db8::2", "fc00:0:2:108::", "node-2 takes tenant red at fc00:0:2:107::"},
		{"another color", 100, "2001:db8::2", "fc00:0:2:99::", ""},
		{"a tenant that we do not know", 0x108, "2001:db8::2", "fc00:0:2:99::", ""},
		{"a node of which only the address is known", 4, "2001:db8::3", "fc00:0:3:99::", ""},
		{"no member", 4, "2001:db8::4", "fc00:0:4:99::", ""},
	} {
		p := &srpolicy.Policy{Color: tt.color, Endpoint: netip.MustParseAddr(tt.endpoint)}
		err := tables.usable(g, p)(srpolicy.SegmentList{Segments: []netip.Addr{netip.MustParseAddr("fc00:a::1"), netip.MustParseAddr(tt.last)}})
		if got := ""; err != nil {
			if got = err.Error(); tt.want == "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %s, want %q", tt.name, got, tt.want)
			}
		} else if tt.want != "" {
			t.Errorf("%s: it can be used, want %q", tt.name, tt.want)
		}
	}
}
