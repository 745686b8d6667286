package network

import (
	"testing"
)

func TestRouteIsIPv6(t *testing.T) {
	for route, want := range map[string]bool{
		"10.0.0.0/8 encap seg6 mode encap segs fc00::1 dev x": false,
		"fc00::/16 via fd00::1":                               true,
		"default via 10.0.0.1":                                false,
		"default via fe80::1 dev x":                           true,
		"blackhole fc00::/32":                                 true,
		"unreachable 10.0.0.0/8":                              false,
	} {
		if got := RouteIsIPv6(route); got != want {
			t.Errorf("%s: IPv6 %v", route, got)
		}
	}
}
