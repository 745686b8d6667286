package catalog

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Of fewDestinations the data path's cache holds what was looked up, of manyDestinations hardly any:
// it has 8,192 slots.
const (
	fewDestinations  = 1000
	manyDestinations = 100_000
)

// toMany has the frames go to n destinations at random, from `first` on. They are of the packet `at`
// octets behind the frames' start, which comes out.
func (f Function) toMany(n uint32, first netip.Addr, at uint32) Function {
	f.teid, f.Key, f.twin = f.Key, key{Offset: at + 16, checksum: at + 10}, key{}
	if first.Is6() { // UDP has a checksum over it
		f.Key = key{Offset: at + 24 + 4, checksum: at + rig.LenIPv6 + 6}
	}
	f.Key.base = binary.BigEndian.Uint32(networks(first.AsSlice()))
	f.Most, f.Keys = 1, n
	f.Want.Destination = f.Want.Destination[:1] // that all have
	return f
}

// networks are the 32 bits by which an address is one of many: of IPv6 those that an operator gives
// to its customers' networks.
func networks(address []byte) []byte {
	if len(address) == 4 {
		return address
	}
	return address[4:8]
}

// prefixesFrom are 10,000 prefixes: IPv4 ones of 28 bits, and IPv6 ones of 60 bits, as access networks
// give to homes.
func prefixesFrom(first netip.Addr) (list []netip.Prefix) {
	const prefixes, step = 10_000, 16
	b, bits := first.AsSlice(), 28
	if first.Is6() {
		bits = 60
	}
	for range prefixes {
		a, _ := netip.AddrFromSlice(b) // as long as it was
		list = append(list, netip.PrefixFrom(a, bits))
		binary.BigEndian.PutUint32(networks(b), binary.BigEndian.Uint32(networks(b))+step)
	}
	return list
}

const mainTable = 254

// routesFrom returns routes of these prefixes in a table, as lines of ip(8).
func routesFrom(first netip.Addr, table uint32) (lines []string) {
	via := Peer4
	if first.Is6() {
		via = Peer6
	}
	for _, to := range prefixesFrom(first) {
		lines = append(lines, fmt.Sprintf("route add %s via %s table %d", to, via, table))
	}
	return lines
}

// uplinkDestinations returns the uplink of one session to n destinations, by 10,000 routes.
func uplinkDestinations(s Sessions, n uint32, first netip.Addr, size int) Function {
	f := uplinkTo(fmt.Sprintf("_destinations_%d", n), s, first, size).toMany(n, first, uplinkInner)
	f.Routes = routesFrom(first, mainTable)
	return f
}

// uplinkECMP returns the uplink by a route with two next hops.
func uplinkECMP(suffix string, s Sessions, to netip.Addr, bits, size int) Function {
	const second = "198.51.100.3"
	f := uplinkTo(suffix, s, to, size)
	f.Most = FewSessions
	f.Routes = []string{
		fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", second, node.MAC(4), node.PortOut),
		fmt.Sprintf("route add %s nexthop via %s nexthop via %s", Prefix(to, bits), Peer4, second),
	}
	return f
}

// endDestinations is End.DT4 or End.DT6 with a table of 10,000 routes, to n destinations.
func endDestinations(name string, number, n uint32, first netip.Addr, size int) Function {
	sid, table, source, behavior := SIDAt(number*SIDsOfFunction), CustomerTable+number, Inner4, srv6.EndDT4
	if first.Is6() {
		source, behavior = Inner6, srv6.EndDT6
	}
	return Function{
		Name: name, Size: size, Want: wantDatagram(first, size), Routes: routesFrom(first, table),
		Data: datagram(source, first, uePort, remotePort, size, false).in(packet.IPv6{Src: GNB6, Dst: sid}).frame(),
		put:  putSID(srv6.LocalSID{SID: Prefix(sid, 64), Behavior: behavior, Table: table}),
	}.toMany(n, first, rig.LenEthernet+rig.LenIPv6)
}

// redDestinations is H.Encaps.Red by 10,000 prefixes, to many destinations.
func redDestinations(suffix string, first netip.Addr, size int) Function {
	source, inner := Inner4, uint8(rig.ProtoIPv4)
	if first.Is6() {
		source, inner = Inner6, rig.ProtoIPv6
	}
	user := datagram(source, first, uePort, remotePort, size, first.Is6())
	return Function{
		Name: "h_encaps_red@" + suffix, Size: size, Data: user.frame(), Want: rig.WantIPv6(Segment, 16, inner, user.len()),
		put: func(c *config.Config, _ uint32) {
			for _, to := range prefixesFrom(first) {
				c.Steering = append(c.Steering, srpolicy.Steering{Prefix: to, Policy: PolicyReduced})
			}
		},
	}.toMany(manyDestinations, first, rig.LenEthernet)
}
