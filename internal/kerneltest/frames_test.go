package kerneltest

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/packet"
)

// sample is a packet that goes into both, from its IP header on.
type sample struct {
	name   string
	packet []byte
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addrs(all []string) []netip.Addr {
	out := make([]netip.Addr, len(all))
	for i, s := range all {
		out[i] = addr(s)
	}
	return out
}

// class is DSCP AF21 with a congestion mark.
func class(ecn uint8) uint8 { return 18<<2 | ecn }

// transports are what an IP packet carries.
func transports(v6 bool) map[string][]packet.Layer {
	kind := uint8(8)
	if v6 {
		kind = 128
	}
	return map[string][]packet.Layer{
		"TCP":   {packet.TCP{Sport: 40000, Dport: 443, Sequence: 7}, packet.Payload{Count: 100}},
		"UDP":   {packet.UDP{Sport: 40001, Dport: 53}, packet.Payload{Count: 33}},
		"ICMP":  {packet.ICMP{V6: v6, Type: kind, Rest: 0x10002}, packet.Payload{Count: 56}},
		"large": {packet.UDP{Sport: 40002, Dport: 4433}, packet.Payload{Count: 1200}},
	}
}

// ends are the destinations of inner packets; "" is a version left out.
type ends struct{ dst4, dst6 string }

// innerPackets are IPv4 and IPv6 packets: each transport, each congestion mark,
// hop limits 64, 2 and 1.
func innerPackets(to ends) []sample {
	var out []sample
	add := func(name string, layers []packet.Layer) {
		out = append(out, sample{name, packet.Frame(layers...)})
	}
	vary := func(version string, ip func(class, hops uint8) packet.Layer, v6 bool) {
		carried := transports(v6)
		for _, name := range []string{"TCP", "UDP", "ICMP", "large"} {
			add(version+" "+name, append([]packet.Layer{ip(class(0), 64)}, carried[name]...))
		}
		for ecn := uint8(1); ecn < 4; ecn++ {
			add(fmt.Sprintf("%s inner ECN %d", version, ecn), append([]packet.Layer{ip(class(ecn), 64)}, carried["UDP"]...))
		}
		for _, hops := range []uint8{2, 1} {
			add(fmt.Sprintf("%s inner hops %d.", version, hops), append([]packet.Layer{ip(class(0), hops)}, carried["UDP"]...))
		}
	}
	if to.dst4 != "" {
		vary("IPv4", func(c, hops uint8) packet.Layer {
			return packet.IPv4{Src: addr("10.1.0.8"), Dst: addr(to.dst4), TOS: c, TTL: &hops, ID: 77}
		}, false)
	}
	if to.dst6 != "" {
		vary("IPv6", func(c, hops uint8) packet.Layer {
			return packet.IPv6{Src: addr("2001:db8:1::8"), Dst: addr(to.dst6), Class: c, HopLimit: &hops, FlowLabel: 0x12345}
		}, true)
	}
	return out
}

// outer puts a packet into IPv6 to a SID, with an SRH if there are segments
// (Segment List[0] first).
func outer(sid string, segments []string, left, class, hops, next uint8, payload []byte) []byte {
	layers := []packet.Layer{packet.IPv6{Src: addr("fc00:1::8"), Dst: addr(sid), Class: class, HopLimit: &hops, FlowLabel: 0xabcde}}
	if len(segments) > 0 {
		layers = append(layers, packet.SRH{Segments: addrs(segments), Left: &left, Tag: 5})
	}
	return packet.Frame(append(layers, packet.Payload{Data: payload, Proto: next})...)
}

// outerFrames are SRv6 packets that are switched by their outer header: what
// they carry does not matter, hop limit and traffic class do.
func outerFrames(sid string, segments []string, left uint8) []sample {
	var out []sample
	for _, in := range innerPackets(ends{"10.9.0.9", "2001:db8:9::9"}) {
		out = append(out, sample{in.name, outer(sid, segments, left, class(0), 64, version(in.packet), in.packet)})
	}
	payload := innerPackets(ends{dst4: "10.9.0.9"})[0].packet
	for _, hops := range []uint8{255, 2, 1} {
		out = append(out, sample{fmt.Sprintf("outer hops %d.", hops), outer(sid, segments, left, class(1), hops, 4, payload)})
	}
	for ecn := uint8(1); ecn < 4; ecn++ {
		out = append(out, sample{fmt.Sprintf("outer ECN %d", ecn), outer(sid, segments, left, class(ecn), 64, 4, payload)})
	}
	if len(segments) > 0 {
		udp := packet.Frame(packet.IPv6{Src: addr("fc00:1::8"), Dst: addr(sid)},
			packet.SRH{Segments: addrs(segments), Left: &left}, packet.UDP{Sport: 1, Dport: 2}, packet.Payload{Count: 20})
		out = append(out, sample{"UDP without tunnel", udp})
	}
	return out
}

// carried are packets inside of IPv6 to a SID, with no SRH and with one of one
// to three segments that is used up, each pair of congestion marks among them.
func carried(sid string, to ends) []sample {
	var out []sample
	lists := [][]string{nil, {sid}, {sid, "fc00:c::1"}, {sid, "fc00:c::1", "fc00:d::1"}}
	for n, segments := range lists {
		for _, in := range innerPackets(to) {
			name := fmt.Sprintf("%s, %d segments", in.name, n)
			out = append(out, sample{name, outer(sid, segments, 0, class(0), 64, version(in.packet), in.packet)})
		}
	}
	for _, in := range innerPackets(to) {
		for ecn := uint8(1); ecn < 4; ecn++ {
			name := fmt.Sprintf("%s, outer ECN %d", in.name, ecn)
			out = append(out, sample{name, outer(sid, nil, 0, class(ecn), 64, version(in.packet), in.packet)})
		}
		out = append(out, sample{in.name + ", outer hops 1.", outer(sid, nil, 0, class(0), 1, version(in.packet), in.packet)})
	}
	return out
}

// version is the protocol number of an IP packet.
func version(p []byte) uint8 {
	if p[0]>>4 == 4 {
		return 4
	}
	return 41
}
