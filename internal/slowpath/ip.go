package slowpath

import (
	"encoding/binary"
	"net/netip"

	"github.com/culvert-net/culvert/internal/checksum"
)

const (
	ethernetLength = 14
	ipv4Length     = 20
	ipv6Length     = 40
	udpLength      = 8
	fragmentLength = 8 // IPv6 Fragment header

	protocolICMP   = 1
	protocolIPv4   = 4
	protocolTCP    = 6
	protocolUDP    = 17
	protocolIPv6   = 41
	protocolICMPv6 = 58

	headerHopByHop    = 0
	headerRouting     = 43
	headerFragment    = 44
	headerESP         = 50
	headerAH          = 51
	headerNone        = 59
	headerDestination = 60

	defaultHopLimit = 64
)

// ipv4 and ipv6 are packets with a complete fixed header and, for IPv4, complete
// options.
type (
	ipv4 []byte
	ipv6 []byte
)

// parseIPv4 returns a view of a packet, cut to its total length. whole says whether the
// packet is complete.
func parseIPv4(b []byte) (ip ipv4, whole, ok bool) {
	if len(b) < ipv4Length || b[0]>>4 != 4 {
		return nil, false, false
	}
	ip = b
	total := int(binary.BigEndian.Uint16(b[2:]))
	if ip.headerLength() < ipv4Length || ip.headerLength() > len(b) || total < ip.headerLength() {
		return nil, false, false
	}
	return b[:min(total, len(b))], total <= len(b), true
}

func parseIPv6(b []byte) (ip ipv6, whole, ok bool) {
	if len(b) < ipv6Length || b[0]>>4 != 6 {
		return nil, false, false
	}
	total := ipv6Length + int(binary.BigEndian.Uint16(b[4:]))
	return b[:min(total, len(b))], total <= len(b), true
}

func (ip ipv4) headerLength() int  { return int(ip[0]&15) * 4 }
func (ip ipv4) flags() uint16      { return binary.BigEndian.Uint16(ip[6:]) }
func (ip ipv4) offset() int        { return int(ip.flags()&0x1fff) * 8 }
func (ip ipv4) more() bool         { return ip.flags()&0x2000 != 0 }
func (ip ipv4) dontFragment() bool { return ip.flags()&0x4000 != 0 }
func (ip ipv4) protocol() uint8    { return ip[9] }
func (ip ipv4) src() netip.Addr    { return netip.AddrFrom4([4]byte(ip[12:16])) }
func (ip ipv4) dst() netip.Addr    { return netip.AddrFrom4([4]byte(ip[16:20])) }
func (ip ipv4) payload() []byte    { return ip[ip.headerLength():] }

// finish writes the total length and the header checksum.
func (ip ipv4) finish(total int) {
	binary.BigEndian.PutUint16(ip[2:], uint16(total))
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], checksum.Of(ip[:ip.headerLength()], 0))
}

func (ip ipv6) src() netip.Addr { return netip.AddrFrom16([16]byte(ip[8:24])) }
func (ip ipv6) dst() netip.Addr { return netip.AddrFrom16([16]byte(ip[24:40])) }

// header is a header in an IPv6 packet's chain: its type, its offset, and the offset of
// the octet that names its type.
type header struct {
	kind    uint8
	at      int
	pointer int
}

// walk returns the first header that stop accepts, or the upper layer's. ok is false if
// the chain is truncated before.
func (ip ipv6) walk(stop func(header) bool) (h header, ok bool) {
	h = header{kind: ip[6], at: ipv6Length, pointer: 6}
	for !stop(h) {
		var length int
		switch h.kind {
		case headerHopByHop, headerRouting, headerDestination:
			if len(ip) < h.at+2 {
				return h, false
			}
			length = 8 + 8*int(ip[h.at+1])
		case headerAH:
			if len(ip) < h.at+2 {
				return h, false
			}
			length = 8 + 4*int(ip[h.at+1])
		case headerFragment:
			length = fragmentLength
		default:
			return h, true
		}
		if len(ip) < h.at+length {
			return h, false
		}
		h = header{kind: ip[h.at], at: h.at + length, pointer: h.at}
	}
	return h, true
}

func upperLayer(header) bool { return false }

// layer3 returns the offset of the packet behind an Ethernet header and its tags.
func layer3(frame []byte) (int, bool) {
	at := ethernetLength
	for range 3 {
		if len(frame) < at {
			return 0, false
		}
		switch binary.BigEndian.Uint16(frame[at-2:]) {
		case 0x8100, 0x88a8:
			at += 4
		case 0x0800, 0x86dd:
			return at, true
		default:
			return 0, false
		}
	}
	return 0, false
}
