package catalog

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Variants returns the functions, and behind each the same on the ports with roles by which
// its frames may enter, on one with long frames, and in frames of other shapes: NAME@n3 and so on.
func Variants(list []Function) (out []Function) {
	for _, f := range list {
		out = append(out, f)
		if f.Name == BaselineName {
			continue
		}
		out = append(out, f.variant(suffixTrace, f.Port).traced())
		if f.Port == node.PortFrames {
			out = append(out, f.variant(suffixVLAN, f.Port).tagged().whole())
			continue
		}
		out = append(out, f.variant(suffixSteered, node.PortSteered))
		for _, port := range f.ports {
			out = append(out, f.variant(port, port))
		}
		out = append(out, f.variant(suffixVLAN, f.Port).tagged(), f.variant(suffixLong, node.PortLong), f.variant(suffixPadded, f.Port).padded())
		if at := f.gtpuAt(); at != 0 {
			out = append(out, f.variant(suffixSequence, f.Port).numbered(at))
		}
		out = append(out, f.shapes()...)
	}
	return out
}

// shapes are those that the function alone has, or a few.
func (f Function) shapes() []Function {
	switch f.Name {
	case "end":
		return []Function{endPSP(f.Size)}
	case "end_dt4":
		first := Addr("100.64.0.0")
		return []Function{
			endDestinations(f.Name+"@"+suffixRoutes, 21, fewDestinations, first, f.Size),
			endDestinations(f.Name+"@"+suffixMany, 22, manyDestinations, first, f.Size),
		}
	case "end_dt46", "end_m_gtp4_e":
		return []Function{f.variant(suffixSRH, f.Port).behindSRH()}
	case "end_dt6":
		return []Function{endDestinations(f.Name+"@"+suffixMany, 23, manyDestinations, Addr("2001:db8:6600::"), f.Size)}
	case "h_encaps":
		return []Function{byClass(f.Size)}
	case "h_encaps_red":
		return append(byPolicies(f.Size), byPort(f.Size), redOutside(f.Size),
			redDestinations(suffixMany, Addr("100.120.0.0"), f.Size), redDestinations(suffixMany6, Addr("2001:db8:6700::"), f.Size))
	case "gtpu_encap":
		return []Function{encapOverIPv6(f.Size), encapOutside(f.Size)}
	case "gtpu_decap", "gtpu_switch":
		return []Function{f.variant(suffixIPv6, f.Port).overIPv6()}
	case "uplink", "downlink":
		return f.ofOtherSessions()
	}
	return nil
}

const (
	suffixVLAN     = "vlan"
	suffixLong     = "9000"
	suffixPadded   = "padded"
	suffixSequence = "sequence"
	suffixPSP      = "psp"
	suffixSRH      = "srh"
	suffixIPv6     = "ipv6"
	suffixOutside  = "outside"
	suffixTrace    = "trace"
	suffixSteered  = "steered"
	suffixPort     = "port"
	suffixRoutes   = "routes10k"
	suffixMany     = "destinations100k"
	suffixMany6    = "destinations100k_ipv6"
	suffixClass    = "class"
	suffixLists    = "lists4"
	suffixReady    = "protected"
	suffixHops     = "hops2"
)

// byClass is H.Encaps by a traffic class: packets with DSCP 46 take the policy of another color
// than best effort, whose segment list is another one.
func byClass(size int) Function {
	const bestEffort, voice, dscp = 1, 46, 46
	steered, endpoint := Addr("10.131.0.1"), Addr("2001:db8:f:2::1")
	policy := func(name string, color uint32, segment netip.Addr) srpolicy.Policy {
		p := OnePath(name, srv6.HEncaps, segment)
		p.Color, p.Endpoint = color, endpoint
		return p
	}
	user := packet4(Inner4, steered, size, false)
	user[0] = packet.IPv4{Src: Inner4, Dst: steered, Fragment: dontFragment, TOS: dscp << 2}
	return Function{
		Name: "h_encaps@" + suffixClass, Size: size, Most: 1, Port: node.PortEdge, Data: user.frame(),
		Want: rig.WantIPv6(Segment, 16, rig.ProtoRouting, 24+user.len()),
		put: func(c *config.Config, _ uint32) {
			c.Policies = append(c.Policies, policy("best-effort", bestEffort, Final), policy("voice", voice, Segment))
			c.Steering = append(c.Steering, srpolicy.Steering{Prefix: Prefix(steered, 16), Policy: "best-effort"})
			c.TrafficClasses = append(c.TrafficClasses, class.Class{Name: "voice", Color: voice, Match: class.Match{DSCP: []uint16{dscp}}})
		},
	}
}

