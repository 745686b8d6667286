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
	third := overlay.Complete(overlay.Node{Name: "node-4", Address: netip.MustParseAddr("2001:db8::5"), Locator: netip.MustParsePrefix("fc00:0:5::/48"),
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.5.0/24")}}, false)
	byAddress := overlay.Node{Address: netip.MustParseAddr("2001:db8::3"), Locator: netip.MustParsePrefix("fc00:0:3::/48")}
	g := &Goal{
		Self:   overlay.Self{Tenants: []overlay.Tenant{{Name: "red", ID: 7}}},
		Wanted: &overlay.Wanted{Ends: overlay.NewEnds([]overlay.Node{node, third, byAddress})},
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
		{"another color, IPv4", 100, "2001:db8::2", "fc00:0:2:4::", ""},
		{"another color, IPv6", 100, "2001:db8::2", "fc00:0:2:6::", ""},
		{"another color, a tenant's", 100, "2001:db8::2", "fc00:0:2:107::", ""},
		{"another color, nobody's", 100, "2001:db8::2", "fc00:0:2:99::",
			"it ends at fc00:0:2:99::, and node-2 takes packets for pods at fc00:0:2:4:: (IPv4), fc00:0:2:6:: (IPv6), fc00:0:2:107:: (tenant red)"},
		{"another color, another member's", 100, "2001:db8::2", "fc00:0:5:4::", "it ends at fc00:0:5:4::, which is a SID of node-4, and its endpoint is node-2"},
		{"another color, in another member's locator", 100, "2001:db8::2", "fc00:0:5:99::", "it ends at fc00:0:5:99::, which is a SID of node-4, and its endpoint is node-2"},
		{"another color, somebody else's network", 100, "2001:db8::2", "fc00:0:9:99::", ""},
		{"no color", 0, "2001:db8::2", "fc00:0:2:99::", ""},
		{"a tenant that we do not know", 0x108, "2001:db8::2", "fc00:0:2:108::", "it ends at fc00:0:2:108::, and node-2 takes packets for pods at"},
		{"another color to a node of which only the address is known", 100, "2001:db8::3", "fc00:0:3:99::", ""},
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
