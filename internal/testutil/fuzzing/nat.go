package fuzzing

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/packet"
)

// natPool are the UEs that may be behind a NAT, which lets no mapping run out.
const natPool, natAddresses = "10.46.0.0/24", "10.211.0.0/30"

func (src sessionSource) nats(n *model.Network) {
	if src.s.chance(40) {
		return
	}
	long := uint32(1_000_000)
	n.NATs = []model.NAT{{Pool: prefix(natPool), NAT: nat.NAT{Addresses: prefix(natAddresses), PortsPerUE: pick(src.s, uint32(8), 8, 8, 16, 64, 1008),
		Timeouts: nat.Timeouts{UDP: long, ICMP: long, TCP: long, TCPTransitory: long}}}}
}

// natted is a packet for a public address, from outside or from a UE, or a UE's that quotes one.
func (src frameSource) natted() []packet.Layer {
	n := src.n.NATs[0]
	block, _ := n.BlockOf(n.Pool, src.s.address4("10.46.0.0"))
	port := block.First + uint16(src.s.IntN(int(n.PortsPerUE)))
	host, hostPort := src.s.address4(pick(src.s, "10.2.2.0", "10.2.2.0", "10.2.2.0", "10.9.0.0", "10.211.0.0")), uint16(pick(src.s, 80, 443, 53))
	if src.s.chance(50) {
		to := natEnds{host, block.Address, hostPort, port}
		if src.s.chance(5) {
			to.dst = src.s.address4("10.46.0.0")
		}
		if src.s.chance(35) {
			return src.quoting(natEnds{src.s.address4("10.9.0.0"), to.dst, 0, 0}, natEnds{to.dst, host, port, hostPort})
		}
		return src.between(to)
	}
	r := src.leaving()
	ue := src.localAddress(r.Sources, netip.Prefix{}, true)
	layers, private := src.tunnelled(r), uint16(src.s.upTo(980, 1040))
	if src.s.chance(65) {
		return append(layers, src.between(natEnds{ue, block.Address, private, port})...)
	}
	remote := natEnds{pick(src.s, host, block.Address), ue, pick(src.s, hostPort, port), private}
	return append(layers, src.quoting(natEnds{ue, remote.src, 0, 0}, remote)...)
}

// leaving is an uplink rule of a UE whose packets leave by a route, if there is one: mostly
// the first, so that a UE has so many flows that its ports run out.
func (src frameSource) leaving() *model.Rule {
	start := src.s.IntN(pick(src.s, 1, 1, firstEthernet))
	for i := range firstEthernet {
		r := &src.n.Sessions[(start+i)%firstEthernet].Rules[0]
		if r.Forward.Kind == model.ForwardTable && r.Action == model.ActionForward && !r.Forward.Internal && len(r.Filters) == 0 && len(r.Sources) > 0 && r.Sources[0].Addr().Is4() {
			return r
		}
	}
	return &src.n.Sessions[start].Rules[0]
}

// natEnds are the ends of a flow.
type natEnds struct {
	src, dst     netip.Addr
	sport, dport uint16
}

// between is a packet of a flow, of ICMP mostly an echo.
func (src frameSource) between(e natEnds) []packet.Layer {
	p := packet.IPv4{Src: e.src, Dst: e.dst, TTL: src.s.hop(), ID: uint16(src.s.Uint32()), Fragment: pick(src.s, uint16(0x4000), 0x4000, 0, 0, 0, 0, 0x2000, 5)}
	if src.s.chance(6) {
		p.Options = packet.Hex{0x94, 4, 0, 0}
	}
	size := packet.Payload{Count: pick(src.s, 0, 1, src.s.IntN(64), src.s.IntN(256), src.s.IntN(1400))}
	switch src.s.IntN(4) {
	case 0:
		id := pick(src.s, e.sport, e.dport)
		return []packet.Layer{p, packet.ICMP{Type: uint8(pick(src.s, 0, 8, 8, 13, 14, 17)), Rest: uint32(id) << 16}, size}
	case 1:
		t := packet.TCP{Sport: e.sport, Dport: e.dport, Partial: src.s.chance(20)}
		if src.s.chance(60) {
			src.begin(&t)
		}
		return []packet.Layer{p, t, size}
	}
	u := packet.UDP{Sport: e.sport, Dport: e.dport, Partial: src.s.chance(20)}
	if src.s.chance(15) {
		u.Checksum = new(uint16)
	}
	return []packet.Layer{p, u, size}
}

// quoting is an ICMP error about a packet, of which it quotes some.
func (src frameSource) quoting(e, about natEnds) []packet.Layer {
	layers := []packet.Layer{packet.IPv4{Src: e.src, Dst: e.dst, TTL: src.s.hop()}, packet.ICMP{Type: uint8(pick(src.s, 3, 3, 11, 12)), Rest: src.s.Uint32() & 0xffff}}
	quoted := packet.Frame(append([]packet.Layer{packet.Ethernet{}}, src.between(about)...)...)[14:]
	if src.s.chance(40) {
		quoted = quoted[:min(len(quoted), 28+src.s.IntN(20))]
	}
	return append(layers, packet.Payload{Data: quoted})
}
