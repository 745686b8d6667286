package policies

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
	"github.com/culvert-net/culvert/internal/packet"
)

// The directions of flows, by where the pod is. Those to outside of the cluster the kernel forwards.
const (
	Ingress   = "ingress"
	Egress    = "egress"
	Forwarded = "forwarded"
)

// payload makes frames of 64 octets with FCS.
const payload = 18

const dontFragment = 0x4000

// Offsets in an IPv4 header.
const (
	checksumAt    = 10
	sourceAt      = 12
	destinationAt = 16
)

func datagram(from, to netip.Addr, source, destination uint16) []packet.Layer {
	u := packet.UDP{Sport: source, Dport: destination, Checksum: new(uint16)}
	return []packet.Layer{packet.IPv4{Src: from, Dst: to, Fragment: dontFragment}, u, packet.Payload{Data: make(packet.Hex, payload)}}
}

// load is what goes to a pod or comes from it, of flows with so many remotes.
func (h *host) load(direction string, p pod, remotes int) rig.Load {
	if direction == Ingress {
		frame := ingressFrame(remote(0), p.address)
		key := place(remote(0), rig.LenEthernet+rig.LenIPv6, sourceAt)
		return rig.Load{Port: uplink, Frame: progrun.Frame{Data: frame, Keys: uint32(remotes), Key: key}, Program: h.Bench.Pass(),
			Want: rig.WantIPv4(p.address, rig.ProtoUDP, rig.LenUDP+payload)}
	}
	source, to, want := uint16(podPort), remote(0), rig.WantIPv6(otherSID, 16, rig.ProtoIPv4, rig.LenIPv4+rig.LenUDP+payload)
	if direction == Forwarded {
		source, to = p.outward, outside(0)
		want = rig.WantIPv4(to, rig.ProtoUDP, rig.LenUDP+payload)
		want.Destination = want.Destination[:2]
	}
	eth := packet.Ethernet{Dst: packet.Hex(p.host), Src: packet.Hex(p.mac)}
	frame := packet.Frame(append([]packet.Layer{eth}, datagram(p.address, to, source, remotePort)...)...)
	key := place(to, rig.LenEthernet, destinationAt)
	return rig.Load{Port: p.end, Frame: progrun.Frame{Data: frame, Keys: uint32(remotes), Key: key}, Program: h.Bench.Pass(), Want: want}
}

// answers are to what a pod has sent to outside: to the node, whose address masquerading gives its packets.
func (h *host) answers(p pod, remotes int) rig.Load {
	eth := packet.Ethernet{Dst: packet.Hex(node.MAC(3)), Src: packet.Hex(node.MAC(4))}
	frame := packet.Frame(append([]packet.Layer{eth}, datagram(outside(0), ownIPv4, remotePort, p.outward)...)...)
	key := place(outside(0), rig.LenEthernet, sourceAt)
	return rig.Load{Port: uplink, Frame: progrun.Frame{Data: frame, Keys: uint32(remotes), Key: key}, Program: h.Bench.Pass(),
		Want: rig.WantIPv4(p.address, rig.ProtoUDP, rig.LenUDP+payload)}
}

// foreignAddress is that of a pod of the other node that no rule allows.
var foreignAddress = netip.MustParseAddr("10.245.255.254")

// foreign is what no rule allows: from a pod of the other node that is none of the remotes.
func (h *host) foreign(p pod) rig.Load {
	l := h.load(Ingress, p, 0)
	l.Frame.Data = ingressFrame(foreignAddress, p.address)
	return l
}

// toMany is what goes to pods of which this is the first.
func (h *host) toMany(first pod, pods int) rig.Load {
	l := h.load(Ingress, first, 0)
	l.Frame.Keys, l.Frame.Key = uint32(pods), place(first.address, rig.LenEthernet+rig.LenIPv6, destinationAt)
	l.Want.Destination = l.Want.Destination[:3]
	return l
}

func ingressFrame(from, to netip.Addr) []byte {
	eth := packet.Ethernet{Dst: packet.Hex(node.MAC(3)), Src: packet.Hex(node.MAC(4))}
	outer := packet.IPv6{Src: otherAddress, Dst: ownSID}
	return packet.Frame(append([]packet.Layer{eth, outer}, datagram(from, to, remotePort, podPort)...)...)
}

// place is where the number is of addresses from the first on.
func place(first netip.Addr, ip, address uint32) progrun.Place {
	a := first.As4()
	base := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	return progrun.Place{Offset: ip + address, Base: base, Checksum: ip + checksumAt}
}

// forwarding is L2 forwarding of the frame that a pod sends.
func (h *host) forwarding(program *progrun.Program) rig.Load {
	eth := packet.Ethernet{Dst: packet.Hex(node.MAC(1)), Src: packet.Hex(node.MAC(2))}
	frame := packet.Frame(append([]packet.Layer{eth}, datagram(netip.MustParseAddr("192.0.2.2"), remote(0), podPort, remotePort)...)...)
	return rig.Load{Port: node.PortIn, Frame: progrun.Frame{Data: frame}, Program: program, Want: rig.WantLike(frame)}
}
