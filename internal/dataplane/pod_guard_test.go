package dataplane

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/fuzzing"
)

// rawFrame is a frame that is not IP.
func rawFrame(etherType uint16, payload []byte) layers {
	return of(packet.Ethernet{Type: &etherType}, packet.Payload{Data: payload})
}

// arp is a request (RFC 826) for the pods' gateway.
func arp(mac []byte, sender string) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(append(b, mac...), addr(sender).AsSlice()...)
	b = append(b, 0, 0, 0, 0, 0, 0)
	return append(b, 10, 2, 2, 1)
}

// icmp6 is a message of one hop (RFC 4861, 3810).
func icmp6(src, dst string, kind uint8, before ...packet.Layer) layers {
	in := layers{hops6(ip6(src, dst), 255)}
	in = append(in, before...)
	return append(in, packet.ICMP{V6: true, Type: kind}, packet.Payload{Count: 16})
}

// advertisement is a Neighbor Advertisement about an address.
func advertisement(target string) layers {
	return of(icmp6("fd02::2", allNodes, 136)[:2], packet.Payload{Data: addr(target).AsSlice()})
}

// laterFragment is what comes behind the first one of a packet whose first header is `kind`.
func laterFragment(kind uint8) packet.Extension {
	return packet.Extension{Kind: 44, Data: packet.Hex{0, 8, 0, 0, 0, 7}, Next: &kind}
}

const (
	podLinkLocal = "fe80::ff:fe00:a" // of hostA
	allNodes     = "ff02::1"
	allRouters   = "ff02::2"
)

var (
	routerAlert    = packet.Extension{Kind: 0, Data: packet.Hex{5, 2, 0, 0, 1, 0}}
	authentication = packet.Extension{Kind: 51, Data: make(packet.Hex, 22), Length: new(uint8(4))} // RFC 4302: 24 octets
)

