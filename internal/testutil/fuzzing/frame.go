package fuzzing

import (
	"encoding/binary"
	"net/netip"

	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/srv6"
)

var be = binary.BigEndian

// maxFrame keeps a frame, with what is pushed, within what a test run takes
// and a record for the slow path holds.
const maxFrame = 1800

// Frame makes a valid frame for something that the network does.
func (s Source) Frame(n *model.Network) []byte {
	if s.chance(12) {
		return s.toEthernet(n)
	}
	var layers []packet.Layer
	switch s.IntN(16) {
	case 0, 1, 2, 3, 4:
		layers = s.toSID(n)
	case 5, 6, 7:
		layers = s.toGTPU(n)
	case 8, 9, 10, 11, 12, 13:
		layers = s.toSession(n)
	default:
		layers = s.steered(n)
	}
	eth := packet.Ethernet{Dst: packet.Hex{2, 0, 0, 0, 0, byte(s.IntN(4))}}
	switch s.IntN(8) {
	case 0:
		eth.VLAN = []uint16{uint16(pick(s, 0, 5, 77))}
	case 1:
		eth.VLAN = []uint16{5, uint16(pick(s, 6, 7))}
	}
	frame := packet.Frame(append([]packet.Layer{eth}, layers...)...)
	return frame[:min(len(frame), maxFrame)]
}

// Noise is no packet at all, or the beginning of one.
func (s Source) Noise() []byte {
	b := make([]byte, s.upTo(14, 200))
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	if s.chance(80) {
		be.PutUint16(b[12:], pick(s, uint16(0x86dd), 0x0800, 0x8100))
	}
	if len(b) > 54 && s.chance(50) {
		b[14] = pick(s, byte(0x60), 0x45, 0x46)
		copy(b[38:], []byte{0x20, 1, 0xd, 0xb8, 1, byte(s.IntN(24))})
	}
	return b
}

func (s Source) hop() *uint8 {
	v := uint8(pick(s, 64, 64, 64, 64, 64, 255, 2, 1, 0))
	return &v
}

func (s Source) address6(within string) netip.Addr {
	a := ip(within).As16()
	a[15] = byte(s.upTo(1, 30))
	return netip.AddrFrom16(a)
}

func (s Source) address4(within string) netip.Addr {
	a := ip(within).As4()
	a[3] = byte(s.upTo(1, 30))
	return netip.AddrFrom4(a)
}

// inner is a packet on its own: IPv4 or IPv6, and what it carries.
func (s Source) inner(version int) []packet.Layer {
	if version == 4 {
		p := packet.IPv4{Src: s.address4("10.1.1.0"), Dst: s.address4(pick(s, "10.2.2.0", "10.250.0.0", "10.3.0.0", "10.50.0.0")),
			TTL: s.hop(), TOS: uint8(s.Uint32()), ID: uint16(s.Uint32()), Fragment: pick(s, uint16(0x4000), 0x4000, 0, 0, 0x2000, 5)}
		if s.chance(10) {
			p.Options = packet.Hex{0x94, 4, 0, 0}
		}
		return append([]packet.Layer{p}, s.upper(false)...)
	}
	p := packet.IPv6{Src: s.address6("2001:db8:a::"), Dst: s.address6(pick(s, "2001:db8:e::", "2001:db8:b::", "3fff::", "2001:db8:3::")),
		HopLimit: s.hop(), Class: uint8(s.Uint32()), FlowLabel: s.Uint32() & 0xfffff}
	layers := []packet.Layer{p}
	if s.chance(8) {
		layers = append(layers, packet.Extension{Kind: pick(s, uint8(0), 60, 44), Data: packet.Hex{0, 1, 0, 0, 0, 1}})
	}
	return append(layers, s.upper(true)...)
}

// upper is an upper layer with a payload.
func (s Source) upper(v6 bool) []packet.Layer {
	size := packet.Payload{Count: pick(s, 0, 1, s.IntN(64), s.IntN(256), s.IntN(1400)), Proto: 253}
	sport, dport := uint16(s.upTo(1000, 1010)), uint16(pick(s, 80, 443, 2152, 53))
	switch s.IntN(6) {
	case 0:
		return []packet.Layer{packet.ICMP{V6: v6, Type: uint8(pick(s, 8, 128, 3, 1)), Rest: s.Uint32()}, size}
	case 1:
		return []packet.Layer{size}
	case 2:
		return []packet.Layer{packet.TCP{Sport: sport, Dport: dport, Partial: s.chance(30)}, size}
	}
	u := packet.UDP{Sport: sport, Dport: dport, Partial: s.chance(20)}
	if s.chance(10) {
		u.Checksum = new(uint16)
	}
	return []packet.Layer{u, size}
}

