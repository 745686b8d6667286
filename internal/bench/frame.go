package bench

import (
	"encoding/binary"
	"net/netip"
)

// The numbers of protocols and EtherTypes in the frames.
const (
	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd

	protoIPv4     = 4
	protoUDP      = 17
	protoIPv6     = 41
	protoRouting  = 43
	protoEthernet = 143

	gtpuPort = 2152
)

// Lengths of headers.
const (
	lenEthernet = 14
	lenIPv4     = 20
	lenIPv6     = 40
	lenUDP      = 8
	lenGTPU     = 8
	// of a PDU Session Container, with the header's options
	lenContainer = 8
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// ethernet is a frame for the interface that receives, less its FCS.
func ethernet(etherType uint16, payload []byte) []byte {
	b := append(append([]byte{}, macOf(1)...), macOf(2)...)
	return append(binary.BigEndian.AppendUint16(b, etherType), payload...)
}

func ipv4(src, dst netip.Addr, protocol uint8, payload []byte) []byte {
	b := make([]byte, lenIPv4)
	b[0], b[8], b[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(lenIPv4+len(payload)))
	b[6] = 0x40 // DF
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^sum(b, 0))
	return append(b, payload...)
}

func ipv6(src, dst netip.Addr, next uint8, payload []byte) []byte {
	b := make([]byte, lenIPv6)
	b[0], b[6], b[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	return append(b, payload...)
}

// udp has a right checksum if the packet around it is given, else none.
func udp(src, dst netip.Addr, from, to uint16, payload []byte, checksum bool) []byte {
	b := make([]byte, lenUDP, lenUDP+len(payload))
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint16(b[4:], uint16(lenUDP+len(payload)))
	b = append(b, payload...)
	if checksum {
		pseudo := append(src.AsSlice(), dst.AsSlice()...)
		pseudo = append(pseudo, 0, protoUDP, b[4], b[5])
		binary.BigEndian.PutUint16(b[6:], ^sum(b, sum(pseudo, 0)))
	}
	return b
}

// sum is the Internet checksum's sum over b, folded; b's end is padded.
func sum(b []byte, start uint16) uint16 {
	total := uint32(start)
	for i := range b {
		if i%2 == 0 {
			total += uint32(b[i]) << 8
		} else {
			total += uint32(b[i])
		}
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// uplinkPDU is what a gNB sends: a PDU Session Container with QFI 9.
func uplinkPDU(teid uint32, pdu []byte) []byte {
	b := []byte{0x34, 255}
	b = binary.BigEndian.AppendUint16(b, uint16(lenContainer+len(pdu)))
	b = binary.BigEndian.AppendUint32(b, teid)
	b = append(b, 0, 0, 0, 0x85, 1, 0x10, 9, 0)
	return append(b, pdu...)
}

// gPDU is a G-PDU without options.
func gPDU(teid uint32, payload []byte) []byte {
	b := []byte{0x30, 255, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(len(payload)))
	binary.BigEndian.PutUint32(b[4:], teid)
	return append(b, payload...)
}

// srh has its segments in wire order: the last one first.
func srh(next, left uint8, segments []netip.Addr, payload []byte) []byte {
	b := []byte{next, uint8(2 * len(segments)), 4, left, uint8(len(segments) - 1), 0, 0, 0}
	for _, s := range segments {
		b = append(b, s.AsSlice()...)
	}
	return append(b, payload...)
}

// packet4 and packet6 are what users send: `size` octets behind an IPv4 header
// (26 make the frames of 64 octets with FCS), and as large a packet of IPv6, if
// there is room for what is behind its header: 20 octets at least (78).
func packet4(src, dst netip.Addr, size int, checksum bool) []byte {
	return ipv4(src, dst, protoUDP, udp(src, dst, 4000, 5000, make([]byte, size-lenUDP), checksum))
}

func packet6(src, dst netip.Addr, size int) []byte {
	return ipv6(src, dst, protoUDP, udp(src, dst, 4000, 5000, make([]byte, size6(size)-lenUDP), true))
}

func size6(size int) int { return max(20, size-(lenIPv6-lenIPv4)) }
