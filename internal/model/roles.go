package model

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// guard is what the roles of a port let in (docs/reference/semantics.md section 2). The
// nil guard lets everything in: its port has no roles.
type guard struct {
	m  *Model
	in *config.Interface
}

func (m *Model) guardOf(p *Port) *guard {
	for i := range m.network.Config.Interfaces {
		if in := &m.network.Config.Interfaces[i]; in.Name == p.Name && !in.HasRole(config.RoleAny) {
			guarded := m.network.Config.PortOf(*in)
			return &guard{m, &guarded}
		}
	}
	return nil
}

// The methods return "" for what may enter.

// sid is a packet for a local SID.
func (g *guard) sid(s *srv6.LocalSID, src netip.Addr) Reason {
	switch {
	case g == nil, g.in.HasRole(config.RoleSR) && g.m.inDomain(src):
		return ""
	case g.in.HasRole(config.RoleN3, config.RoleN9) && (s.Behavior == srv6.EndMGTP6D || s.Behavior == srv6.EndMGTP6DDi):
		return g.gtpu(src)
	case g.in.HasRole(config.RoleSR, config.RoleEdge):
		return SRDomainEdge
	}
	return NoRole
}

// edge is an IPv6 packet that is for no SID.
func (g *guard) edge(p v6) Reason {
	if g != nil && g.in.HasRole(config.RoleEdge) && !g.in.HasRole(config.RoleSR) && (g.m.inDomain(p.src()) || g.m.inDomain(p.dst()) || p.next() == protoRouting) {
		return SRDomainEdge
	}
	return ""
}

// gtpu is GTP-U from somebody.
func (g *guard) gtpu(src netip.Addr) Reason {
	switch {
	case g == nil:
		return ""
	case !g.in.HasRole(config.RoleN3, config.RoleN9):
		return NoRole
	case !g.in.Peers.Contain(src):
		return NoPeer
	}
	return ""
}

// isN6 says whether packets for UEs enter.
func (g *guard) isN6() bool { return g == nil || g.in.HasRole(config.RoleN6) }

// ue is a packet that is neither for a SID nor for a GTP-U address.
func (g *guard) ue(src, dst netip.Addr) Reason {
	if g == nil {
		return ""
	}
	n := &g.m.network
	if _, ue := g.m.ue(src); g.isN6() && (ue || within(n.Config.GTPU.Pools, src)) && !g.m.returns(src, dst) {
		return UESource
	}
	if !g.isN6() && (within(n.UEPools, dst) || within(n.Config.GTPU.Pools, dst)) {
		return NoRole
	}
	return ""
}

// steersTo is a packet that an entry steers by its destination.
func (g *guard) steersTo(to *srpolicy.Steering, dst netip.Addr) Reason {
	if g != nil && g.isN6() && within(g.m.network.Config.GTPU.Pools, dst) {
		return ""
	}
	return g.steers(to)
}

// steers is a packet that an entry steers.
func (g *guard) steers(to *srpolicy.Steering) Reason {
	role := config.RoleEdge
	switch {
	case g == nil:
		return ""
	case to == nil || to.Tunnel != "": // a framed route, or a tunnel
		role = config.RoleN6
	case to.GTP4D != nil:
		role = config.RoleN3
	}
	if !g.in.HasRole(role) && !(role == config.RoleN3 && g.in.HasRole(config.RoleN9)) {
		return NoRole
	}
	return ""
}

// kernel is a packet that the data path leaves to the kernel. foreign: in a frame for
// another device, of this host or of another one.
func (g *guard) kernel(p kernelPacket, foreign bool) Reason {
	if g == nil || p.ofLink() {
		return ""
	}
	host, _ := g.in.HostAccess()
	switch {
	case g.m.isOwn(p.dst) || !foreign && nobody(p.dst):
		return g.service(p)
	case foreign, host.Forward, g.in.HasRole(config.RoleSR) && p.dst.Is6() && g.m.inDomain(p.src) && g.m.inDomain(p.dst):
		return ""
	}
	return NoRole
}

// isOwn says whether the kernel takes packets to an address as its own.
func (m *Model) isOwn(a netip.Addr) bool {
	s, steered := m.steered(a)
	return steered && s.passes() || m.isGTPU(a)
}

// service is a packet for this host.
func (g *guard) service(p kernelPacket) Reason {
	host, _ := g.in.HostAccess()
	switch {
	case p.protocol == protoUDP && p.destination == 8805:
		if g.in.HasRole(config.RoleN4) {
			return ""
		}
	case p.protocol == protoUDP && p.later && g.in.HasRole(config.RoleN4):
		return ""
	case p.protocol == protoUDP && p.destination == 2152:
		return g.gtpu(p.src)
	case host.Any, p.icmpError(), p.isOneOf(host.Services):
		return ""
	}
	return NotForHost
}

// inside is a packet that came out of another one at this node, and that the kernel would have;
// false: it is for others, and goes on. Neighbours on a link did not send it, so that what they
// alone may send is a service like others.
func (g *guard) inside(p kernelPacket) (Reason, bool) {
	if g == nil || !g.m.isOwn(p.dst) && !nobody(p.dst) {
		return "", false
	}
	return g.service(p), true
}

