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
		return s.frames(n).toEthernet()
	}
	var layers []packet.Layer
	kind := s.IntN(16)
	if len(n.NATs) > 0 && s.chance(30) {
		kind = 16
	}
	switch kind {
	case 0, 1, 2, 3, 4:
		layers = s.frames(n).toSID()
	case 5, 6, 7:
		layers = s.frames(n).toGTPU()
	case 8, 9, 10, 11, 12, 13:
		layers = s.frames(n).toSession()
	case 16:
		layers = s.frames(n).natted()
	default:
		layers = s.frames(n).steered()
	}
	eth := packet.Ethernet{Dst: packet.Hex{2, 0, 0, 0, 0, byte(s.IntN(4))}}
	switch s.IntN(24) {
	case 0, 1, 2:
		eth.VLAN = []uint16{uint16(pick(s, 0, 5, 77))}
	case 3, 4, 5:
		eth.VLAN = []uint16{5, uint16(pick(s, 6, 7))}
	case 6:
		eth.VLAN = []uint16{uint16(pick(s, 0, 5)), uint16(pick(s, 0, 6)), 0}
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

// frameSource makes the layers of frames that a network knows what to do with.
type frameSource struct {
	s Source
	n *model.Network
}

func (s Source) frames(n *model.Network) frameSource { return frameSource{s, n} }

// inner is a packet on its own: IPv4 or IPv6, and what it carries.
func (src frameSource) inner(version int) []packet.Layer {
	if version == 4 {
		p := packet.IPv4{Src: src.s.address4("10.1.1.0"), Dst: src.s.address4(pick(src.s, "10.2.2.0", "10.2.2.0", "10.250.0.0", "10.250.0.0", "10.3.0.0", "10.3.0.0", "10.50.0.0", "224.0.0.0")),
			TTL: src.s.hop(), TOS: uint8(src.s.Uint32()), ID: uint16(src.s.Uint32()), Fragment: pick(src.s, uint16(0x4000), 0x4000, 0, 0, 0x2000, 5)}
		if src.s.chance(10) {
			p.Options = packet.Hex{0x94, 4, 0, 0}
		}
		return append([]packet.Layer{p}, src.upper(false)...)
	}
	p := packet.IPv6{Src: src.s.address6("2001:db8:a::"), Dst: src.s.address6(pick(src.s, "2001:db8:e::", "2001:db8:e::", "2001:db8:b::", "2001:db8:b::", "3fff::", "3fff::", "2001:db8:3::", "ff02::")),
		HopLimit: src.s.hop(), Class: uint8(src.s.Uint32()), FlowLabel: src.s.Uint32() & 0xfffff}
	layers := []packet.Layer{p}
	if src.s.chance(8) {
		layers = append(layers, packet.Extension{Kind: pick(src.s, uint8(0), 60, 44), Data: packet.Hex{0, 1, 0, 0, 0, 1}})
	}
	return append(layers, src.upper(true)...)
}

// payload is how many octets a packet carries: in some so many that the kernel has the frame in
// several pieces.
func (src frameSource) payload() int {
	if src.s.chance(5) {
		return src.s.IntN(9000)
	}
	return pick(src.s, 0, 1, src.s.IntN(64), src.s.IntN(256), src.s.IntN(1400))
}

// upper is an upper layer with a payload.
func (src frameSource) upper(v6 bool) []packet.Layer {
	size := packet.Payload{Count: src.payload(), Proto: 253}
	sport, dport := uint16(src.s.upTo(1000, 1010)), uint16(pick(src.s, 80, 443, 2152, 53))
	switch src.s.IntN(6) {
	case 0:
		return []packet.Layer{packet.ICMP{V6: v6, Type: uint8(pick(src.s, 8, 128, 3, 1)), Rest: src.s.Uint32()}, size}
	case 1:
		return []packet.Layer{size}
	case 2:
		return []packet.Layer{packet.TCP{Sport: sport, Dport: dport, Partial: src.s.chance(30)}, size}
	}
	u := packet.UDP{Sport: sport, Dport: dport, Partial: src.s.chance(20)}
	if src.s.chance(10) {
		u.Checksum = new(uint16)
	}
	return []packet.Layer{u, size}
}

// carried is what a tunnel can hold.
func (src frameSource) carried() []packet.Layer {
	if src.s.chance(20) {
		return append([]packet.Layer{packet.Ethernet{Dst: packet.Hex{2, 0, 0, 0, 0, byte(src.s.IntN(9))}}}, src.inner(pick(src.s, 4, 6))...)
	}
	return src.inner(pick(src.s, 4, 6))
}

// toSID goes to one of the SIDs, or binding SIDs, with a random argument.
func (src frameSource) toSID() []packet.Layer {
	c := &src.n.Config
	sid := c.SIDs[src.s.IntN(len(c.SIDs))]
	dst := sid.SID.Addr().As16()
	for i := sid.SID.Bits(); i < 128; i++ {
		if src.s.chance(30) && !(has(sid.Flavors, srv6.NextCSID) && src.s.chance(95)) {
			dst[i/8] |= 1 << (7 - i%8)
		}
	}
	if p := c.Policies[src.s.IntN(4)]; src.s.chance(5) && p.BindingSID.IsValid() {
		dst = p.BindingSID.As16()
	}
	p := packet.IPv6{Src: src.s.address6("2001:db8:a::"), Dst: netip.AddrFrom16(dst), HopLimit: src.s.hop(),
		Class: uint8(src.s.Uint32()), FlowLabel: src.s.Uint32() & 0xfffff}
	layers := []packet.Layer{p}
	for src.s.chance(8) {
		layers = append(layers, packet.Extension{Kind: pick(src.s, uint8(0), 60), Data: packet.Hex{1, byte(src.s.IntN(20))}})
	}
	if want, may := src.segmentsLeft(sid.Behavior); may {
		layers = append(layers, src.srh(dst, want))
	}
	if src.s.chance(4) {
		layers = append(layers, packet.Extension{Kind: pick(src.s, uint8(44), 60, 43), Data: packet.Hex{0, 1, 0, 0, 0, 1}})
	}
	if sid.Behavior == srv6.EndMGTP6D || sid.Behavior == srv6.EndMGTP6DDi {
		return append(append(layers, packet.UDP{Sport: 2152, Dport: 2152}), src.gtpu(sid.PDUType)...)
	}
	if src.s.chance(10) {
		return append(layers, src.upper(true)...)
	}
	return append(layers, src.takenBy(sid.Behavior)...)
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
func (src frameSource) segmentsLeft(b srv6.Behavior) (uint8, bool) {
	switch b {
	case srv6.End, srv6.EndX, srv6.EndT, srv6.EndLimit, srv6.EndB6Encaps, srv6.EndB6EncapsRed:
		return uint8(pick(src.s, 0, 1, 1, 2, 3)), src.s.chance(85)
	case srv6.EndMGTP6E:
		return 1, src.s.chance(95)
	}
	return uint8(pick(src.s, 0, 0, 0, 0, 0, 0, 1)), src.s.chance(50)
}

func (src frameSource) srh(dst [16]byte, left uint8) packet.SRH {
	h := packet.SRH{Left: &left, Tag: uint16(pick(src.s, 0, 0, 0, 0, 1, 2, 4, 8, 3, 0x10))}
	for range max(int(left), 1) {
		h.Segments = append(h.Segments, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0xe, byte(src.s.IntN(200)), 15: byte(src.s.IntN(9))}))
	}
	if src.s.chance(10) {
		h.Segments[0] = ip(pick(src.s, "2001:db8:50::9", "2001:db8:b::19", "2001:db8:3::1", "ff02::5"))
	}
	if src.s.chance(60) {
		h.Segments = append(h.Segments, netip.AddrFrom16(dst))
	}
	if src.s.chance(10) {
		h.TLV = packet.Hex{1, 6, 0, 0, 0, 0, 0, 0}
	}
	return h
}