// guardRows are what whoever is root in the pod at podveth may send, and may not. Its
// addresses are 10.2.2.2 and fd02::2, those of the other pod 10.1.1.1 and fd01::1.
var guardRows = []podRow{
	{name: "its own address", in: of(ip4("10.2.2.2", "192.0.2.1"), datagram(20)), end: "passed"},
	{name: "its own address, IPv6", in: of(ip6("fd02::2", "2001:db8::1"), datagram(20)), end: "passed"},
	{name: "another MAC", src: packet.Hex(hostB), in: of(ip4("10.2.2.2", "10.1.1.1"), datagram(20)), end: "pod_source"},
	{name: "another MAC, ARP", src: packet.Hex(hostB), in: rawFrame(0x0806, arp(hostA, "10.2.2.2")), end: "pod_source"},
	{name: "a free address", in: of(ip4("10.2.2.3", "10.1.1.1"), datagram(20)), end: "pod_source"},
	{name: "a free address, IPv6", in: of(ip6("fd02::3", "fd01::1"), datagram(20)), end: "pod_source"},
	{name: "another pod's address", in: of(ip4("10.1.1.1", "10.11.0.1"), datagram(20)), end: "pod_source"},
	{name: "another pod's address, IPv6", in: of(ip6("fd01::1", "fd11::1"), datagram(20)), end: "pod_source"},
	{name: "another pod's address, to nobody", in: of(ip4("10.1.1.1", "192.0.2.1"), datagram(20)), end: "pod_source"},
	{name: "another pod's address, to a group", dst: packet.Hex{1, 0, 0x5e, 0, 0, 0xfb}, in: of(ip4("10.1.1.1", "224.0.0.251"), datagram(20)), end: "pod_source"},
	{name: "another pod's address, to another MAC", dst: noTunnel, in: of(ip4("10.1.1.1", "10.11.0.1"), datagram(20)), end: "pod_source"},
	{name: "no address: DHCP", dst: packet.Hex{255, 255, 255, 255, 255, 255}, in: of(ip4("0.0.0.0", "255.255.255.255"), datagram(20)), end: "pod_source"},
	{name: "no address, IPv6", in: of(ip6("::", "fd01::1"), datagram(20)), end: "pod_source"},
	{name: "a node of the SR domain", in: of(ip6(other, "fd01::1"), datagram(20)), end: "pod_source"},

	{name: "a tag", in: of(packet.Ethernet{VLAN: []uint16{7}}, ip4("10.2.2.2", "10.1.1.1"), datagram(20)), end: "pod_frame"},
	{name: "a priority tag, to a SID", in: of(packet.Ethernet{VLAN: []uint16{0}}, ip6("fd02::2", dt6), toPod6), end: "pod_frame"},
	{name: "two tags", in: of(packet.Ethernet{VLAN: []uint16{0, 0}}, ip4("10.2.2.2", "10.1.1.1"), datagram(20)), end: "pod_frame"},
	{name: "LLDP", in: rawFrame(0x88cc, make([]byte, 46)), end: "pod_frame"},

	{name: "ARP", in: rawFrame(0x0806, arp(hostA, "10.2.2.2")), end: "passed"},
	{name: "ARP, a probe", in: rawFrame(0x0806, arp(hostA, "0.0.0.0")), end: "passed"},
	{name: "ARP, of another address", in: rawFrame(0x0806, arp(hostA, "10.1.1.1")), end: "pod_source"},
	{name: "ARP, of another MAC", in: rawFrame(0x0806, arp(hostB, "10.2.2.2")), end: "pod_source"},
	{name: "ARP, cut", in: rawFrame(0x0806, arp(hostA, "10.2.2.2")[:17]), end: "pod_source"},

	{name: "duplicate address detection", in: icmp6("::", "ff02::1:ff00:a", 135), end: "passed"},
	{name: "MLD without an address", in: icmp6("::", "ff02::16", 143, routerAlert), end: "passed"},
	{name: "MLD", in: icmp6(podLinkLocal, "ff02::16", 143, routerAlert), end: "passed"},
	{name: "router solicitation", in: icmp6(podLinkLocal, allRouters, 133), end: "passed"},
	{name: "neighbour solicitation", in: icmp6("fd02::2", allNodes, 135), end: "passed"},
	{name: "neighbour advertisement", in: advertisement("fd02::2"), end: "passed"},
	{name: "neighbour advertisement, link-local", in: advertisement(podLinkLocal), end: "passed"},
	{name: "neighbour advertisement about another pod", in: advertisement("fd01::1"), end: "pod_source"},
	{name: "neighbour advertisement about its gateway", in: advertisement("fe80::1"), end: "pod_source"},
	{name: "neighbour advertisement, cut", in: of(icmp6("fd02::2", allNodes, 136)[:2], packet.Payload{Count: 8}), end: "pod_source"},
	{name: "a link-local address that is not of its MAC", in: icmp6("fe80::ff:fe00:b", allRouters, 133), end: "pod_source"},
	{name: "a link-local address beyond fe80::/64", in: icmp6("fe80:0:0:1:0:ff:fe00:a", allRouters, 133), end: "pod_source"},
	{name: "its link-local address, to elsewhere", in: of(ip6(podLinkLocal, "fd01::1"), datagram(20)), end: "pod_source"},
	{name: "router advertisement", in: icmp6(podLinkLocal, allNodes, 134), end: "pod_frame"},
	{name: "router advertisement behind options", in: icmp6(podLinkLocal, allNodes, 134, routerAlert, options6), end: "pod_frame"},
	{name: "redirect", in: icmp6(podLinkLocal, allNodes, 137), end: "pod_frame"},
	{name: "ICMPv6, cut", in: of(icmp6(podLinkLocal, allNodes, 134)[0], packet.Payload{Proto: 58}), end: "pod_frame"},

	{name: "an SRH", in: of(ip6("fd02::2", "2001:db8::1"), srhOf(1, "fd01::1", "2001:db8::1"), datagram(20)), end: "sr_domain_edge"},
	{name: "an SRH to another pod", in: of(ip6("fd02::2", "fd01::1"), srhOf(0, "fd01::1"), datagram(20)), end: "sr_domain_edge"},
	{name: "an SRH behind options", in: of(ip6("fd02::2", "fd01::1"), routerAlert, options6, srhOf(0, "fd01::1"), datagram(20)), end: "sr_domain_edge"},
	{name: "an SRH behind too many options", in: of(ip6("fd02::2", "fd01::1"), routerAlert, options6, options6, options6, srhOf(0, "fd01::1")), end: "extension_chain"},
	{name: "an SRH in a fragment", in: of(ip6("fd02::2", "fd01::1"), fragment6, srhOf(0, "fd01::1"), datagram(20)), end: "sr_domain_edge"},
	{name: "an SRH in fragments, a later one", in: of(ip6("fd02::2", "fd01::1"), laterFragment(43), packet.Payload{Count: 24}), end: "sr_domain_edge"},
	{name: "an SRH behind an authentication header", in: of(ip6("fd02::2", "fd01::1"), authentication, srhOf(0, "fd01::1"), datagram(20)), end: "sr_domain_edge"},
	{name: "a router advertisement in a fragment", in: icmp6(podLinkLocal, allNodes, 134, fragment6), end: "pod_frame"},
	{name: "a fragment", in: of(ip6("fd02::2", "2001:db8::1"), fragment6, datagram(20)), end: "passed"},
	{name: "a later fragment, with whatever is in it", in: of(ip6("fd02::2", "2001:db8::1"), laterFragment(17), packet.Payload{Count: 24}), end: "passed"},
	{name: "an authentication header", in: of(ip6("fd02::2", "2001:db8::1"), authentication, datagram(20)), end: "passed"},
	{name: "options, cut", in: of(ip6("fd02::2", "fd01::1"), packet.Payload{Proto: 60}), end: "extension_chain"},
	{name: "IPv6 in IPv6 to a SID", in: of(ip6("fd02::2", dt6), toPod6), end: "sr_domain_edge"},
	{name: "IPv6 in IPv6 to a SID outside of the domain", in: of(ip6("fd02::2", "fd77::1"), toPod6), end: "sr_domain_edge"},
	{name: "to a node", in: of(ip6("fd02::2", insider), datagram(20)), end: "passed"},
	{name: "a datagram to an address of a locator", in: of(ip6("fd02::2", "fc00:2::99"), datagram(20)), end: "sr_domain_edge"},
	{name: "IPv6 in IPv6 to another pod, which is its own business", in: of(ip6("fd02::2", "fd01::1"), toPod6), end: "forwarded",
		out: of(packet.Ethernet{Dst: packet.Hex(hostB), Src: gateway}, hops6(ip6("fd02::2", "fd01::1"), 63), toPod6)},
}

