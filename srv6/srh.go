package srv6

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Numbers of the Segment Routing Header (RFC 8754 section 2, RFC 8986).
const (
	RoutingTypeSRH     = 4   // Routing Type
	NextHeaderIPv4     = 4   // an IPv4 packet inside
	NextHeaderIPv6     = 41  // an IPv6 packet inside
	NextHeaderRouting  = 43  // an SRH follows
	NextHeaderEthernet = 143 // an Ethernet frame inside
)

const (
	srhFixedLength = 8
	segmentLength  = 16
)

// SRH is a view of a Segment Routing Header (RFC 8754 section 2). It shares the
// packet's bytes. A view that ParseSRH returned needs no further checks.
type SRH []byte

// ParseSRH returns a view of the SRH that b begins with. It refuses a truncated
// header, another routing type, and more segments than the length holds. It does not
// check Segments Left: its valid range depends on the behaviour.
func ParseSRH(b []byte) (SRH, bool) {
	if len(b) < srhFixedLength || b[2] != RoutingTypeSRH {
		return nil, false
	}
	length := srhFixedLength + 8*int(b[1])
	if len(b) < length || 2*(int(b[4])+1) > int(b[1]) {
		return nil, false
	}
	return SRH(b[:length:length]), true
}

// NextHeader returns the protocol behind the SRH.
func (h SRH) NextHeader() uint8 { return h[0] }

// SegmentsLeft returns the index of the active segment.
func (h SRH) SegmentsLeft() uint8 { return h[3] }

// LastEntry returns the index of the segment list's last element.
func (h SRH) LastEntry() uint8 { return h[4] }

// Flags returns the flags. Only the O flag (RFC 9259) is in use.
func (h SRH) Flags() uint8 { return h[5] }

// Tag returns the tag, which marks a class of packets. For the mobile user plane see
// TagEndMarker.
func (h SRH) Tag() uint16 { return binary.BigEndian.Uint16(h[6:]) }

// Segment returns Segment List[i]. 0 is the last segment of the path.
func (h SRH) Segment(i int) (netip.Addr, bool) {
	if i < 0 || i > int(h.LastEntry()) {
		return netip.Addr{}, false
	}
	at := srhFixedLength + segmentLength*i
	return netip.AddrFrom16([16]byte(h[at : at+segmentLength])), true
}

// SegmentList returns the list in the header's order, the last segment first.
func (h SRH) SegmentList() []netip.Addr {
	list := make([]netip.Addr, int(h.LastEntry())+1)
	for i := range list {
		list[i], _ = h.Segment(i)
	}
	return list
}

// TLVs returns the bytes behind the segment list.
func (h SRH) TLVs() []byte {
	return h[srhFixedLength+segmentLength*(int(h.LastEntry())+1):]
}

// SetSegmentsLeft sets the index of the active segment.
func (h SRH) SetSegmentsLeft(n uint8) { h[3] = n }

// SetTag sets the tag.
func (h SRH) SetTag(tag uint16) { binary.BigEndian.PutUint16(h[6:], tag) }

// AppendSRH appends the SRH that a headend pushes for path, whose segments are in
// the order of travel. A reduced SRH omits the first segment (RFC 8986 section 5.2).
// A path of one segment needs no reduced SRH: nothing is appended.
func AppendSRH(b []byte, nextHeader uint8, path []netip.Addr, reduced bool) ([]byte, error) {
	left := len(path) - 1
	if reduced && len(path) > 0 {
		path = path[1:]
		if len(path) == 0 {
			return b, nil
		}
	}
	// Hdr Ext Len is one octet, and counts two for each segment.
	if len(path) == 0 || len(path) > 127 {
		return nil, fmt.Errorf("an SRH holds 1 to 127 segments, not %d", len(path))
	}
	b = append(b, nextHeader, uint8(2*len(path)), RoutingTypeSRH, uint8(left),
		uint8(len(path)-1), 0, 0, 0)
	for i := len(path) - 1; i >= 0; i-- {
		if !path[i].Is6() {
			return nil, fmt.Errorf("segment %s is not an IPv6 address", path[i])
		}
		segment := path[i].As16()
		b = append(b, segment[:]...)
	}
	return b, nil
}
