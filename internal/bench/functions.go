package bench

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// function is one behaviour that is measured.
type function struct {
	name string
	size int    // of the users' packets, behind their IPv4 header
	port string // where its frames are received; portIn unless set
	data []byte
	key  key
	twin key // the UE's address, in frames whose key is a TEID
	// sessions, of a function of the UPF: those that its frames are for.
	sessions *sessions
	// most is how many entries it can have; entries picks them.
	most   uint32
	put    func(c *config.Config, entries uint32)
	want   want
	kernel *kernelFunction
}

// key is where a frame says which entry it is for: 32 bits.
type key struct {
	offset, base uint32
	checksum     uint32 // offset of the IPv4 header checksum over it
	// step is what base grows by with each entry that others have: functions
	// that share a table stand behind each other.
	step uint32
}

// kernelFunction is what Linux has for the same frame.
type kernelFunction struct {
	routes []string // of ip(8)
	want   *want    // the function's unless set
}

// The addresses of the network that is measured in (network.go), and those
// that the frames name.
var (
	gnb, upf       = addr("192.0.2.100"), addr("192.0.2.1")
	gnb6           = addr("2001:db8:1::100")
	farGTPU        = addr("192.88.99.9")
	translated     = addr("203.0.113.1")
	peer4, peer6   = addr("198.51.100.2"), addr("2001:db8:2::2")
	behindPeer4    = addr("198.18.0.1") // Linux takes the gateway of nh4's route, not nh4, for its neighbour
	ueNet          = addr("10.0.0.0")
	inner4, dst4   = addr("10.200.0.1"), addr("100.64.0.1")
	inner6, dst6   = addr("2001:db8:64::1"), addr("2001:db8:65::1")
	segment        = addr("2001:db8:e:1::")
	final          = addr("2001:db8:f::1")
	mapped         = addr("2001:db8:e:9::")
	source         = addr("2001:db8:1::1")
	sourcePrefix   = addr("2001:db8:30::")
	farGTP4        = "2001:db8:b:400::/56"
	farGTP6        = addr("2001:db8:b:600::")
	customerTable  = uint32(100)
	policyRed      = "reduced"
	policyFull     = "full"
	policyFrame    = "frame"
	policyGTP6     = "gtp6"
	tunnelFar      = "far"
	sidsOfFunction = uint32(1 << 11)
)

// The papers' packets: `size` octets behind the user's IPv4 header.
const (
	shortSize = 26
	longSize  = 1440
)

// functions are measured with users' packets of a size.
func functions(size int) []function {
	list := slices.Concat([]function{baseline(size)}, endpoints(size), headends(size), tunnels(size), mobile(size))
	for i := range list {
		list[i].size = size
	}
	return list
}

// baselineName is what every figure stands beside.
const baselineName = "l2_forward"

// baseline is the one function that is not the data path's.
func baseline(size int) function {
	dst := addr("100.66.0.1") // that the kernel has no more than a route for
	return function{
		name: baselineName, most: manyEntries, data: packet4(inner4, dst, size, true).frame(),
		put: func(*config.Config, uint32) {}, want: wantIPv4(dst, protoUDP, size), kernel: &kernelFunction{},
	}
}

// endpoint is a function of SIDs of their own, 2001:db8:10:FUNC::/64. The
// frame's upper layer is `upper`; with segments it has an SRH.
func endpoint(number uint32, name string, sid srv6.LocalSID, upper stack, segments bool, w want, kernel ...string) function {
	function16 := number * sidsOfFunction
	if segments {
		upper = upper.in(packet.SRH{Segments: []netip.Addr{final, sidAt(function16)}})
	}
	f := function{
		name: name, want: w, most: sidsOfFunction,
		data: upper.in(packet.IPv6{Src: gnb6, Dst: sidAt(function16)}).frame(),
		key:  key{offset: lenEthernet + 24 + 4, base: 0x0010_0000 | function16},
		put: func(c *config.Config, entries uint32) {
			for i := range entries {
				s := sid
				s.SID = prefix(sidAt(function16+i), 64)
				c.SIDs = append(c.SIDs, s)
			}
		},
	}
	if len(kernel) > 0 {
		f.kernel = &kernelFunction{}
		for _, k := range kernel {
			f.kernel.routes = append(f.kernel.routes, "route add "+prefix(sidAt(function16), 64).String()+" encap seg6local "+k+" dev "+portOut)
		}
	}
	return f
}