// TestPodGuard: a pod sends from its own addresses, and reaches nodes of the SR domain by
// nothing that only they and routers send.
func TestPodGuard(t *testing.T) {
	runRows(t, abi.ProgCulvertPod, guardRows, rowPod)
}

// TestPodGuardToKernel: a pod that is left to the kernel may send no more than others.
func TestPodGuardToKernel(t *testing.T) {
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		p := rowPods[rowPod]
		p.ToKernel = true
		must(t, r.d.Pods.Put(p))
		for _, row := range guardRows {
			row.port = rowPod
			if row.end == "forwarded" {
				row.end, row.out, row.counts = "passed", nil, nil
			}
			r.checkRow(t, program, &row)
		}
	})
}

// A pod with addresses of one family has none of the other: not even 0.0.0.0 or ::.
func TestPodGuardOfOneFamily(t *testing.T) {
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		p := rowPods[rowPod]
		for _, c := range []struct {
			address string
			rows    []podRow
		}{
			{"10.2.2.2", []podRow{
				{name: "IPv6", in: of(ip6("fd02::2", "fd01::1"), datagram(20)), end: "pod_source"},
				{name: "no address, IPv6", in: of(ip6("::", "fd01::1"), datagram(20)), end: "pod_source"},
				{name: "MLD", in: icmp6(podLinkLocal, "ff02::16", 143, routerAlert), end: "passed"},
			}},
			{"fd02::2", []podRow{
				{name: "IPv4", in: of(ip4("10.2.2.2", "10.1.1.1"), datagram(20)), end: "pod_source"},
				{name: "no address, IPv4", in: of(ip4("0.0.0.0", "10.1.1.1"), datagram(20)), end: "pod_source"},
			}},
		} {
			p.Addresses = addrs(c.address)
			must(t, r.d.Pods.Put(p))
			for _, row := range c.rows {
				row.name, row.port = "only "+c.address+": "+row.name, rowPod
				r.checkRow(t, program, &row)
			}
		}
	})
}

// Whatever the rows become by mutations, what is not dropped has the pod's MAC, and what is
// IP one of its addresses, or stays on the link.
func TestPodGuardMutated(t *testing.T) {
	source := fuzzing.New(*fuzzSeed)
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		dropped, passed := 0, 0
		for range *fuzzFrames / 4 {
			base := frameAt(t, rowPod, guardRows[source.IntN(len(guardRows))].in)
			frame := fuzzing.Mutate(base, source.Mutations(len(base)))
			if len(frame) < 14+40 { // test_run takes no frames whose header is cut
				continue
			}
			switch verdict, _ := runOn(t, program, frame, rowPod); {
			case verdict == tcxDrop:
				dropped++
			case !mayLeave(frame):
				t.Fatalf("seed %d: not dropped: %x", *fuzzSeed, frame)
			default:
				passed++
			}
		}
		if dropped < 100 || passed < 100 {
			t.Errorf("%d dropped, %d not: want some of each", dropped, passed)
		}
	})
}

// mayLeave says the same as the guard, of what it lets go.
func mayLeave(frame []byte) bool {
	if string(frame[6:12]) != string(hostA) {
		return false
	}
	switch body := frame[14:]; binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		return len(body) >= 20 && netip.AddrFrom4([4]byte(body[12:16])) == addr("10.2.2.2")
	case 0x86dd:
		if len(body) < 40 || body[6] == 43 {
			return false
		}
		src, dst := netip.AddrFrom16([16]byte(body[8:24])), netip.AddrFrom16([16]byte(body[24:40]))
		link := dst.IsLinkLocalUnicast() || dst.IsLinkLocalMulticast()
		return !prefix("fc00::/16").Contains(dst) && (src == addr("fd02::2") || link && (src.IsUnspecified() || src == addr(podLinkLocal)))
	case 0x0806:
		return len(body) >= 18 && string(body[8:14]) == string(hostA)
	}
	return false
}