// carried is what a tunnel can hold.
func (s Source) carried() []packet.Layer {
	if s.chance(20) {
		return append([]packet.Layer{packet.Ethernet{Dst: packet.Hex{2, 0, 0, 0, 0, byte(s.IntN(9))}}}, s.inner(pick(s, 4, 6))...)
	}
	return s.inner(pick(s, 4, 6))
}

// toSID goes to one of the SIDs, or binding SIDs, with a random argument.
func (s Source) toSID(n *model.Network) []packet.Layer {
	c := &n.Config
	sid := c.SIDs[s.IntN(len(c.SIDs))]
	dst := sid.SID.Addr().As16()
	for i := sid.SID.Bits(); i < 128; i++ {
		if s.chance(30) && !(has(sid.Flavors, srv6.NextCSID) && s.chance(95)) {
			dst[i/8] |= 1 << (7 - i%8)
		}
	}
	if p := c.Policies[s.IntN(4)]; s.chance(5) && p.BindingSID.IsValid() {
		dst = p.BindingSID.As16()
	}
	p := packet.IPv6{Src: s.address6("2001:db8:a::"), Dst: netip.AddrFrom16(dst), HopLimit: s.hop(),
		Class: uint8(s.Uint32()), FlowLabel: s.Uint32() & 0xfffff}
	layers := []packet.Layer{p}
	for s.chance(8) {
		layers = append(layers, packet.Extension{Kind: pick(s, uint8(0), 60), Data: packet.Hex{1, byte(s.IntN(20))}})
	}
	if want, may := s.segmentsLeft(sid.Behavior); may {
		layers = append(layers, s.srh(dst, want))
	}
	if s.chance(4) {
		layers = append(layers, packet.Extension{Kind: pick(s, uint8(44), 60, 43), Data: packet.Hex{0, 1, 0, 0, 0, 1}})
	}
	if sid.Behavior == srv6.EndMGTP6D || sid.Behavior == srv6.EndMGTP6DDi {
		return append(append(layers, packet.UDP{Sport: 2152, Dport: 2152}), s.gtpu(sid.PDUType)...)
	}
	if s.chance(10) {
		return append(layers, s.upper(true)...)
	}
	return append(layers, s.takenBy(sid.Behavior)...)
}

func has(flavors []srv6.Flavor, f srv6.Flavor) bool {
	for _, g := range flavors {
		if g == f {
			return true
		}
	}
	return false
}

// segmentsLeft is what a behaviour mostly sees, and whether there is an SRH.
func (s Source) segmentsLeft(b srv6.Behavior) (uint8, bool) {
	switch b {
	case srv6.End, srv6.EndX, srv6.EndT, srv6.EndLimit, srv6.EndB6Encaps, srv6.EndB6EncapsRed:
		return uint8(pick(s, 0, 1, 1, 2, 3)), s.chance(85)
	case srv6.EndMGTP6E:
		return 1, s.chance(95)
	}
	return uint8(pick(s, 0, 0, 0, 0, 0, 0, 1)), s.chance(50)
}

func (s Source) srh(dst [16]byte, left uint8) packet.SRH {
	h := packet.SRH{Left: &left, Tag: uint16(pick(s, 0, 0, 0, 0, 1, 2, 4, 8, 3, 0x10))}
	for range max(int(left), 1) {
		h.Segments = append(h.Segments, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0xe, byte(s.IntN(200)), 15: byte(s.IntN(9))}))
	}
	if s.chance(60) {
		h.Segments = append(h.Segments, netip.AddrFrom16(dst))
	}
	if s.chance(10) {
		h.TLV = packet.Hex{1, 6, 0, 0, 0, 0, 0, 0}
	}
	return h
}

// takenBy is an upper layer that a behaviour takes.
func (s Source) takenBy(b srv6.Behavior) []packet.Layer {
	switch b {
	case srv6.EndDX2:
		return append([]packet.Layer{packet.Ethernet{}}, s.inner(4)...)
	case srv6.EndDX4, srv6.EndDT4:
		return s.inner(4)
	case srv6.EndDX6, srv6.EndDT6:
		return s.inner(6)
	case srv6.EndMAP:
		return s.upper(true)
	}
	return s.carried()
}

