package bench

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// The most that there can be of each.
const (
	mostPolicies = 4000 // of the 4096 that the tables have unless told otherwise
	mostRoutes   = 50_000
	mostRules    = 16
)

// segmentsFunction pushes n segments.
func segmentsFunction(n int) function {
	steered := netip.AddrFrom4([4]byte{10, byte(128 + n), 0, 1})
	name := fmt.Sprintf("segments_%d", n)
	user := packet4(inner4, steered, shortSize, false)
	var segments []netip.Addr
	for i := range n {
		b := segment.As16()
		b[15] = byte(i)
		segments = append(segments, netip.AddrFrom16(b))
	}
	f := function{
		name: name, size: shortSize, most: 1, data: user.frame(),
		put: func(c *config.Config, _ uint32) {
			c.Policies = append(c.Policies, onePath(name, srv6.HEncapsRed, segments...))
			c.Steering = append(c.Steering, srpolicy.Steering{Prefix: prefix(steered, 16), Policy: name})
		},
		want: wantIPv6(segments[0], 16, protoIPv4, user.len()),
	}
	if n > 1 { // the first is left out of the SRH
		f.want = wantIPv6(segments[0], 16, protoRouting, 8+16*(n-1)+user.len())
	}
	return f
}

// policiesFunction has a policy for each destination.
func policiesFunction() function {
	user := packet4(inner4, ueNet, shortSize, false)
	return function{
		name: "policies", size: shortSize, most: mostPolicies, data: user.frame(),
		key: key{offset: lenEthernet + 16, base: ueNumber(ueNet), checksum: lenEthernet + 10},
		put: func(c *config.Config, entries uint32) {
			for i := range entries {
				b := segment.As16()
				b[14], b[15] = byte(i>>8), byte(i)
				c.Policies = append(c.Policies, onePath(name("policy", i), srv6.HEncapsRed, netip.AddrFrom16(b)))
				c.Steering = append(c.Steering, srpolicy.Steering{Prefix: prefix(ue(i), 32), Policy: name("policy", i)})
			}
		},
		want: wantIPv6(segment, 14, protoIPv4, user.len()),
	}
}

// firstRoute is the first of the destinations that have a route each.
var firstRoute = addr("20.0.0.0")

// routesFunction decapsulates packets for destinations that have a route each.
func routesFunction() function {
	sid := sidAt(20 * sidsOfFunction)
	user := packet4(inner4, firstRoute, shortSize, false)
	inner := uint32(lenEthernet + lenIPv6)
	out := wantIPv4(firstRoute, protoUDP, shortSize)
	out.destination = out.destination[:2] // that all have
	return function{
		name: "routes", size: shortSize, most: mostRoutes, data: user.in(packet.IPv6{Src: gnb6, Dst: sid}).frame(),
		key:  key{offset: inner + 16, base: ueNumber(firstRoute), checksum: inner + 10},
		put:  putSID(srv6.LocalSID{SID: prefix(sid, 64), Behavior: srv6.EndDT4, Table: customerTable}),
		want: out,
	}
}

// routeLines are of ip(8): a route for each of the first n destinations.
func routeLines(n uint32) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("route add %s via %s table %d", ueAt(ueNumber(firstRoute)+i), peer4, customerTable))
	}
	return lines
}

// sidsFunction is End of as many SIDs.
func sidsFunction() function {
	f := endpoints(shortSize)[0]
	f.size = shortSize
	return f
}
