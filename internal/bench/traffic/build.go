package traffic

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
	"github.com/culvert-net/culvert/srv6"
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
	// Offsets of checksums; 0: there is none.
	outerIP, outerUDP, innerIP, innerUDP int
}

// build makes the frame of `size` octets with FCS. The template is right.
func (t Template) build(size int) *frame {
	f := &frame{}
	f.put(t.Ethernet.Destination != nil, or6(t.Ethernet.Destination)...)
	f.put(t.Ethernet.Source != nil, or6(t.Ethernet.Source)...)
	length := size - lenFCS - lenEthernet // of what is behind the Ethernet header
	f.etherType(t)
	switch t.Outer.Kind {
	case GTPU:
		f.gtpu(t, length)
	case SRv6:
		f.srv6(t, length)
	case VXLAN:
		f.vxlan(t, length)
	}
	if t.Inner.Source.IsValid() {
		f.inner(t, length-t.Outer.length())
	}
	f.headers = len(f.data)
	f.put(false, make([]byte, size-lenFCS-f.headers)...)
	be.PutUint16(f.data[len(f.data)-lenTag+2:], trafficrun.TagSum)
	f.checksums()
	return f
}

func or6(m MAC) []byte {
	if m == nil {
		return make([]byte, 6)
	}
	return m
}

func (f *frame) put(known bool, octets ...byte) {
	f.data = append(f.data, octets...)
	m := byte(0)
	if known {
		m = 0xff
	}
	f.mask = append(f.mask, slices.Repeat([]byte{m}, len(octets))...)
}

func (f *frame) put16(known bool, v int) { f.put(known, byte(v>>8), byte(v)) }

func (f *frame) etherType(t Template) {
	first := t.Inner.Source
	if t.Outer.Kind != Plain {
		first = t.Outer.Source
	}
	switch {
	case !first.IsValid():
		f.put16(true, typeLocal)
	case first.Is4():
		f.put16(true, typeIPv4)
	default:
		f.put16(true, typeIPv6)
	}
}

// place says that 32 bits at `offset` count with a key. Their checksums are
// known when the frame is whole.
func (f *frame) place(key, offset, shift int) {
	f.places = append(f.places, trafficrun.Place{Key: uint32(key), Offset: uint32(offset), Shift: uint32(shift)})
	copy(f.mask[offset:], make([]byte, 4)) // they are compared by number
}

// ip puts an IPv4 or IPv6 header. label is IPv6's.
func (f *frame) ip(src, dst netip.Addr, protocol, length int, hops uint8, class *uint8, label *uint32) {
	c := uint8(0)
	if class != nil {
		c = *class
	}
	if src.Is4() {
		f.put(true, 0x45)
		f.put(class != nil, c)
		f.put16(false, length)
		f.put(false, 0, 0) // identification
		f.put(false, 0x40, 0)
		f.put(hops != 0, or(hops, 64))
		f.put(true, byte(protocol))
		f.put(false, 0, 0) // checksum
	} else {
		l := uint32(0)
		if label != nil {
			l = *label
		}
		word := be.AppendUint32(nil, 6<<28|uint32(c)<<20|l)
		f.put(true, word...)
		f.unknown(len(f.data)-4, classAndLabel(class == nil, label == nil)...)
		f.put16(false, length-lenIPv6)
		f.put(true, byte(protocol))
		f.put(hops != 0, or(hops, 64))
	}
	f.put(true, src.AsSlice()...)
	f.put(true, dst.AsSlice()...)
}

// classAndLabel is the mask over an IPv6 header's first word of what is unknown.
func classAndLabel(class, label bool) []byte {
	word := uint32(0)
	if class {
		word |= 0x0ff00000
	}
	if label {
		word |= 0x000fffff
	}
	return be.AppendUint32(nil, word)
}

// unknown clears the bits of mask that are set in `bits`.
func (f *frame) unknown(at int, bits ...byte) {
	for i, b := range bits {
		f.mask[at+i] &^= b
	}
}

func (f *frame) udp(sourceKnown bool, source, destination, length int) {
	f.put16(sourceKnown, source)
	f.put16(true, destination)
	f.put16(false, length)
	f.put16(false, 0)
}

