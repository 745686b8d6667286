// Package packet builds frames for tests, layer by layer:
//
//	packet.Frame(
//		packet.Ethernet{},
//		packet.IPv6{Src: src, Dst: sid},
//		packet.SRH{Segments: segments},
//		packet.IPv4{Src: a, Dst: b},
//		packet.UDP{Sport: 1000, Dport: 2000})
//
// Lengths, checksums and next headers are right unless a field says otherwise,
// so that a bad packet is a good one with one field set.
package packet
