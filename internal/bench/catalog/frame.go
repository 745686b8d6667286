package catalog

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/packet"
)

// stack is a packet, its outermost header first.
type stack []packet.Layer

// in puts headers around a packet.
func (s stack) in(headers ...packet.Layer) stack { return append(headers, s...) }

func (s stack) len() int { return len(packet.Frame(s...)) }

// frame is the packet as the interface that is measured receives it, without FCS.
func (s stack) frame() []byte { return packet.Frame(s.in(ethernet())...) }

func ethernet() packet.Layer {
	return packet.Ethernet{Dst: packet.Hex(node.MAC(1)), Src: packet.Hex(node.MAC(2))}
}

// dontFragment is in the field Fragment.
const dontFragment = 0x4000

func ipv4(src, dst netip.Addr) packet.Layer {
	return packet.IPv4{Src: src, Dst: dst, Fragment: dontFragment}
}

func udp(source, destination uint16, checksum bool) packet.Layer {
	u := packet.UDP{Sport: source, Dport: destination}
	if !checksum {
		u.Checksum = new(uint16)
	}
	return u
}

const gtpuPort = 2152

// gPDU puts a G-PDU between two addresses around a packet. Its UDP checksum is left
// out over IPv4.
func (s stack) gPDU(src, dst netip.Addr, header packet.GTPU) stack {
	outer := ipv4(src, dst)
	if src.Is6() {
		outer = packet.IPv6{Src: src, Dst: dst}
	}
	return s.in(outer, udp(50000, gtpuPort, src.Is6()), header)
}

// packet4 and packet6 are what users send: `size` octets behind an IPv4 header
// (26 make the frames of 64 octets with FCS), and as large a packet of IPv6, if
// there is room for what is behind its header: 20 octets at least (78).
func packet4(src, dst netip.Addr, size int, checksum bool) stack {
	return datagram(src, dst, uePort, remotePort, size, checksum)
}

func packet6(src, dst netip.Addr, size int) stack {
	return datagram(src, dst, uePort, remotePort, size, true)
}

// datagram is packet4 or packet6 from one port to another. Over IPv6 it always has a checksum.
func datagram(src, dst netip.Addr, sport, dport uint16, size int, checksum bool) stack {
	if src.Is6() {
		return stack{packet.IPv6{Src: src, Dst: dst}, udp(sport, dport, true), packetOf(Size6(size))}
	}
	return stack{ipv4(src, dst), udp(sport, dport, checksum), packetOf(size)}
}

// wantDatagram is such a datagram by itself.
func wantDatagram(dst netip.Addr, size int) rig.Want {
	if dst.Is6() {
		return rig.WantIPv6(dst, 16, rig.ProtoUDP, Size6(size))
	}
	return rig.WantIPv4(dst, rig.ProtoUDP, size)
}

// The ports of users' packets: the first one of the UE, which has one for each of its flows, and the
// other end's.
const (
	uePort     = 4000
	flowsOfUE  = 8
	remotePort = 5000
)

// packetOf is the payload of a UDP datagram of a size.
func packetOf(size int) packet.Payload {
	return packet.Payload{Data: make(packet.Hex, size-rig.LenUDP)}
}

// Size6 returns how many octets stand behind the IPv6 header of packet6.
func Size6(size int) int { return max(20, size-(rig.LenIPv6-rig.LenIPv4)) }