// takenBy is an upper layer that a behaviour takes.
func (src frameSource) takenBy(b srv6.Behavior) []packet.Layer {
	switch b {
	case srv6.EndDX2:
		return append([]packet.Layer{packet.Ethernet{}}, src.inner(4)...)
	case srv6.EndDX4, srv6.EndDT4:
		return src.inner(4)
	case srv6.EndDX6, srv6.EndDT6:
		return src.inner(6)
	case srv6.EndMAP:
		return src.upper(true)
	}
	return src.carried()
}

// gtpu is a GTP-U message with what it carries.
func (src frameSource) gtpu(pdu srv6.PDUType) []packet.Layer {
	teid := pick(src.s, uint32(0x100), 0x101, 0xfedc0102, 0x103, 0x12000104, 0x100, src.s.Uint32(), 0, 0x01000100)
	g := packet.GTPU{TEID: teid}
	if src.s.chance(15) {
		kind := uint8(pick(src.s, 1, 2, 26, 254, 31, 253))
		g.Type = &kind
	}
	if src.s.chance(20) {
		sequence := uint16(src.s.Uint32())
		g.Sequence = &sequence
	}
	if src.s.chance(10) {
		g.NPDU = new(uint8)
	}
	for src.s.chance(20) {
		content := make(packet.Hex, pick(src.s, 2, 6, 10))
		for i := range content {
			content[i] = byte(src.s.Uint32())
		}
		g.Extensions = append(g.Extensions, packet.GTPUExt{Type: pick(src.s, uint8(0x40), 0xc0, 0x20, 0x81, 0x84, 0x85, 0x85, 0x82, 0xc1), Content: content})
	}
	if src.s.chance(60) {
		g.Container = &packet.PDUSession{Type: uint8(pick(src.s, 0, 0, 1, 1, 2)), QFI: uint8(src.s.IntN(64)), RQI: src.s.chance(50)}
	}
	layers := []packet.Layer{g}
	switch {
	case g.Type != nil && src.s.chance(50):
		return append(layers, packet.Payload{Count: src.s.IntN(9)})
	case src.s.chance(8):
		return append(layers, src.carried()...)
	case pdu == srv6.PDUTypeIPv4:
		return append(layers, src.inner(4)...)
	case pdu == srv6.PDUTypeIPv6:
		return append(layers, src.inner(6)...)
	case pdu == srv6.PDUTypeEthernet || pdu == srv6.PDUTypeUnstructured:
		return append(append(layers, packet.Ethernet{}), src.inner(4)...)
	}
	return append(layers, src.inner(pick(src.s, 4, 6))...)
}