func endpoints(size int) []function {
	user4, user6 := packet4(inner4, dst4, size, true), packet6(inner6, dst6, size)
	next := wantIPv6(final, 16, protoRouting, 40+user4.len())
	out4, out6 := wantIPv4(dst4, protoUDP, size), wantIPv6(dst6, 16, protoUDP, size6(size))
	b6 := wantIPv6(segment, 16, protoIPv6, lenIPv6+40+user4.len())
	full := wantIPv6(segment, 16, protoRouting, 24+lenIPv6+40+user4.len())
	list := []function{
		endpoint(1, "end", srv6.LocalSID{Behavior: srv6.End}, user4, true, next, "action End"),
		endpoint(2, "end_x", srv6.LocalSID{Behavior: srv6.EndX, NextHop: peer6}, user4, true, next, "action End.X nh6 "+peer6.String()),
		endpoint(3, "end_t", srv6.LocalSID{Behavior: srv6.EndT, Table: customerTable}, user4, true, next, "action End.T table 100"),
		endpoint(4, "end_dt4", srv6.LocalSID{Behavior: srv6.EndDT4, Table: customerTable}, user4, false, out4),
		endpoint(5, "end_dt6", srv6.LocalSID{Behavior: srv6.EndDT6, Table: customerTable}, user6, false, out6, "action End.DT6 table 100"),
		endpoint(6, "end_dt46", srv6.LocalSID{Behavior: srv6.EndDT46, Table: customerTable}, user4, false, out4),
		endpoint(7, "end_dx2", srv6.LocalSID{Behavior: srv6.EndDX2, Interface: portOut}, user4.in(ethernet()), false, out4, "action End.DX2 oif "+portOut),
		endpoint(8, "end_dx4", srv6.LocalSID{Behavior: srv6.EndDX4, NextHop: peer4}, user4, false, out4, "action End.DX4 nh4 "+behindPeer4.String()),
		endpoint(9, "end_dx6", srv6.LocalSID{Behavior: srv6.EndDX6, NextHop: peer6}, user6, false, out6, "action End.DX6 nh6 "+peer6.String()),
		endpoint(10, "end_b6_encaps_red", srv6.LocalSID{Behavior: srv6.EndB6EncapsRed, Policy: policyRed}, user4, true, b6, "action End.B6.Encaps srh segs "+segment.String()),
		endpoint(11, "end_map", srv6.LocalSID{Behavior: srv6.EndMAP, Map: mapped}, user4, false, wantIPv6(mapped, 16, protoIPv4, user4.len())),
		nextCSID(user4),
	}
	list[9].kernel.want = &full
	return list
}

// nextCSID is uN: fd00:100:FUNC::/48, with two more C-SIDs behind it.
func nextCSID(upper stack) function {
	return function{
		name: "usid", most: sidsOfFunction,
		data: upper.in(packet.IPv6{Src: gnb6, Dst: addr("fd00:100:1:e000:e001::")}).frame(),
		key:  key{offset: lenEthernet + 24 + 2, base: 0x0100_0001},
		want: wantIPv6(addr("fd00:100:e000:e001::"), 16, protoIPv4, upper.len()),
		put: func(c *config.Config, entries uint32) {
			for i := range entries {
				c.SIDs = append(c.SIDs, srv6.LocalSID{
					SID: prefix(cSID(1+i), 48), Behavior: srv6.End, Flavors: []srv6.Flavor{srv6.NextCSID}, BlockLength: 32,
				})
			}
		},
		kernel: &kernelFunction{routes: []string{
			"route add fd00:100:1::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev " + portOut,
		}},
	}
}

func headends(size int) []function {
	steered := addr("10.128.0.1")
	user := packet4(inner4, steered, size, false)
	l2 := packet4(inner4, dst4, size, true).frame()
	steer := func(c *config.Config, _ uint32) {
		c.Steering = append(c.Steering, srpolicy.Steering{Prefix: prefix(steered, 16), Policy: policyFull})
	}
	return []function{
		{
			name: "h_encaps", most: 1, data: user.frame(), put: steer,
			want:   wantIPv6(segment, 16, protoRouting, 24+user.len()),
			kernel: &kernelFunction{routes: []string{"route add 10.128.0.0/16 encap seg6 mode encap segs " + segment.String() + " dev " + portOut}},
		},
		{
			name: "h_encaps_red", most: manyEntries,
			data: packet4(inner4, ueNet, size, false).frame(),
			key:  key{offset: lenEthernet + 16, base: 0x0a00_0000, checksum: lenEthernet + 10, step: 1},
			put: func(c *config.Config, entries uint32) {
				putPool(c, entries, entries, srpolicy.Steering{Policy: policyRed})
			},
			want:   wantIPv6(segment, 16, protoIPv4, user.len()),
			kernel: &kernelFunction{routes: []string{"route add 10.0.0.0/9 encap seg6 mode encap.red segs " + segment.String() + " dev " + portOut}},
		},
		{
			name: "h_encaps_l2_red", most: 1, port: portFrames, data: l2,
			put: func(c *config.Config, _ uint32) {
				c.Steering = append(c.Steering, srpolicy.Steering{Interface: portFrames, Policy: policyFrame})
			},
			want:   wantIPv6(segment, 16, protoEthernet, len(l2)),
			kernel: &kernelFunction{routes: []string{"route add 100.64.0.0/16 encap seg6 mode l2encap.red segs " + segment.String() + " dev " + portOut}},
		},
	}
}