// gtpu is a GTP-U message with what it carries.
func (s Source) gtpu(pdu srv6.PDUType) []packet.Layer {
	teid := pick(s, uint32(0x100), 0x101, 0xfedc0102, 0x103, 0x12000104, 0x100, s.Uint32(), 0, 0x01000100)
	g := packet.GTPU{TEID: teid}
	if s.chance(15) {
		kind := uint8(pick(s, 1, 2, 26, 254, 31, 253))
		g.Type = &kind
	}
	if s.chance(20) {
		sequence := uint16(s.Uint32())
		g.Sequence = &sequence
	}
	if s.chance(10) {
		g.NPDU = new(uint8)
	}
	for s.chance(20) {
		content := make(packet.Hex, pick(s, 2, 6, 10))
		for i := range content {
			content[i] = byte(s.Uint32())
		}
		g.Extensions = append(g.Extensions, packet.GTPUExt{Type: pick(s, uint8(0x40), 0xc0, 0x20, 0x81, 0x84, 0x85, 0x85, 0x82, 0xc1), Content: content})
	}
	if s.chance(60) {
		g.Container = &packet.PDUSession{Type: uint8(pick(s, 0, 0, 1, 1, 2)), QFI: uint8(s.IntN(64)), RQI: s.chance(50)}
	}
	layers := []packet.Layer{g}
	switch {
	case g.Type != nil && s.chance(50):
		return append(layers, packet.Payload{Count: s.IntN(9)})
	case s.chance(8):
		return append(layers, s.carried()...)
	case pdu == srv6.PDUTypeIPv4:
		return append(layers, s.inner(4)...)
	case pdu == srv6.PDUTypeIPv6:
		return append(layers, s.inner(6)...)
	case pdu == srv6.PDUTypeEthernet || pdu == srv6.PDUTypeUnstructured:
		return append(append(layers, packet.Ethernet{}), s.inner(4)...)
	}
	return append(layers, s.inner(pick(s, 4, 6))...)
}

// toGTPU goes to a GTP-U address of ours, or to H.M.GTP4.D.
func (s Source) toGTPU(n *model.Network) []packet.Layer {
	udp := packet.UDP{Sport: uint16(s.upTo(2150, 2154)), Dport: uint16(pick(s, 2152, 2152, 2152, 2152, 2152, 2152, 2152, 2123))}
	if s.chance(30) {
		p := packet.IPv6{Src: s.address6(pick(s, "2001:db8:1::", "2001:db8:3::", "3fff::")), Dst: ip("2001:db8:3::1"),
			HopLimit: s.hop(), Class: uint8(s.Uint32())}
		layers := []packet.Layer{p}
		if s.chance(5) {
			layers = append(layers, packet.Extension{Kind: pick(s, uint8(44), 60), Data: packet.Hex{0, 1, 0, 0, 0, 1}})
		}
		return append(append(layers, udp), s.gtpu(srv6.PDUTypeNone)...)
	}
	p := packet.IPv4{Src: s.address4(pick(s, "10.0.0.0", "10.3.0.0", "224.0.0.0")), Dst: ip("10.3.0.1"), TTL: s.hop(), TOS: uint8(s.Uint32()),
		Fragment: pick(s, uint16(0x4000), 0, 0x4000, 0, 0x4000, 0, 0x4000, 0, 0x2000, 3)}
	pdu := srv6.PDUTypeNone
	for _, st := range n.Config.Steering {
		if st.GTP4D != nil && s.chance(30) {
			p.Dst, pdu = s.address4(st.Prefix.Addr().String()), st.GTP4D.PDUType
		}
	}
	if s.chance(5) {
		p.Options = packet.Hex{0x94, 4, 0, 0}
	}
	return append([]packet.Layer{p, udp}, s.gtpu(pdu)...)
}

// steered goes to a prefix with a steering entry, or to nobody.
func (s Source) steered(_ *model.Network) []packet.Layer {
	if s.chance(50) {
		inner := s.inner(4)
		p := inner[0].(packet.IPv4)
		p.Dst = s.address4(pick(s, "10.50.0.0", "10.50.7.0", "10.60.0.0", "10.45.0.0", "10.99.0.0", "10.77.0.0", "224.0.0.0", "169.254.0.0"))
		inner[0] = p
		return inner
	}
	inner := s.inner(6)
	p := inner[0].(packet.IPv6)
	p.Dst = s.address6(pick(s, "2001:db8:50::", "2001:db8:50:7::", "2001:db8:60::", "2001:db8:45:7::", "2001:db8:45:8::", "2001:db8:77::", "ff02::", "fe80::"))
	inner[0] = p
	return inner
}
