package slowpath

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/checksum"
)

// TooBig is an error about a packet that was too big for a link of its path: ICMPv6 Packet Too
// Big (RFC 4443 section 3.2), or ICMP "fragmentation needed" (RFC 1191).
type TooBig struct {
	MTU int // of the link, layer 3, octets
	// Length is that of the packet, of which the error may quote less.
	Length              int
	Source, Destination netip.Addr
	// Segments are those of its SRH in the order of travel, of which Left are still ahead, one
	// less than the active one; nil: it has no SRH.
	Segments []netip.Addr
	Left     int
	GTPU     bool // UDP to port 2152
}

// ParseTooBig reads such an error, which is the packet that b begins with. It reports false for
// any other packet, for one whose checksum is wrong or that is not whole, and for one that
// does not go to the source of what it quotes.
func ParseTooBig(b []byte) (t TooBig, ok bool) {
	if ip, whole, is4 := parseIPv4(b); is4 && whole {
		l4 := ip.payload()
		if ip.protocol() != protocolICMP || len(l4) < 8 || l4[0] != 3 || l4[1] != 4 || checksum.Of(l4, 0) != 0 {
			return t, false
		}
		t.MTU = int(binary.BigEndian.Uint16(l4[6:]))
		return t, t.quote4(l4[8:]) && t.Source == ip.dst()
	}
	ip, whole, is6 := parseIPv6(b)
	if !is6 || !whole {
		return t, false
	}
	l4 := ip[ipv6Length:]
	if ip[6] != protocolICMPv6 || len(l4) < 8 || l4[0] != packetTooBig || checksum.Of(l4, checksum.Pseudo(ip.src(), ip.dst(), protocolICMPv6, len(l4))) != 0 {
		return t, false
	}
	t.MTU = int(min(binary.BigEndian.Uint32(l4[4:]), 0xffff))
	return t, t.quote6(l4[8:]) && t.Source == ip.dst()
}

func (t *TooBig) quote4(b []byte) bool {
	ip, _, ok := parseIPv4(b)
	if !ok || ip.offset() != 0 || ip.more() {
		return false
	}
	t.Source, t.Destination, t.Length = ip.src(), ip.dst(), int(binary.BigEndian.Uint16(ip[2:]))
	t.GTPU = ip.protocol() == protocolUDP && toGTPU(ip.payload())
	return true
}

func (t *TooBig) quote6(b []byte) bool {
	ip, _, ok := parseIPv6(b)
	if !ok {
		return false
	}
	t.Source, t.Destination, t.Length = ip.src(), ip.dst(), ipv6Length+int(binary.BigEndian.Uint16(ip[4:]))
	switch ip[6] {
	case protocolUDP:
		t.GTPU = toGTPU(ip[ipv6Length:])
	case headerRouting:
		return t.quoteSRH(ip[ipv6Length:])
	case headerFragment:
		return false
	}
	return true
}

// quoteSRH reads an SRH (RFC 8754 section 2), of which all segments must be there.
func (t *TooBig) quoteSRH(b []byte) bool {
	if len(b) < 8 || b[2] != 4 {
		return false
	}
	n := int(b[4]) + 1
	if len(b) < 8+16*n || int(b[1])*8 < 16*n || int(b[3]) > n {
		return false
	}
	for i := range n {
		t.Segments = append(t.Segments, netip.AddrFrom16([16]byte(b[8+16*i:])))
	}
	slices.Reverse(t.Segments)
	t.Left = int(b[3])
	return true
}

func toGTPU(udp []byte) bool { return len(udp) >= 4 && binary.BigEndian.Uint16(udp[2:]) == gtpu.Port }
