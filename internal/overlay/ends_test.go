package overlay

import (
	"net/netip"
	"strings"
	"testing"
)

// What is lost at which SID: pods' packets are taken at End.DT4, End.DT6 or End.DT46 of a member by
// their family, and in networks of which nothing is known.
func TestLost(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	double := Complete(Node{Name: "node-2", Address: addr("2001:db8::2"), Locator: prefix("fc00:0:2::/48"), Prefixes: []netip.Prefix{prefix("10.244.2.0/24"), prefix("fd00:2::/64")}}, false)
	both := Node{Name: "node-3", Address: addr("2001:db8::3"), IPv4: []netip.Addr{addr("fd00::46")}, IPv6: []netip.Addr{addr("fd00::46")}}
	byAddress := Node{Address: addr("2001:db8::4"), Locator: prefix("fc00:0:4::/48")}
	ends := NewEnds([]Node{double, both, byAddress})
	four, six, any := prefix("10.244.2.0/24"), prefix("fd00:2::/64"), netip.Prefix{}
	for _, tt := range []struct {
		sid  string
		to   netip.Prefix
		want string
	}{
		{"fc00:0:2:4::", four, ""},
		{"fc00:0:2:4::", six, "it ends at fc00:0:2:4::, where node-2 takes IPv4 only"},
		{"fc00:0:2:4::", any, "node-2 takes IPv4 only"},
		{"fc00:0:2:6::", six, ""},
		{"fc00:0:2:6::", four, "node-2 takes IPv6 only"},
		{"fc00:0:2:6::", any, "node-2 takes IPv6 only"},
		{"fc00:0:2:107::", four, "where node-2 takes no packets of the cluster's pods"},
		{"fc00:0:2:99::", six, "where node-2 takes no packets of the cluster's pods"},
		{"fd00::46", four, ""}, {"fd00::46", six, ""}, {"fd00::46", any, ""},
		{"fc00:0:4:99::", four, ""},
		{"fc00:0:4:107::", four, "where 2001:db8::4 takes no packets of the cluster's pods"},
		{"fc00:0:9::", six, ""},
	} {
		if got := ends.Lost(addr(tt.sid), tt.to); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s to %v: %q, want %q", tt.sid, tt.to, got, tt.want)
		}
	}
	var nobody *Ends
	if why := nobody.Lost(addr("fc00:0:2:4::"), six) + nobody.Wrong(100, addr("2001:db8::2"), addr("fc00::"), nil); why != "" {
		t.Error(why)
	}
}