// byPolicies are H.Encaps.Red by policies with more segments, lists or next hops than the usual one, or
// with another candidate path that is held ready. The UEs of each have a part of a pool of their own.
func byPolicies(size int) (out []Function) {
	const most = 1000
	for i, one := range []struct {
		suffix          string
		lists, segments int
		from            int // number of the first segment
	}{{"segments2", 1, 2, 0}, {"segments4", 1, 4, 0}, {"segments8", 1, 8, 0}, {suffixLists, 4, 1, 0}, {suffixReady, 1, 1, 0}, {suffixHops, 1, 1, 9}} {
		policy := srpolicy.Policy{Name: one.suffix, Behavior: srv6.HEncapsRed}
		for list := range one.lists {
			policy.SegmentLists = append(policy.SegmentLists, srpolicy.SegmentList{
				Weight: uint32(1 + list), Segments: segmentsFrom(list+one.from, one.segments),
			})
		}
		first := UENumber(policyPool.Addr()) + uint32(i)<<10
		f := Function{
			Name: "h_encaps_red@" + one.suffix, Size: size, Most: most, Data: packet4(Inner4, UEAt(first), size, false).frame(),
			Key: key{Offset: rig.LenEthernet + 16, base: first, checksum: rig.LenEthernet + 10},
			put: func(c *config.Config, entries uint32) {
				c.Policies = append(c.Policies, policy)
				if one.suffix == suffixReady {
					c.CandidatePaths = append(c.CandidatePaths, srpolicy.CandidatePath{Name: "spare", Policy: policy.Name, Preference: 50,
						SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: segmentsFrom(7, 1)}}})
				}
				if !slices.Contains(c.GTPU.Pools, policyPool) {
					c.GTPU.Pools = append(c.GTPU.Pools, policyPool)
					c.Limits.Tunnels += 1 << 13
				}
				for n := range entries {
					c.Steering = append(c.Steering, srpolicy.Steering{Prefix: Prefix(UEAt(first+n), 32), Policy: policy.Name})
				}
			},
			Want: wantReduced(one.segments, rig.LenIPv4+size),
		}
		f.Want.Destination = f.Want.Destination[:15] // that all lists have
		if one.suffix == suffixHops {
			f.Routes = twoHops(policy.SegmentLists[0].Segments[0])
		}
		out = append(out, f)
	}
	return out
}

// twoHops are a route to a segment that no other function has, by two next hops.
func twoHops(segment netip.Addr) []string {
	const second = "2001:db8:2::3"
	return []string{
		fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", second, node.MAC(4), node.PortOut),
		fmt.Sprintf("route add %s nexthop via %s nexthop via %s", segment, Peer6, second),
	}
}

// policyPool has the UEs of byPolicies.
var policyPool = netip.MustParsePrefix("10.140.0.0/19")

// variant is the function on another port, which Linux does not have.
func (f Function) variant(suffix, port string) Function {
	f.of, f.Name, f.Port, f.Kernel = f.Name, f.Name+"@"+suffix, port, nil
	return f
}

// tagged is the function with frames that have a VLAN tag.
func (f Function) tagged() Function {
	const tag = 0x8100_0007 // VLAN 7
	addresses, rest := f.Data[:rig.LenEthernet-2], f.Data[rig.LenEthernet-2:]
	f.Data = append(binary.BigEndian.AppendUint32(slices.Clone(addresses), tag), rest...)
	for _, k := range []*key{&f.Key, &f.twin, &f.flow, &f.teid} {
		if k.Offset != 0 {
			k.Offset += 4
		}
		if k.checksum != 0 {
			k.checksum += 4
		}
	}
	return f
}

// whole is the function that keeps the VLAN tag of its frames.
func (f Function) whole() Function {
	f.Want.Payload += 4
	return f
}

// padded is the function with frames that a card has made longer: short ones have octets behind
// the packet.
func (f Function) padded() Function {
	const padding, longest = 6, 1024 // longer frames lose it, and so does a frame that End.DX2 takes out
	f.Data = append(slices.Clone(f.Data), make([]byte, padding)...)
	if len(f.Data) <= longest && f.of != "end_dx2" {
		f.Want.Payload += padding
	}
	return f
}

// gtpuAt is where the GTP-U header of the function's frames begins; 0: they have none.
func (f Function) gtpuAt() int {
	switch {
	case !slices.Contains(f.ports, node.PortN3):
		return 0
	case f.Data[rig.LenEthernet]>>4 == 6:
		return rig.LenEthernet + rig.LenIPv6 + rig.LenUDP
	default:
		return rig.LenEthernet + rig.LenIPv4 + rig.LenUDP
	}
}