func (f *frame) gtpu(t Template, length int) {
	o, at := t.Outer, len(f.data)
	f.ip(o.Source, o.Destination, protoUDP, length, o.HopLimit, o.TrafficClass, o.FlowLabel)
	if o.Source.Is4() {
		f.outerIP = at + 10
	}
	header := lenIP(o.Source.Is4())
	f.countAddress(keySource, t.Sources, at, Source, o.Source, 12)
	udp := at + header
	f.udp(o.SourcePort != 0, int(or(o.SourcePort, gtpuPort)), gtpuPort, length-header)
	if o.Source.Is6() {
		f.outerUDP = udp + 6
	}
	at = len(f.data)
	f.put(true, o.gtpuHeader(length-t.Outer.length())...)
	f.unknown(at+2, 0xff, 0xff) // its length
	if o.TEID == 0 {
		f.unknown(at+4, 0xff, 0xff, 0xff, 0xff)
	}
	if t.TEIDs > 1 {
		f.place(keySession, at+4, 0)
	}
	if o.Container != NoContainer {
		f.unknown(at+8, 0xff, 0xff, 0xff) // sequence and N-PDU numbers, which mean nothing here
	}
}

func (f *frame) vxlan(t Template, length int) {
	o, at := t.Outer, len(f.data)
	f.ip(o.Source, o.Destination, protoUDP, length, o.HopLimit, o.TrafficClass, o.FlowLabel)
	if o.Source.Is4() {
		f.outerIP = at + 10
	}
	header := lenIP(o.Source.Is4())
	f.countAddress(keySource, t.Sources, at, Source, o.Source, 12)
	f.udp(o.SourcePort != 0, int(or(o.SourcePort, vxlanPort)), vxlanPort, length-header)
	if o.Source.Is6() {
		f.outerUDP = at + header + 6
	}
	f.put(true, 8, 0, 0, 0) // RFC 7348: the VNI is valid
	f.put(true, be.AppendUint32(nil, o.VNI<<8)...)
	f.put(false, or6(t.Ethernet.Destination)...)
	f.put(false, or6(t.Ethernet.Source)...)
	inner := Template{Inner: t.Inner}
	f.etherType(inner)
}

// gtpuHeader is that of a G-PDU around `length` octets.
func (o Outer) gtpuHeader(length int) []byte {
	kind := map[Container]srv6.ContainerType{NoContainer: srv6.ContainerNone, Uplink: srv6.ContainerUplink, Downlink: srv6.ContainerDownlink}
	c := gtpu.PDUSessionContainer{Type: kind[o.Container], QFI: o.QFI}
	b, err := gtpu.AppendGPDU(nil, o.TEID, c, make([]byte, length))
	if err != nil {
		panic(err) // Check sees to the QFI and the length
	}
	return b[:len(b)-length]
}

func (f *frame) srv6(t Template, length int) {
	o, at, listed := t.Outer, len(f.data), t.Outer.listed()
	next := protoIPv6
	if t.Inner.Source.Is4() {
		next = protoIPv4
	}
	first := next
	if len(listed) > 0 {
		first = protoRouting
	}
	left := o.left()
	destination := o.Segments[len(o.Segments)-1-left]
	f.ip(o.Source, destination, first, length, o.HopLimit, o.TrafficClass, o.FlowLabel)
	f.countAddress(keySource, t.Sources, at, Source, o.Source, or(o.SourceNumberAt, 12))
	if o.NumberAt > 0 && t.TEIDs > 1 && left == 0 {
		f.place(keySession, at+24+o.NumberAt, 0)
	}
	if len(listed) == 0 {
		return
	}
	at = len(f.data)
	f.put(true, byte(next), byte(2*len(listed)), srv6.RoutingTypeSRH, byte(left), byte(len(listed)-1), 0, 0, 0)
	for _, s := range listed {
		f.put(true, s.AsSlice()...)
	}
	if o.NumberAt > 0 && t.TEIDs > 1 {
		f.place(keySession, at+lenSRH+o.NumberAt, 0)
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

func (f *frame) inner(t Template, length int) {
	i, at := t.Inner, len(f.data)
	header := lenIP(i.Source.Is4())
	f.ip(i.Source, i.Destination, protoUDP, length, i.HopLimit, i.TrafficClass, i.FlowLabel)
	if i.Source.Is4() {
		f.innerIP = at + 10
	}
	ue := i.Source
	if i.UE == Destination {
		ue = i.Destination
	}
	f.countAddress(keySession, t.UEs, at, i.UE, ue, 4) // the low half of a /64 prefix
	if t.Outer.Kind == Plain {
		f.countAddress(keySource, t.Sources, at, i.sourceEnd(), i.Source, 12)
	}
	udp := at + header
	f.udp(true, i.sourcePort(), int(or(i.DestinationPort, 5000)), length-header)
	if !i.NoChecksum {
		f.innerUDP = udp + 6
	}
	if t.Flows > 1 {
		f.place(keyFlow, udp, 16)
	}
}

// sourceEnd is the inner address that counts with sources: the one that is not
// the UE's.
func (i Inner) sourceEnd() End {
	if i.UE == Source {
		return Destination
	}
	return Source
}
