package traffic

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
	"github.com/culvert-net/culvert/internal/packet"
)

// The keys: what packets differ by.
const (
	keySession = iota // TEIDs and UEs
	keySource
	keyFlow
)

// Numbers of protocols and EtherTypes.
const (
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeLocal = 0x88b5 // IEEE 802 local experimental

	protoIPv4    = 4
	protoUDP     = 17
	protoIPv6    = 41
	protoRouting = 43

	gtpuPort  = 2152
	vxlanPort = 4789
)

var be = binary.BigEndian

// frame is a packet that is made of a template. mask has ones where data is
// what the template says, and zeros where it may be anything.
type frame struct {
	data, mask []byte
	headers    int // octets in front of the payload
	places     []trafficrun.Place
	// Offsets of checksums; 0: the packet has no such checksum.
	outerIP, outerUDP, innerIP, innerUDP int
}

// build makes the frame of `size` octets with FCS. The template is right.
func (t Template) build(size int) *frame {
	f := &frame{data: t.frame(size, defaults), headers: t.headers()}
	zero, one := t.frame(size, zeros), t.frame(size, ones)
	f.mask = make([]byte, len(f.data))
	for i := range f.headers {
		f.mask[i] = ^(zero[i] ^ one[i])
	}
	f.outer(t)
	f.inner(t)
	for i := range f.places {
		p := &f.places[i]
		p.Base = be.Uint32(f.data[p.Offset:])
		f.follow(p)
	}
	return f
}

// unset says what stands in fields that a template leaves open. What differs
// between zeros and ones may be anything.
type unset int

const (
	defaults unset = iota
	zeros
	ones
)

// field is a value that the template gives, or what stands in its place.
func field[T uint8 | uint16 | uint32](o unset, given bool, v T) *T {
	if !given {
		v = map[unset]T{defaults: v, zeros: 0, ones: ^T(0)}[o]
	}
	return &v
}

// made is a field that the builder works out, such as a length; nil leaves it to it.
func made[T uint8 | uint16](o unset) *T {
	if o == defaults {
		return nil
	}
	return field[T](o, false, 0)
}

// frame is the template's packet, of `size` octets with FCS.
func (t Template) frame(size int, o unset) []byte {
	payload := make(packet.Hex, size-lenFCS-t.headers())
	be.PutUint16(payload[len(payload)-lenTag+2:], trafficrun.TagSum)
	return packet.Frame(append(t.layers(o), packet.Payload{Data: payload})...)
}

// headers is the length of all that is in front of the UDP payload, or of the frame's
// payload.
func (t Template) headers() int { return len(packet.Frame(t.layers(defaults)...)) }

// layers are the packet's headers.
func (t Template) layers(o unset) []packet.Layer {
	layers := []packet.Layer{t.Ethernet.layer(o)}
	if t.Outer.Kind != Plain {
		layers = append(layers, t.outerLayers(o)...)
	}
	if i := t.Inner; i.Source.IsValid() {
		layers = append(layers, ipHeader(o, i.Source, i.Destination, i.HopLimit, i.TrafficClass, i.FlowLabel),
			datagram(o, i.sourcePort(), true, int(cmp.Or(i.DestinationPort, 5000)), i.NoChecksum))
	}
	return layers
}

func (t Template) outerLayers(of unset) []packet.Layer {
	o := t.Outer
	destination := o.Destination
	if o.Kind == SRv6 {
		destination = o.Segments[len(o.Segments)-1-o.left()]
	}
	layers := []packet.Layer{ipHeader(of, o.Source, destination, o.HopLimit, o.TrafficClass, o.FlowLabel)}
	switch o.Kind {
	case GTPU:
		g := packet.GTPU{TEID: *field(of, o.TEID != 0, o.TEID), Length: made[uint16](of)}
		if o.Container != NoContainer { // sequence and N-PDU numbers mean nothing without their flags
			flags, kind := uint8(0x34), map[Container]uint8{Downlink: 0, Uplink: 1}
			g.Container = &packet.PDUSession{Type: kind[o.Container], QFI: o.QFI}
			g.Flags, g.Sequence, g.NPDU = &flags, field[uint16](of, false, 0), field[uint8](of, false, 0)
		}
		layers = append(layers, datagram(of, int(cmp.Or(o.SourcePort, gtpuPort)), o.SourcePort != 0, gtpuPort, o.Source.Is4()), g)
	case SRv6:
		if listed := o.listed(); len(listed) > 0 {
			left := uint8(o.left())
			layers = append(layers, packet.SRH{Segments: listed, Left: &left})
		}
	case VXLAN:
		inner := t.Ethernet
		if of != defaults {
			inner = Ethernet{} // a device may have others
		}
		layers = append(layers, datagram(of, int(cmp.Or(o.SourcePort, vxlanPort)), o.SourcePort != 0, vxlanPort, o.Source.Is4()),
			packet.VXLAN{VNI: o.VNI}, inner.layer(of))
	}
	return layers
}

