package catalog

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// The most that there can be of each.
const (
	MostPolicies = 4000 // of the 4096 that the tables have by default
	MostRoutes   = 50_000
	MostRules    = 16
)

// SegmentsFunction pushes n segments.
func SegmentsFunction(n int) Function {
	steered := netip.AddrFrom4([4]byte{10, byte(128 + n), 0, 1})
	name := fmt.Sprintf("segments_%d", n)
	user := packet4(Inner4, steered, ShortSize, false)
	return Function{
		Name: name, Size: ShortSize, Most: 1, Data: user.frame(),
		put: func(c *config.Config, _ uint32) {
			c.Policies = append(c.Policies, OnePath(name, srv6.HEncapsRed, segmentsFrom(0, n)...))
			c.Steering = append(c.Steering, srpolicy.Steering{Prefix: Prefix(steered, 16), Policy: name})
		},
		Want: wantReduced(n, user.len()),
	}
}

// segmentsFrom are n segments, of which the i-th of all is Segment with i in its last octet.
func segmentsFrom(first, n int) (segments []netip.Addr) {
	for i := range n {
		b := Segment.As16()
		b[15] = byte(first + i)
		segments = append(segments, netip.AddrFrom16(b))
	}
	return segments
}

// wantReduced is what H.Encaps.Red makes of `length` octets with the segments of segmentsFrom(0, n).
func wantReduced(n, length int) rig.Want {
	if n == 1 { // the first is left out of the SRH
		return rig.WantIPv6(Segment, 16, rig.ProtoIPv4, length)
	}
	return rig.WantIPv6(Segment, 16, rig.ProtoRouting, 8+16*(n-1)+length)
}

// PoliciesFunction has a policy for each destination.
func PoliciesFunction() Function {
	user := packet4(Inner4, UENet, ShortSize, false)
	return Function{
		Name: "policies", Size: ShortSize, Most: MostPolicies, Data: user.frame(),
		Key: key{Offset: rig.LenEthernet + 16, base: UENumber(UENet), checksum: rig.LenEthernet + 10},
		put: func(c *config.Config, entries uint32) {
			for i := range entries {
				b := Segment.As16()
				binary.BigEndian.PutUint16(b[14:], uint16(i))
				c.Policies = append(c.Policies, OnePath(Name("policy", i), srv6.HEncapsRed, netip.AddrFrom16(b)))
				c.Steering = append(c.Steering, srpolicy.Steering{Prefix: Prefix(UE(i), 32), Policy: Name("policy", i)})
			}
		},
		Want: rig.WantIPv6(Segment, 14, rig.ProtoIPv4, user.len()),
	}
}

// firstRoute is the first of the destinations that have a route each.
var firstRoute = Addr("20.0.0.0")

// RoutesFunction decapsulates packets for destinations that have a route each.
func RoutesFunction() Function {
	sid := SIDAt(20 * SIDsOfFunction)
	user := packet4(Inner4, firstRoute, ShortSize, false)
	inner := uint32(rig.LenEthernet + rig.LenIPv6)
	out := rig.WantIPv4(firstRoute, rig.ProtoUDP, ShortSize)
	out.Destination = out.Destination[:2] // that all have
	return Function{
		Name: "routes", Size: ShortSize, Most: MostRoutes, Data: user.in(packet.IPv6{Src: GNB6, Dst: sid}).frame(),
		Key:  key{Offset: inner + 16, base: UENumber(firstRoute), checksum: inner + 10},
		put:  putSID(srv6.LocalSID{SID: Prefix(sid, 64), Behavior: srv6.EndDT4, Table: CustomerTable}),
		Want: out,
	}
}

// RouteLines are of ip(8): a route for each of the first n destinations.
func RouteLines(n uint32) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("route add %s via %s table %d", UEAt(UENumber(firstRoute)+i), Peer4, CustomerTable))
	}
	return lines
}

// SIDsFunction is End of as many SIDs.
func SIDsFunction() Function {
	f := endpoints(ShortSize)[0]
	f.Size = ShortSize
	return f
}
