package adjacency

import (
	"net/netip"
	"testing"
)

func TestAdjacencyNames(t *testing.T) {
	for _, k := range []Key{
		{NextHop: netip.MustParseAddr("10.0.0.1")}, {NextHop: netip.MustParseAddr("2001:db8::1"), Table: 77}, {Interface: "eth0.100"}, {NextHop: netip.MustParseAddr("fe80::1"), Interface: "eth0"},
		{NextHop: netip.MustParseAddr("10.0.0.1"), MTU: 1400}, {NextHop: netip.MustParseAddr("fe80::1"), Interface: "eth0", MTU: 1280},
	} {
		got, err := parseKey(k.name())
		if err != nil || got != k {
			t.Errorf("%+v: %q is read as %+v, %v", k, k.name(), got, err)
		}
	}
	for _, bad := range []string{"", "a b", "x 0 eth0", "- x eth0", "- 0 eth0 y", "- 0 eth0/"} {
		if k, err := parseKey(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, k)
		}
	}
}