func (e Ethernet) layer(o unset) packet.Layer {
	address := func(m MAC) packet.Hex {
		if m != nil {
			return packet.Hex(m)
		}
		return bytes.Repeat([]byte{*field[uint8](o, false, 0)}, 6)
	}
	return packet.Ethernet{Dst: address(e.Destination), Src: address(e.Source)}
}

// ipHeader is an IPv4 or IPv6 header. label is IPv6's.
func ipHeader(o unset, src, dst netip.Addr, hops uint8, class *uint8, label *uint32) packet.Layer {
	ttl, tos := field(o, hops != 0, cmp.Or(hops, 64)), *field(o, class != nil, *cmp.Or(class, new(uint8)))
	if src.Is4() {
		const dontFragment = 0x4000
		return packet.IPv4{Src: src, Dst: dst, TTL: ttl, TOS: tos, ID: *field[uint16](o, false, 0),
			Fragment: *field[uint16](o, false, dontFragment), Length: made[uint16](o), Checksum: made[uint16](o)}
	}
	return packet.IPv6{Src: src, Dst: dst, HopLimit: ttl, Class: tos, FlowLabel: *field(o, label != nil, *cmp.Or(label, new(uint32))), Length: made[uint16](o)}
}

func datagram(o unset, source int, sourceKnown bool, destination int, noChecksum bool) packet.Layer {
	u := packet.UDP{Sport: *field(o, sourceKnown, uint16(source)), Dport: uint16(destination), Length: made[uint16](o), Checksum: made[uint16](o)}
	if noChecksum && o == defaults {
		u.Checksum = new(uint16)
	}
	return u
}

// place says that 32 bits at `offset` count with a key.
func (f *frame) place(key, offset, shift int) {
	f.places = append(f.places, trafficrun.Place{Key: uint32(key), Offset: uint32(offset), Shift: uint32(shift)})
	clear(f.mask[offset:][:4]) // they are compared by number
}

// outer finds the checksums and the numbers of the outer headers.
func (f *frame) outer(t Template) {
	o, at := t.Outer, lenEthernet
	if o.Kind == Plain {
		return
	}
	behind := at + lenIP(o.Source.Is4())
	if o.Source.Is4() {
		f.outerIP = at + 10
	} else if o.Kind != SRv6 {
		f.outerUDP = behind + 6
	}
	f.countAddress(keySource, t.Sources, at, Source, o.Source, cmp.Or(o.SourceNumberAt, 12))
	if t.TEIDs <= 1 {
		return
	}
	switch {
	case o.Kind == GTPU:
		f.place(keySession, behind+lenUDP+4, 0)
	case o.Kind == SRv6 && o.NumberAt > 0:
		if o.left() == 0 {
			f.place(keySession, at+24+o.NumberAt, 0)
		}
		if len(o.listed()) > 0 {
			f.place(keySession, behind+lenSRH+o.NumberAt, 0)
		}
	}
}

// left is Segments Left.
func (o Outer) left() int {
	if o.SegmentsLeft != nil {
		return *o.SegmentsLeft
	}
	return len(o.Segments) - 1
}

// listed are the segments in the SRH, in its order: the last one first.
func (o Outer) listed() []netip.Addr {
	path := o.Segments
	if o.Reduced && len(path) > 0 {
		path = path[1:]
	}
	listed := slices.Clone(path)
	slices.Reverse(listed)
	return listed
}

// countAddress makes one of the addresses of the IP header at `at` count: an IPv4
// address, or 32 bits at an octet of an IPv6 one.
func (f *frame) countAddress(key, count, at int, end End, a netip.Addr, octet int) {
	if count <= 1 {
		return
	}
	offset := at + 12
	if a.Is6() {
		offset = at + 8 + octet
	}
	if end == Destination {
		offset += a.BitLen() / 8
	}
	f.place(key, offset, 0)
}

// inner finds the checksums and the numbers of the users' packet.
func (f *frame) inner(t Template) {
	i := t.Inner
	if !i.Source.IsValid() {
		return
	}
	udp := f.headers - lenUDP
	at := udp - lenIP(i.Source.Is4())
	if i.Source.Is4() {
		f.innerIP = at + 10
	}
	ue := i.Source
	if i.UE == Destination {
		ue = i.Destination
	}
	f.countAddress(keySession, t.UEs, at, i.UE, ue, 4) // the low half of a /64 prefix
	if t.Outer.Kind == Plain {
		other := Source // the address that is not the UE's
		if i.UE == Source {
			other = Destination
		}
		f.countAddress(keySource, t.Sources, at, other, i.Source, 12)
	}
	if !i.NoChecksum {
		f.innerUDP = udp + 6
	}
	if t.Flows > 1 {
		f.place(keyFlow, udp, 16)
	}
}