// toGTPU goes to a GTP-U address of ours, or to H.M.GTP4.D.
func (src frameSource) toGTPU() []packet.Layer {
	udp := packet.UDP{Sport: uint16(src.s.upTo(2150, 2154)), Dport: uint16(pick(src.s, 2152, 2152, 2152, 2152, 2152, 2152, 2152, 2123))}
	if src.s.chance(30) {
		p := packet.IPv6{Src: src.s.address6(pick(src.s, "2001:db8:1::", "2001:db8:3::", "3fff::")), Dst: ip("2001:db8:3::1"),
			HopLimit: src.s.hop(), Class: uint8(src.s.Uint32())}
		layers := []packet.Layer{p}
		if src.s.chance(5) {
			layers = append(layers, packet.Extension{Kind: pick(src.s, uint8(44), 60), Data: packet.Hex{0, 1, 0, 0, 0, 1}})
		}
		return append(append(layers, udp), src.gtpu(srv6.PDUTypeNone)...)
	}
	p := packet.IPv4{Src: src.s.address4(pick(src.s, "10.0.0.0", "10.3.0.0", "224.0.0.0")), Dst: ip("10.3.0.1"), TTL: src.s.hop(), TOS: uint8(src.s.Uint32()),
		Fragment: pick(src.s, uint16(0x4000), 0, 0x4000, 0, 0x4000, 0, 0x4000, 0, 0x2000, 3)}
	pdu := srv6.PDUTypeNone
	for _, st := range src.n.Config.Steering {
		if st.GTP4D != nil && src.s.chance(30) {
			p.Dst, pdu = src.s.address4(st.Prefix.Addr().String()), st.GTP4D.PDUType
		}
	}
	if src.s.chance(5) {
		p.Options = packet.Hex{0x94, 4, 0, 0}
	}
	return append([]packet.Layer{p, udp}, src.gtpu(pdu)...)
}

// steered goes to a prefix with a steering entry, or to nobody.
func (src frameSource) steered() []packet.Layer {
	if src.s.chance(50) {
		inner := src.inner(4)
		p := inner[0].(packet.IPv4)
		p.Dst = src.s.address4(pick(src.s, "10.50.0.0", "10.50.7.0", "10.60.0.0", "10.45.0.0", "10.99.0.0", "10.77.0.0", "224.0.0.0", "169.254.0.0"))
		inner[0] = p
		return inner
	}
	inner := src.inner(6)
	p := inner[0].(packet.IPv6)
	p.Dst = src.s.address6(pick(src.s, "2001:db8:50::", "2001:db8:50:7::", "2001:db8:60::", "2001:db8:45:7::", "2001:db8:45:8::", "2001:db8:77::", "ff02::", "fe80::"))
	inner[0] = p
	return inner
}
