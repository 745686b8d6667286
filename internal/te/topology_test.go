package te

import (
	"net/netip"
	"testing"
)

func TestOwner(t *testing.T) {
	network := Topology{Nodes: []Node{
		{Name: "a", SID: netip.MustParseAddr("fc00:1::1"), Locator: netip.MustParsePrefix("fc00:1::/32")},
		{Name: "b", Locator: netip.MustParsePrefix("fc00:1:2::/48")},
		{Name: "c", SID: netip.MustParseAddr("fc00:1:2::3")},
		{Name: "d", Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::d"), netip.MustParseAddr("fc00:1:2::d")}},
	}}
	for address, want := range map[string]string{
		"fc00:1::1": "a", "fc00:1:3::": "a", "fc00:1:2::1": "b", "fc00:1:2::3": "c", "fc00:2::1": "",
		"2001:db8::d": "d", "fc00:1:2::d": "d",
	} {
		if got := network.Owner(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if got := network.Owner(netip.Addr{}); got != "" {
		t.Errorf("no address: %q", got)
	}
}
