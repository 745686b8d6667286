package overlay

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// Numbers in headers, and their lengths.
const (
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
	nhIPv4      = 4
	nhUDP       = 17
	nhIPv6      = 41
	nhRouting   = 43
	srhType     = 4
	portVXLAN   = 4789
	lenEthernet = 14
	lenIPv4     = 20
	lenIPv6     = 40
	lenUDP      = 8
	lenVXLAN    = 8
)

func ethernet(kind uint16, behind []byte) []byte {
	return append(binary.BigEndian.AppendUint16(make([]byte, 12), kind), behind...)
}

func ip4(protocol, ttl byte, behind []byte) []byte {
	h := make([]byte, lenIPv4)
	h[0], h[8], h[9] = 0x45, ttl, protocol
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(behind)))
	return append(h, behind...)
}

func ip6(next, hops byte, behind []byte) []byte {
	h := make([]byte, lenIPv6)
	h[0], h[6], h[7] = 0x60, next, hops
	binary.BigEndian.PutUint16(h[4:], uint16(len(behind)))
	return append(h, behind...)
}

// srh has as many segments.
func srh(next byte, segments int, behind []byte) []byte {
	h := make([]byte, 8+16*segments)
	h[0], h[1], h[2], h[4] = next, byte(2*segments), srhType, byte(segments-1)
	return append(h, behind...)
}

func datagram(port uint16, behind []byte) []byte {
	h := make([]byte, lenUDP)
	binary.BigEndian.PutUint16(h[2:], port)
	binary.BigEndian.PutUint16(h[4:], uint16(len(h)+len(behind)))
	return append(h, behind...)
}

func TestWayOf(t *testing.T) {
	user := datagram(5000, make([]byte, 40))
	user4, user6 := ip4(nhUDP, 63, user), ip6(nhUDP, 62, user)
	for name, x := range map[string]struct {
		frame []byte
		want  way
	}{
		"flat IPv4":       {ethernet(typeIPv4, user4), way{"", 1}},
		"flat IPv6":       {ethernet(typeIPv6, user6), way{"", 2}},
		"no SRH":          {ethernet(typeIPv6, ip6(nhIPv4, 64, user4)), way{"IPv6", 1}},
		"SRH of one":      {ethernet(typeIPv6, ip6(nhRouting, 64, srh(nhIPv6, 1, user6))), way{"IPv6, SRH of 1", 2}},
		"SRH of two":      {ethernet(typeIPv6, ip6(nhRouting, 64, srh(nhIPv4, 2, user4))), way{"IPv6, SRH of 2", 1}},
		"VXLAN over IPv4": {ethernet(typeIPv4, ip4(nhUDP, 64, datagram(portVXLAN, append(make([]byte, lenVXLAN), ethernet(typeIPv6, user6)...)))), way{"IPv4, UDP, VXLAN, Ethernet", 2}},
	} {
		got, err := wayOf(x.frame)
		if err != nil || got != x.want {
			t.Errorf("%s: %+v, %v: want %+v", name, got, err, x.want)
		}
	}
}

// Whatever is cut off or of another kind is no way.
func TestWayOfOthers(t *testing.T) {
	user := datagram(5000, make([]byte, 40))
	whole := ethernet(typeIPv6, ip6(nhRouting, 64, srh(nhIPv4, 2, ip4(nhUDP, 63, user))))
	for n := range lenEthernet + lenIPv6 + 8 + 32 + lenIPv4 {
		if _, err := wayOf(whole[:n]); !errors.Is(err, errFrame) {
			t.Fatalf("of the first %d octets: %v", n, err)
		}
	}
	other := slices.Clone(whole)
	other[lenEthernet+lenIPv6+2] = 3 // another routing type
	for name, frame := range map[string][]byte{
		"routing type": other,
		"TCP":          ethernet(typeIPv4, ip4(6, 64, make([]byte, 60))),
		"ARP":          ethernet(0x0806, make([]byte, 60)),
	} {
		if _, err := wayOf(frame); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
