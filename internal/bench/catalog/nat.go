package catalog

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/smf"
)

// NAT is the pool of a group of UEs, and what it is behind.
type NAT struct {
	Pool netip.Prefix
	nat.NAT
}

// natUEs is how many UEs are behind the NAT. Each has a public address for itself, so that
// frames to them differ in one place.
const natUEs = 16

const natInstance = "nat44"

// natPlace is behind the other groups of few sessions.
const natPlace = 6 * FewSessions / natUEs

// UEPool is what the UPF is configured with.
func (n *NAT) UEPool() config.UEPool {
	return config.UEPool{NetworkInstance: natInstance, Prefixes: []netip.Prefix{n.Pool}, NAT: &n.NAT}
}

// firstUE is the UE of the first session of the first group: of those with UEs elsewhere, as
// if the groups before had theirs in front.
func (s *Sessions) firstUE() netip.Addr {
	first := s.UEs
	switch {
	case s.UE6:
		return firstUE6
	case s.NAT != nil:
		first = s.NAT.Pool.Addr()
	case !first.IsValid():
		return FirstUE
	}
	place, _ := s.at()
	return later(first, -place)
}

// natFunctions are the two directions of a session of Open5GS behind a NAT, and its uplink to many
// destinations. The downlink's frames are for the ports that the uplink's have opened, whose
// checksums it updates.
func natFunctions(size int) []Function {
	n := &NAT{Prefix(Addr("100.96.0.0"), 28), nat.NAT{Addresses: Prefix(Addr("203.0.113.16"), 28), PortsPerUE: nat.Groups * nat.Group}.WithDefaults()}
	s := Sessions{Place: natPlace, Most: natUEs, Dialect: smf.Open5GS, Spec: withRouterSolicitations, NAT: n}
	up, down := Uplink("", s, size), Downlink("", s, size)
	up.Name, down.Name = "nat44_uplink", "nat44_downlink"
	block, _ := n.BlockOf(n.Pool, n.Pool.Addr())
	pdu := stack{ipv4(Dst4, n.Addresses.Addr()), udp(remotePort, n.Choices(block, uePort)[0]+uePort%2, true), packetOf(size)}
	down.Data = pdu.frame()
	down.Key = key{Offset: rig.LenEthernet + 16, base: UENumber(n.Addresses.Addr()), checksum: rig.LenEthernet + 10}
	down.Needs = &up
	// The checksum in UDP stays that of the first destination: the NAT updates it, and judges none.
	many := uplinkDestinations(s, manyDestinations, Addr("100.84.0.0"), size)
	many.Name = "nat44_" + many.Name
	list := []Function{up, down, many}
	for i := range list {
		list[i].flow = key{} // whose ports are mapped
	}
	return list
}