// tunnels are keyed by session: a TEID, or the address of a UE.
func tunnels(size int) []function {
	pdu := packet4(inner4, dst4, size, true)
	outer := func(teid uint32) []byte { return pdu.gPDU(gnb, upf, packet.GTPU{TEID: teid}).frame() }
	teid := lenEthernet + lenIPv4 + lenUDP + 4
	out := wantIPv4(farGTPU, protoUDP, lenUDP+lenGTPU+pdu.len())
	return []function{
		{
			name: "gtpu_decap", most: manyEntries, data: outer(1), key: key{offset: uint32(teid), base: 1},
			put: func(c *config.Config, entries uint32) {
				for i := range entries {
					c.Tunnels = append(c.Tunnels, gtpu.Tunnel{Name: name("decap", i), LocalTEID: 1 + i, Decapsulate: true})
				}
			},
			want: wantIPv4(dst4, protoUDP, size),
		},
		{
			name: "gtpu_encap", most: manyEntries,
			data: packet4(inner4, ueNet, size, false).frame(),
			key:  key{offset: lenEthernet + 16, base: 0x0a00_0000, checksum: lenEthernet + 10},
			put: func(c *config.Config, entries uint32) {
				putPool(c, 0, entries, srpolicy.Steering{Tunnel: tunnelFar})
			},
			want: out,
		},
		{
			name: "gtpu_switch", most: manyEntries, data: outer(1), key: key{offset: uint32(teid), base: 1, step: 1},
			put: func(c *config.Config, entries uint32) {
				for i := range entries {
					c.Tunnels = append(c.Tunnels, gtpu.Tunnel{Name: name("switch", i), LocalTEID: 1 + entries + i, SwitchTo: tunnelFar})
				}
			},
			want: out,
		},
	}
}

// mobile are the stateless ones: one entry serves every TEID, so that their
// entries are only how many TEIDs the frames have.
func mobile(size int) []function {
	pdu := packet4(inner4, dst4, size, true)
	header := packet.GTPU{TEID: 1}
	e4SID, e4Source := addr("2001:db8:20:4c0:5863:900:0:1"), addr("2001:db8:30:0:c000:264::")
	e6SID := addr("2001:db8:20:500:0:1::")
	return []function{
		{
			name: "h_m_gtp4_d", most: manyEntries, data: pdu.gPDU(gnb, translated, header).frame(),
			key: key{offset: lenEthernet + lenIPv4 + lenUDP + 4, base: 1},
			put: func(c *config.Config, _ uint32) {
				c.Steering = append(c.Steering, srpolicy.Steering{Prefix: prefix(translated, 24), GTP4D: &srpolicy.GTP4D{
					SIDPrefix: mustPrefix(farGTP4), SourcePrefix: prefix(sourcePrefix, 64), PDUType: srv6.PDUTypeIPv4v6,
				}})
			},
			want: wantIPv6(addr("2001:db8:b:4cb:71:100::"), 11, protoIPv4, pdu.len()),
		},
		{
			name: "end_m_gtp4_e", most: manyEntries, data: pdu.in(packet.IPv6{Src: e4Source, Dst: e4SID}).frame(),
			key: key{offset: lenEthernet + 24 + 12, base: 1},
			put: putSID(srv6.LocalSID{
				SID: mustPrefix("2001:db8:20:400::/56"), Behavior: srv6.EndMGTP4E, SourcePrefixLength: 64,
			}),
			want: wantIPv4(farGTPU, protoUDP, lenUDP+lenGTPU+pdu.len()),
		},
		{
			name: "end_m_gtp6_d", most: manyEntries, data: pdu.gPDU(gnb6, addr("2001:db8:20:600::1"), header).frame(),
			key: key{offset: lenEthernet + lenIPv6 + lenUDP + 4, base: 1},
			put: putSID(srv6.LocalSID{
				SID: mustPrefix("2001:db8:20:600::/56"), Behavior: srv6.EndMGTP6D, Policy: policyGTP6,
				Source: source, PDUType: srv6.PDUTypeIPv4v6, ArgsOffset: 56,
			}),
			want: wantIPv6(farGTP6, 7, protoIPv4, pdu.len()),
		},
		{
			name: "end_m_gtp6_d_di", most: manyEntries, data: pdu.gPDU(gnb6, addr("2001:db8:20:700::1"), header).frame(),
			key: key{offset: lenEthernet + lenIPv6 + lenUDP + 4, base: 1},
			put: putSID(srv6.LocalSID{
				SID: mustPrefix("2001:db8:20:700::/56"), Behavior: srv6.EndMGTP6DDi, Policy: policyGTP6,
				Source: source, PDUType: srv6.PDUTypeIPv4v6,
			}),
			want: wantIPv6(farGTP6, 16, protoRouting, 24+pdu.len()),
		},
		{
			name: "end_m_gtp6_e", most: manyEntries,
			data: pdu.in(packet.IPv6{Src: gnb6, Dst: e6SID}, packet.SRH{Segments: []netip.Addr{final, e6SID}}).frame(),
			key:  key{offset: lenEthernet + 24 + 8, base: 1},
			put: putSID(srv6.LocalSID{
				SID: mustPrefix("2001:db8:20:500::/56"), Behavior: srv6.EndMGTP6E, Source: source,
			}),
			want: wantIPv6(final, 16, protoUDP, lenUDP+lenGTPU+pdu.len()),
		},
	}
}

func names(list []function) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.name)
	}
	return out
}
