package dataplane

import (
	"bytes"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/packet"
)

// uplinkRows are what culvert_uplink does otherwise than the journey.
var uplinkRows = []podRow{
	// Whose it is.
	{name: "another host's frame", dst: noTunnel, in: of(ip6(other, dt4), toPod4), end: "passed"},
	{name: "a multicast frame", dst: packet.Hex{0x33, 0x33, 0, 0, 0, 1}, in: of(ip6(other, dt4), toPod4), end: "passed"},
	{name: "no SID", in: of(ip6(other, "fc00:1:0:99::"), toPod4), end: "passed"},
	{name: "a SID that is not for uplinks", in: of(ip6(other, "fc00:1:0:3::"), srhOf(1, "fc00:9::", "fc00:1:0:3::"), toPod4), end: "passed"},
	{name: "IPv4", in: toPod4, end: "passed"},
	{name: "into the domain from outside", port: rowForeign, in: of(ip6("2001:db8::1", dt4), toPod4), end: "sr_domain_edge"},
	{name: "from a stranger", in: of(ip6(stranger, dt4), toPod4), end: "sr_domain_edge"},
	{name: "from a stranger, with an SRH", in: of(ip6(stranger, nodeEnd), srhOf(1, dt4), toPod4), end: "sr_domain_edge"},
	{name: "from a stranger, USD", in: of(ip6(stranger, usd), toPod4), end: "sr_domain_edge"},
	{name: "from a stranger, NEXT-C-SID", in: of(ip6(stranger, "fcbb:bb00:1:6::"), toPod6), end: "sr_domain_edge"},
	{name: "from a stranger, a binding SID", in: of(ip6(stranger, "fc00:1:0:b1::"), srhOf(1, "fc00:9::", "fc00:1:0:b1::"), toPod4), end: "sr_domain_edge"},
	{name: "from a member's SIDs, which are outside of the domain", in: of(ip6("fd77::1", dt4), toPod4), end: "sr_domain_edge"},
	{name: "from a member", in: of(ip6(insider, dt4), toPod4), end: "forwarded", out: inPod4, counts: []string{sidCount(dt4)}},
	{name: "an ordinary packet of a stranger to a node's SID", in: of(ip6(stranger, hostSID), datagram(20)), end: "passed", counts: []string{sidCount(hostSID)}},
	{name: "a fragment of an ordinary packet of a stranger to a node's SID", in: of(ip6(stranger, hostSID), fragment6, datagram(20)), end: "passed", counts: []string{sidCount(hostSID)}},
	{name: "a fragment to a node's SID behind an SRH", in: of(ip6(other, hostSID), srhOf(0, hostSID, nodeEnd), fragment6, datagram(20)), end: "fragment"},
	{name: "a fragment of a tunnel to a node's SID", in: of(ip6(stranger, hostSID), fragment6, toPod4[0], datagram(20)), end: "fragment"},
	{name: "a fragment to a node's SID with a routing header", in: of(ip6(stranger, hostSID), fragment6, srhOf(1, hostSID, nodeEnd), datagram(20)), end: "fragment"},
	{name: "a fragment to a node's SID with destination options", in: of(ip6(stranger, hostSID), fragment6, options6, datagram(20)), end: "fragment"},
	{name: "a tunnel of a stranger to a node's SID", in: of(ip6(stranger, hostSID), toPod4), end: "sr_domain_edge"},
	{name: "out of the domain from outside", port: rowForeign, in: of(ip6(other, "2001:db8::1"), toPod4), end: "sr_domain_edge"},

	// Into a pod.
	{name: "End.DT4", in: of(ip6(other, dt4), toPod4), end: "forwarded", out: inPod4, counts: []string{sidCount(dt4)}},
	{name: "End.DT6", in: of(ip6(other, dt6), toPod6), end: "forwarded", out: inPod6, counts: []string{sidCount(dt6)}},
	{name: "USD, IPv4", in: of(ip6(other, usd), toPod4), end: "forwarded", out: inPod4, counts: []string{sidCount(usd)}},
	{name: "USD, IPv6 behind an SRH", in: of(ip6(other, usd), srhOf(0, usd, nodeEnd), toPod6), end: "forwarded", out: inPod6,
		counts: []string{sidCount(usd)}},

	// End, and a DT SID of this node behind it.
	{name: "End and End.DT4", in: of(ip6(other, nodeEnd), srhOf(1, dt4), toPod4), end: "forwarded", out: inPod4,
		counts: []string{sidCount(nodeEnd), sidCount(dt4)}},
	{name: "End and End.DT6, with an HMAC TLV", end: "forwarded", out: inPod6, counts: []string{sidCount(nodeEnd), sidCount(dt6)},
		in: of(ip6(other, nodeEnd), packet.SRH{Segments: addrs(dt6, nodeEnd), TLV: bytes.Repeat([]byte{5, 14, 0, 0, 0, 0, 0, 1}, 2)}, toPod6)},
	{name: "End and a DT SID that is not the last", in: of(ip6(other, nodeEnd), srhOf(2, "fc00:9::", dt6, nodeEnd), toPod6), end: "segments_left"},
	{name: "options behind End and a DT SID", in: of(ip6(other, nodeEnd), srhOf(1, dt6), packet.Extension{Kind: 60, Data: packet.Hex{1, 4, 0, 0, 0, 0}}, toPod6), end: "extension_chain"},
	{name: "a fragment behind End and a DT SID", in: of(ip6(other, nodeEnd), srhOf(1, dt6), packet.Extension{Kind: 44, Data: packet.Hex{0, 1, 0, 0, 0, 7}}, toPod6), end: "fragment"},
	{name: "another upper layer behind End and a DT SID", in: of(ip6(other, nodeEnd), srhOf(1, dt6), toPod4), end: "upper_layer"},
	{name: "another upper layer that is allowed", in: of(ip6(other, "fc00:1:0:7::"), toPod4), end: "passed", counts: []string{sidCount("fc00:1:0:7::")}},
	{name: "hop limit 1 at End and a DT SID", in: of(hops6(ip6(other, nodeEnd), 1), srhOf(1, dt6), toPod6), end: "hop_limit"},

	// NEXT-C-SID, and what it comes to.
	{name: "NEXT-C-SID and End.DT6", in: of(ip6(other, "fcbb:bb00:1:6::"), toPod6), end: "forwarded", out: inPod6,
		counts: []string{csidCount(csid), csidCount(csidDT6)}},
	{name: "NEXT-C-SID, options, and End.DT6", end: "extension_chain",
		in: of(ip6(other, "fcbb:bb00:1:6::"), packet.Extension{Kind: 60, Data: packet.Hex{1, 4, 0, 0, 0, 0}}, toPod6)},
	{name: "NEXT-C-SID, segments left, and End.DT6", in: of(ip6(other, "fcbb:bb00:1:6::"), srhOf(1, "fc00:9::", "fcbb:bb00:1:6::"), toPod6), end: "segments_left"},
	{name: "NEXT-C-SID does not look at options", end: "passed", counts: []string{csidCount(csid)},
		in:  of(ip6(other, "fcbb:bb00:1:9::"), packet.Extension{Kind: 60, Data: packet.Hex{1, 4, 0, 0, 0, 0}}, toPod6),
		out: of(packet.Ethernet{}, ip6(other, "fcbb:bb00:9::"), packet.Extension{Kind: 60, Data: packet.Hex{1, 4, 0, 0, 0, 0}}, toPod6)},
	{name: "NEXT-C-SID in a packet cut short", in: of(ip6(other, "fcbb:bb00:1:9::"), toPod6), cut: 1, end: "ipv6_malformed"},

	// By another table, by the kernel's answer.
	{name: "a table's neighbour, IPv4", in: of(ip6(other, table4), ip4("10.1.1.1", "10.21.0.1"), datagram(20)), end: "forwarded",
		out: of(nextFrame, hops4(ip4("10.1.1.1", "10.21.0.1"), 63), datagram(20)), counts: []string{sidCount(table4)}},
	{name: "a table's neighbour, IPv6", in: of(ip6(other, table6), ip6("fd01::1", "fd21::1"), datagram(20)), end: "forwarded",
		out: of(nextFrame, hops6(ip6("fd01::1", "fd21::1"), 63), datagram(20)), counts: []string{sidCount(table6)}},
	{name: "a table's neighbour of the other family", in: of(ip6(other, table4), ip4("10.1.1.1", "10.26.0.1"), datagram(20)), end: "forwarded",
		out: of(nextFrame, hops4(ip4("10.1.1.1", "10.26.0.1"), 63), datagram(20)), counts: []string{sidCount(table4)}},
	{name: "a table, and End", in: of(ip6(other, nodeEnd), srhOf(1, table4), ip4("10.1.1.1", "10.21.0.1"), datagram(20)), end: "forwarded",
		out: of(nextFrame, hops4(ip4("10.1.1.1", "10.21.0.1"), 63), datagram(20)), counts: []string{sidCount(nodeEnd), sidCount(table4)}},
	{name: "a table, and congestion outside", in: of(class6(ip6(other, table4), 3), class4(ip4("10.1.1.1", "10.21.0.1"), 0xb9), datagram(20)), end: "forwarded",
		out: of(nextFrame, class4(hops4(ip4("10.1.1.1", "10.21.0.1"), 63), 0xbb), datagram(20)), counts: []string{sidCount(table4)}},
	{name: "a table, and congestion that cannot be told", in: of(class6(ip6(other, table6), 3), ip6("fd01::1", "fd21::1"), datagram(20)), end: "ecn"},
	{name: "a table, unresolved, IPv4", in: of(ip6(other, table4), ip4("10.1.1.1", "10.22.0.1"), datagram(20)), end: "forwarded",
		out: of(withoutMACs, hops4(ip4("10.1.1.1", "10.22.0.1"), 63), datagram(20)), counts: []string{sidCount(table4)}},
	{name: "a table, unresolved, IPv6", in: of(ip6(other, table6), ip6("fd01::1", "fd22::1"), datagram(20)), end: "forwarded",
		out: of(withoutMACs, hops6(ip6("fd01::1", "fd22::1"), 63), datagram(20)), counts: []string{sidCount(table6)}},
	{name: "a table's unreachable", in: of(ip6(other, table4), ip4("10.1.1.1", "10.23.0.1"), datagram(20)), end: "unreachable"},
	{name: "a table's blackhole", in: of(ip6(other, table6), ip6("fd01::1", "fd23::1"), datagram(20)), end: "unreachable"},
	{name: "a table's prohibit", in: of(ip6(other, table6), ip6("fd01::1", "fd26::1"), datagram(20)), end: "unreachable"},
	{name: "a table without the route, IPv4", in: of(ip6(other, table4), toPod4), end: "no_route"},
	{name: "a table without the route, IPv6", in: of(ip6(other, table6), toPod6), end: "no_route"},
	{name: "a table's MTU, IPv4", in: of(ip6(other, table4), ip4("10.1.1.1", "10.25.0.1"), datagram(1300-27)), end: "too_big"},
	{name: "a table's MTU, IPv6", in: of(ip6(other, table6), ip6("fd01::1", "fd25::1"), datagram(1300-47)), end: "too_big"},
	{name: "a table's MTU is met", in: of(ip6(other, table6), ip6("fd01::1", "fd25::1"), datagram(1300-48)), end: "forwarded",
		out: of(nextFrame, hops6(ip6("fd01::1", "fd25::1"), 63), datagram(1300-48)), counts: []string{sidCount(table6)}},
	{name: "a table, TTL 1", in: of(ip6(other, table4), hops4(ip4("10.1.1.1", "10.21.0.1"), 1), datagram(20)), end: "hop_limit"},
	{name: "a table, inside cut short", in: of(ip6(other, table4), ip4("10.1.1.1", "10.21.0.1")), cut: 1, end: "ipv6_malformed"},

	// Into a policy, by the kernel's answer.
	{name: "a policy", in: bound("b1"), end: "forwarded", out: of(nextFrame, ip6("fc00:1::1", "fc00:a::"), boundNext("b1")),
		counts: []string{sidCount("fc00:1:0:b1::"), "list reached 0"}},
	{name: "a policy, unresolved", in: bound("b2"), end: "forwarded", out: of(withoutMACs, ip6("fc00:1::1", "fc00:b::"), boundNext("b2")),
		counts: []string{sidCount("fc00:1:0:b2::"), "list resolved 0"}},
	{name: "a policy to nowhere that is known", in: bound("b3"), end: "unreachable"},
	{name: "a policy without a route", in: bound("b4"), end: "no_route"},
	{name: "a policy, MTU", in: bound("b5", datagram(1300-40-(40+8+32)-47)...), end: "too_big"},
	{name: "a policy without lists", in: bound("b6"), end: "no_segment_list"},
}

// TestUplinkRows runs the rows through culvert_uplink.
func TestUplinkRows(t *testing.T) {
	runRows(t, abi.ProgCulvertUplink, uplinkRows, rowUplink)
}