// probePort is that of package liveness, whose probes come back to a SID.
const probePort = 55862

// atSID is a packet whose upper layer a SID leaves to the kernel.
func (g *guard) atSID(p kernelPacket) Reason {
	probe := p.protocol == protoUDP && p.source == probePort && p.destination == probePort
	if g == nil || !g.m.isOwn(p.dst) || probe {
		return ""
	}
	return g.service(p)
}

// upperLayer6 is what decides of a packet whose extension headers a SID has read.
func upperLayer6(p v6, c chain) kernelPacket {
	return kernelPacket{src: p.src(), dst: p.dst(), hops: p.hopLimit(), protocol: c.upper}.transport(p[c.at:])
}

// vouches says who sent an error about what this node sent that was too big: 1 a node of the
// SR domain, 2 a GTP-U peer, 3 both; 0: nobody of these, or it is no such error.
func (g *guard) vouches(p kernelPacket) (who uint32) {
	if !p.tooBig() {
		return 0
	}
	if g.in.HasRole(config.RoleSR) && p.src.Is6() && g.m.inDomain(p.src) {
		who |= 1
	}
	if g.gtpu(p.src) == "" {
		who |= 2
	}
	return who
}

// kernelPacket is what decides whether the kernel may have a packet.
type kernelPacket struct {
	src, dst            netip.Addr
	protocol            uint8
	hops                uint8
	icmp                int    // type; -1: none
	source, destination uint16 // ports; 0: none
	ack                 bool
	later               bool // a fragment behind the first one
	code                uint8
	cut                 bool // a fragment, the first one or a later one
	behindOptions       bool
}

func kernelPacket6(b []byte) kernelPacket {
	p := v6(b)
	k := kernelPacket{src: p.src(), dst: p.dst(), hops: p.hopLimit(), protocol: p.next()}
	rest := []byte(p[40:])
	if k.protocol == 0 && len(rest) >= 2 { // hop-by-hop options, of MLD
		k.behindOptions = true
		k.protocol, rest = rest[0], rest[min(len(rest), 8+8*int(rest[1])):]
	}
	if k.protocol == protoFragment && len(rest) >= 8 && rest[0] == protoUDP {
		k.protocol, k.later, rest = protoUDP, be.Uint16(rest[2:])&0xfff8 != 0, rest[8:]
	}
	return k.transport(rest)
}

func kernelPacket4(b []byte) kernelPacket {
	p := v4(b)
	k := kernelPacket{src: p.src(), dst: p.dst(), hops: p.ttl(), protocol: p.protocol()}
	k.later = p.offset() != 0
	k.cut = p.fragment()
	return k.transport(p[min(len(p), p.header()):])
}

func (k kernelPacket) transport(b []byte) kernelPacket {
	k.icmp = -1
	if len(b) < 4 || k.later {
		return k
	}
	switch k.protocol {
	case protoICMP, protoICMPv6:
		if k.dst.Is4() == (k.protocol == protoICMP) { // not that of the other version
			k.icmp, k.code = int(b[0]), b[1]
		}
	case protoTCP, protoUDP, protoSCTP:
		k.source, k.destination = be.Uint16(b), be.Uint16(b[2:])
		k.ack = k.protocol == protoTCP && len(b) > 13 && b[13]&0x10 != 0
	}
	return k
}

// ofLink is neighbour discovery, MLD and IGMP.
func (k kernelPacket) ofLink() bool {
	if k.dst.Is4() {
		return k.protocol == 2
	}
	t := k.icmp
	return k.protocol == protoICMPv6 && (t >= 133 && t <= 137 && k.hops == 255 || t >= 130 && t <= 132 || t == 143)
}

func (k kernelPacket) icmpError() bool {
	if k.dst.Is4() {
		return k.protocol == protoICMP && (k.icmp == 3 || k.icmp == 11 || k.icmp == 12)
	}
	return k.protocol == protoICMPv6 && k.icmp >= 1 && k.icmp <= 4
}

// tooBig says whether it is an error about what was too big for a link of the path.
func (k kernelPacket) tooBig() bool {
	if k.dst.Is4() {
		return k.protocol == protoICMP && k.icmp == 3 && k.code == 4 && !k.cut
	}
	return k.protocol == protoICMPv6 && k.icmp == 2 && !k.behindOptions
}

func (k kernelPacket) isOneOf(list []config.HostService) bool {
	for _, s := range list {
		switch {
		case s.Protocol != k.protocol:
		case s.Protocol == protoICMP && (k.icmp == 0 || k.icmp == 8),
			s.Protocol == protoICMPv6 && (k.icmp == 128 || k.icmp == 129):
			return true
		case s.Protocol == protoICMP || s.Protocol == protoICMPv6:
		case s.Port == 0 || s.Port == k.destination, s.Answers && k.ack && s.Port == k.source && k.destination >= 32768:
			return true
		}
	}
	return false
}