// numbered is the function with sequence numbers in the GTP-U headers at `at`.
func (f Function) numbered(at int) Function {
	const flagSequence, options = 2, 4
	f.Data = slices.Clone(f.Data)
	with := f.Data[at]&7 != 0 // there is room already
	f.Data[at] |= flagSequence
	if with {
		binary.BigEndian.PutUint16(f.Data[at+8:], 7)
		return f
	}
	f.Data = slices.Insert(f.Data, at+8, 0, 7, 0, 0)
	longer := func(at int) {
		binary.BigEndian.PutUint16(f.Data[at:], binary.BigEndian.Uint16(f.Data[at:])+options)
	}
	if f.of == "gtpu_switch" { // which keeps the header and its options
		f.Want.Payload += options
	}
	longer(at + 2) // GTP-U
	longer(at - 4) // UDP
	if f.Data[rig.LenEthernet]>>4 == 6 {
		longer(rig.LenEthernet + 4)
	} else {
		longer(rig.LenEthernet + 2)
		header := f.Data[rig.LenEthernet:][:rig.LenIPv4]
		binary.BigEndian.PutUint16(header[10:], 0)
		binary.BigEndian.PutUint16(header[10:], checksum.Of(header, 0))
	}
	return f
}

// behindSRH is the function with frames that have an SRH, which has no segments left, behind the IPv6 header.
func (f Function) behindSRH() Function {
	const at, routing, length = rig.LenEthernet + rig.LenIPv6, 43, 24
	ip := f.Data[rig.LenEthernet:at]
	srh := append([]byte{ip[6], length/8 - 1, 4, 0, 0, 0, 0, 0}, ip[24:40]...)
	f.Data = slices.Insert(slices.Clone(f.Data), at, srh...)
	ip = f.Data[rig.LenEthernet:at]
	ip[6] = routing
	binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+length)
	return f
}

// IsVariant says whether a function is NAME@SUFFIX.
func (f Function) IsVariant() bool { return strings.Contains(f.Name, "@") }

// suffixes says what the variants are, in a report.
var suffixes = map[string]title{
	node.PortN3:    {"role n3", "on a port with the role n3"},
	node.PortN6:    {"role n6", "on a port with the role n6"},
	node.PortSR:    {"role sr", "on a port with the role sr"},
	node.PortEdge:  {"roles edge, n3, n6", "on a port with the roles edge, n3 and n6"},
	suffixVLAN:     {"VLAN", "in frames with a VLAN tag"},
	suffixLong:     {"MTU 9000", "on a port with an MTU of 9000"},
	suffixPadded:   {"padded", "in frames with padding behind the packet"},
	suffixSequence: {"sequence number", "in G-PDUs with a sequence number"},
	suffixPSP:      {"PSP", "before the last segment, where PSP takes the SRH out"},
	suffixSRH:      {"SRH", "behind an SRH without segments left, as H.Encaps of Linux sends"},
	suffixIPv6:     {"IPv6", "with GTP-U over IPv6"},
	suffixOutside:  {"outside of pools", "for UEs outside of the pools"},
	suffixTrace:    {"traced", "while a trace runs that matches nothing"},
	suffixSteered:  {"steered port", "on a port whose other packets a policy takes"},
	suffixPort:     {"by port", "by the port that packets come from"},
	suffixRoutes:   {"10,000 routes", "to 1,000 destinations at random"},
	suffixMany:     {"100,000 destinations", "to 100,000 destinations at random"},
	suffixMany6:    {"100,000 IPv6 destinations", "to 100,000 IPv6 destinations at random"},
	suffixClass:    {"traffic class", "by the policy of a class, on a port with the roles edge, n3 and n6"},
	"segments2":    {"2 segments", "by a policy with 2 segments"},
	"segments4":    {"4 segments", "by a policy with 4 segments"},
	"segments8":    {"8 segments", "by a policy with 8 segments"},
	suffixLists:    {"4 lists", "by a policy with 4 weighted lists"},
	suffixReady:    {"protected", "by a policy with another candidate path that is held ready"},
	suffixHops:     {"2 next hops", "by a policy whose first segment has two next hops"},
}

// TitleOf returns the title of a function or variant.
func TitleOf(name string) title {
	name, suffix, _ := strings.Cut(name, "@")
	t, variant := Titles[name], suffixes[suffix]
	if variant.Name != "" {
		t = title{t.Name + ", " + variant.Name, t.Meaning + "; " + variant.Meaning}
	}
	return t
}
