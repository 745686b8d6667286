// Package checksum computes the Internet checksum (RFC 1071) of packets that
// the slow path, the laboratory and tests build or check.
//
// The reference model (internal/model) and the laboratory's GTP-U end
// (internal/lab/gtpulink) do not use it: they judge packets that were made with
// it.
package checksum

import (
	"net/netip"

	"github.com/gopacket/gopacket"
)

// Of returns the checksum of b: the complement of the folded one's complement
// sum of its 16-bit words. start is a sum to begin with, as from Pseudo, or 0.
// A last odd octet counts as if a zero octet followed it.
func Of(b []byte, start uint32) uint16 {
	return gopacket.FoldChecksum(gopacket.ComputeChecksum(b, start))
}

// Partial returns the folded sum start, without the complement. Linux leaves it
// in a TCP or UDP checksum field that hardware is to complete.
func Partial(start uint32) uint16 { return ^gopacket.FoldChecksum(start) }

// Pseudo returns the sum of the pseudo-header of TCP, UDP and ICMPv6 (RFC 768;
// RFC 8200 section 8.1). length counts the upper-layer header and its payload,
// in octets. Both addresses are of one family.
func Pseudo(src, dst netip.Addr, protocol uint8, length int) uint32 {
	sum := gopacket.ComputeChecksum(src.AsSlice(), 0)
	sum = gopacket.ComputeChecksum(dst.AsSlice(), sum)
	return sum + uint32(protocol) + uint32(length)
}

// UDP returns the checksum of a UDP datagram from src to dst. It is never 0,
// which would mean that the datagram has none. The datagram's own checksum
// field must be 0.
func UDP(src, dst netip.Addr, datagram []byte) uint16 {
	const protocol = 17
	if sum := Of(datagram, Pseudo(src, dst, protocol, len(datagram))); sum != 0 {
		return sum
	}
	return 0xffff
}
