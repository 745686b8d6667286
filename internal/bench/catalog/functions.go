package catalog

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Function is one behaviour that is measured.
type Function struct {
	Name string
	of   string // the function whose entries it has; Name unless set
	Size int    // of the users' packets, behind their IPv4 header
	Port string // where its frames are received; node.PortIn unless set
	// ports with roles by which its frames may enter
	ports []string
	Data  []byte
	Key   key
	twin  key // the UE's address, in frames whose key is a TEID
	flow  key // a port of the UE: 16 bits
	teid  key // that of the one session, in frames whose key is something else
	// sessions, of a function of the UPF: those that its frames are for.
	Sessions *Sessions
	// Needs is the function whose frames make what this one's are for, before they are sent.
	Needs *Function
	// Traced: a trace runs meanwhile that matches none of its frames.
	Traced bool
	// Routes of the node, of ip(8), that its frames need.
	Routes []string
	// Most is how many entries it can have.
	Most uint32
	// Keys is how many numbers the frames have where these are no entries: the
	// destinations of one session.
	Keys   uint32
	put    func(c *config.Config, entries uint32)
	Want   rig.Want
	Kernel *kernelFunction
}

// The ports by which GTP-U of gNBs may enter, and packets for UEs.
var (
	fromGNB = []string{node.PortN3, node.PortEdge}
	fromN6  = []string{node.PortN6, node.PortEdge}
)

// key is where a frame says which entry it is for: 32 bits.
type key struct {
	Offset, base uint32
	checksum     uint32 // offset of the IPv4 header checksum over it
	// step is what base grows by with each entry that others have: functions
	// that share a table stand behind each other.
	step uint32
}

// kernelFunction is what Linux has for the same frame.
type kernelFunction struct {
	Routes []string  // of ip(8)
	Want   *rig.Want // the function's unless set
}

// The addresses of the network that is measured in (network.go), and those
// that the frames name.
var (
	GNB            = Addr("192.0.2.100")
	UPF            = Addr("192.0.2.1")
	GNB6           = Addr("2001:db8:1::100")
	FarGTPU        = Addr("192.88.99.9")
	Translated     = Addr("203.0.113.1")
	Peer4          = Addr("198.51.100.2")
	Peer6          = Addr("2001:db8:2::2")
	behindPeer4    = Addr("198.18.0.1") // Linux takes the gateway of nh4's route, not nh4, for its neighbour
	UENet          = Addr("10.0.0.0")
	Inner4         = Addr("10.200.0.1")
	Dst4           = Addr("100.64.0.1")
	Inner6         = Addr("2001:db8:64::1")
	Dst6           = Addr("2001:db8:65::1")
	Segment        = Addr("2001:db8:e:1::")
	Final          = Addr("2001:db8:f::1")
	Mapped         = Addr("2001:db8:e:9::")
	Source         = Addr("2001:db8:1::1")
	sourcePrefix   = Addr("2001:db8:30::")
	farGTP4        = "2001:db8:b:400::/56"
	FarGTP6        = Addr("2001:db8:b:600::")
	PolicyReduced  = "reduced"
	policyFull     = "full"
	policyFrame    = "frame"
	policyGTP6     = "gtp6"
	TunnelFar      = "far"
	SIDsOfFunction = uint32(1 << 11)
)

// CustomerTable is a routing table with a default route.
const CustomerTable uint32 = 100

// The papers' packets: `size` octets behind the user's IPv4 header.
const (
	ShortSize = 26
	LongSize  = 1440
)

// Functions are measured with users' packets of a size.
func Functions(size int) []Function {
	list := slices.Concat([]Function{Baseline(size)}, endpoints(size), headends(size), Tunnels(size), mobile(size))
	for i := range list {
		list[i].Size = size
	}
	return list
}

// BaselineName is what every figure stands beside.
const BaselineName = "l2_forward"

// Baseline is the one function that is not the data path's.
func Baseline(size int) Function {
	dst := Addr("100.66.0.1") // that the kernel has no more than a route for
	return Function{
		Name: BaselineName, Most: ManyEntries, Data: packet4(Inner4, dst, size, true).frame(),
		put: func(*config.Config, uint32) {}, Want: rig.WantIPv4(dst, rig.ProtoUDP, size), Kernel: &kernelFunction{},
	}
}

// endpoint is a function of SIDs of their own, 2001:db8:10:FUNC::/64. The
// frame's upper layer is `upper`; with segments it has an SRH.
func endpoint(number uint32, name string, sid srv6.LocalSID, upper stack, segments bool, w rig.Want, kernel ...string) Function {
	function16 := number * SIDsOfFunction
	if segments {
		upper = upper.in(packet.SRH{Segments: []netip.Addr{Final, SIDAt(function16)}})
	}
	f := Function{
		Name: name, Want: w, Most: SIDsOfFunction, ports: []string{node.PortSR},
		Data: upper.in(packet.IPv6{Src: GNB6, Dst: SIDAt(function16)}).frame(),
		Key:  key{Offset: rig.LenEthernet + 24 + 4, base: 0x0010_0000 | function16},
		put: func(c *config.Config, entries uint32) {
			for i := range entries {
				s := sid
				s.SID = Prefix(SIDAt(function16+i), 64)
				c.SIDs = append(c.SIDs, s)
			}
		},
	}
	if len(kernel) > 0 {
		f.Kernel = &kernelFunction{}
		for _, k := range kernel {
			f.Kernel.Routes = append(f.Kernel.Routes, "route add "+Prefix(SIDAt(function16), 64).String()+" encap seg6local "+k+" dev "+node.PortOut)
		}
	}
	return f
}

func endpoints(size int) []Function {
	user4, user6 := packet4(Inner4, Dst4, size, true), packet6(Inner6, Dst6, size)
	next := rig.WantIPv6(Final, 16, rig.ProtoRouting, 40+user4.len())
	out4, out6 := rig.WantIPv4(Dst4, rig.ProtoUDP, size), rig.WantIPv6(Dst6, 16, rig.ProtoUDP, Size6(size))
	b6 := rig.WantIPv6(Segment, 16, rig.ProtoIPv6, rig.LenIPv6+40+user4.len())
	full := rig.WantIPv6(Segment, 16, rig.ProtoRouting, 24+rig.LenIPv6+40+user4.len())
	list := []Function{
		endpoint(1, "end", srv6.LocalSID{Behavior: srv6.End}, user4, true, next, "action End"),
		endpoint(2, "end_x", srv6.LocalSID{Behavior: srv6.EndX, NextHop: Peer6}, user4, true, next, "action End.X nh6 "+Peer6.String()),
		endpoint(3, "end_t", srv6.LocalSID{Behavior: srv6.EndT, Table: CustomerTable}, user4, true, next, "action End.T table 100"),
		endpoint(4, "end_dt4", srv6.LocalSID{Behavior: srv6.EndDT4, Table: CustomerTable}, user4, false, out4),
		endpoint(5, "end_dt6", srv6.LocalSID{Behavior: srv6.EndDT6, Table: CustomerTable}, user6, false, out6, "action End.DT6 table 100"),
		endpoint(6, "end_dt46", srv6.LocalSID{Behavior: srv6.EndDT46, Table: CustomerTable}, user4, false, out4),
		endpoint(7, "end_dx2", srv6.LocalSID{Behavior: srv6.EndDX2, Interface: node.PortOut}, user4.in(ethernet()), false, out4, "action End.DX2 oif "+node.PortOut),
		endpoint(8, "end_dx4", srv6.LocalSID{Behavior: srv6.EndDX4, NextHop: Peer4}, user4, false, out4, "action End.DX4 nh4 "+behindPeer4.String()),
		endpoint(9, "end_dx6", srv6.LocalSID{Behavior: srv6.EndDX6, NextHop: Peer6}, user6, false, out6, "action End.DX6 nh6 "+Peer6.String()),
		endpoint(10, "end_b6_encaps_red", srv6.LocalSID{Behavior: srv6.EndB6EncapsRed, Policy: PolicyReduced}, user4, true, b6, "action End.B6.Encaps srh segs "+Segment.String()),
		endpoint(11, "end_map", srv6.LocalSID{Behavior: srv6.EndMAP, Map: Mapped}, user4, false, rig.WantIPv6(Mapped, 16, rig.ProtoIPv4, user4.len())),
		nextCSID(user4),
	}
	list[9].Kernel.Want = &full
	return list
}

// endPSP is End with PSP for packets with one segment left.
func endPSP(size int) Function {
	user := packet4(Inner4, Dst4, size, true)
	f := endpoint(24, "end@"+suffixPSP, srv6.LocalSID{Behavior: srv6.End, Flavors: []srv6.Flavor{srv6.PSP}}, user, true,
		rig.WantIPv6(Final, 16, rig.ProtoIPv4, user.len()))
	f.Size = size
	return f
}

// nextCSID is uN: fd00:100:FUNC::/48, with two more C-SIDs behind it.
func nextCSID(upper stack) Function {
	return Function{
		Name: "usid", Most: SIDsOfFunction, ports: []string{node.PortSR},
		Data: upper.in(packet.IPv6{Src: GNB6, Dst: Addr("fd00:100:1:e000:e001::")}).frame(),
		Key:  key{Offset: rig.LenEthernet + 24 + 2, base: 0x0100_0001},
		Want: rig.WantIPv6(Addr("fd00:100:e000:e001::"), 16, rig.ProtoIPv4, upper.len()),
		put: func(c *config.Config, entries uint32) {
			for i := range entries {
				sid := Addr("fd00:100::").As16()
				binary.BigEndian.PutUint16(sid[4:], uint16(1+i))
				c.SIDs = append(c.SIDs, srv6.LocalSID{
					SID: Prefix(netip.AddrFrom16(sid), 48), Behavior: srv6.End, Flavors: []srv6.Flavor{srv6.NextCSID}, BlockLength: 32,
				})
			}
		},
		Kernel: &kernelFunction{Routes: []string{
			"route add fd00:100:1::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev " + node.PortOut,
		}},
	}
}

func headends(size int) []Function {
	steered := Addr("10.128.0.1")
	user := packet4(Inner4, steered, size, false)
	l2 := packet4(Inner4, Dst4, size, true).frame()
	steer := func(c *config.Config, _ uint32) {
		c.Steering = append(c.Steering, srpolicy.Steering{Prefix: Prefix(steered, 16), Policy: policyFull})
	}
	return []Function{
		{
			Name: "h_encaps", Most: 1, ports: []string{node.PortEdge}, Data: user.frame(), put: steer,
			Want:   rig.WantIPv6(Segment, 16, rig.ProtoRouting, 24+user.len()),
			Kernel: &kernelFunction{Routes: []string{"route add 10.128.0.0/16 encap seg6 mode encap segs " + Segment.String() + " dev " + node.PortOut}},
		},
		{
			Name: "h_encaps_red", Most: ManyEntries, ports: []string{node.PortEdge},
			Data: packet4(Inner4, UENet, size, false).frame(),
			Key:  key{Offset: rig.LenEthernet + 16, base: 0x0a00_0000, checksum: rig.LenEthernet + 10, step: 1},
			put: func(c *config.Config, entries uint32) {
				putPool(c, entries, entries, srpolicy.Steering{Policy: PolicyReduced})
			},
			Want:   rig.WantIPv6(Segment, 16, rig.ProtoIPv4, user.len()),
			Kernel: &kernelFunction{Routes: []string{"route add 10.0.0.0/9 encap seg6 mode encap.red segs " + Segment.String() + " dev " + node.PortOut}},
		},
		{
			Name: "h_encaps_l2_red", Most: 1, Port: node.PortFrames, Data: l2,
			put: func(c *config.Config, _ uint32) {
				c.Steering = append(c.Steering, srpolicy.Steering{Interface: node.PortFrames, Policy: policyFrame})
			},
			Want:   rig.WantIPv6(Segment, 16, rig.ProtoEthernet, len(l2)),
			Kernel: &kernelFunction{Routes: []string{"route add 100.64.0.0/16 encap seg6 mode l2encap.red segs " + Segment.String() + " dev " + node.PortOut}},
		},
	}
}

// Tunnels are keyed by session: a TEID, or the address of a UE.
func Tunnels(size int) []Function {
	pdu := packet4(Inner4, Dst4, size, true)
	outer := func(teid uint32) []byte { return pdu.gPDU(GNB, UPF, packet.GTPU{TEID: teid}).frame() }
	teid := rig.LenEthernet + rig.LenIPv4 + rig.LenUDP + 4
	out := rig.WantIPv4(FarGTPU, rig.ProtoUDP, rig.LenUDP+rig.LenGTPU+pdu.len())
	return []Function{
		{
			Name: "gtpu_decap", Most: ManyEntries, ports: fromGNB, Data: outer(1), Key: key{Offset: uint32(teid), base: 1},
			put: func(c *config.Config, entries uint32) {
				for i := range entries {
					c.Tunnels = append(c.Tunnels, gtpu.Tunnel{Name: Name("decap", i), LocalTEID: 1 + i, Decapsulate: true})
				}
			},
			Want: rig.WantIPv4(Dst4, rig.ProtoUDP, size),
		},
		{
			Name: "gtpu_encap", Most: ManyEntries, ports: fromN6,
			Data: packet4(Inner4, UENet, size, false).frame(),
			Key:  key{Offset: rig.LenEthernet + 16, base: 0x0a00_0000, checksum: rig.LenEthernet + 10},
			put: func(c *config.Config, entries uint32) {
				putPool(c, 0, entries, srpolicy.Steering{Tunnel: TunnelFar})
			},
			Want: out,
		},
		{
			Name: "gtpu_switch", Most: ManyEntries, ports: fromGNB, Data: outer(1), Key: key{Offset: uint32(teid), base: 1, step: 1},
			put: func(c *config.Config, entries uint32) {
				for i := range entries {
					c.Tunnels = append(c.Tunnels, gtpu.Tunnel{Name: Name("switch", i), LocalTEID: 1 + entries + i, SwitchTo: TunnelFar})
				}
			},
			Want: out,
		},
	}
}

// mobile are the stateless ones: one entry serves every TEID, so that their
// entries are only how many TEIDs the frames have.
func mobile(size int) []Function {
	pdu := packet4(Inner4, Dst4, size, true)
	header := packet.GTPU{TEID: 1}
	e4SID, e4Source := Addr("2001:db8:20:4c0:5863:900:0:1"), Addr("2001:db8:30:0:c000:264::")
	e6SID := Addr("2001:db8:20:500:0:1::")
	return []Function{
		{
			Name: "h_m_gtp4_d", Most: ManyEntries, ports: fromGNB, Data: pdu.gPDU(GNB, Translated, header).frame(),
			Key: key{Offset: rig.LenEthernet + rig.LenIPv4 + rig.LenUDP + 4, base: 1},
			put: func(c *config.Config, _ uint32) {
				c.Steering = append(c.Steering, srpolicy.Steering{Prefix: Prefix(Translated, 24), GTP4D: &srpolicy.GTP4D{
					SIDPrefix: netip.MustParsePrefix(farGTP4), SourcePrefix: Prefix(sourcePrefix, 64), PDUType: srv6.PDUTypeIPv4v6,
				}})
			},
			Want: rig.WantIPv6(Addr("2001:db8:b:4cb:71:100::"), 11, rig.ProtoIPv4, pdu.len()),
		},
		{
			Name: "end_m_gtp4_e", Most: ManyEntries, ports: []string{node.PortSR}, Data: pdu.in(packet.IPv6{Src: e4Source, Dst: e4SID}).frame(),
			Key: key{Offset: rig.LenEthernet + 24 + 12, base: 1},
			put: putSID(srv6.LocalSID{
				SID: netip.MustParsePrefix("2001:db8:20:400::/56"), Behavior: srv6.EndMGTP4E, SourcePrefixLength: 64,
			}),
			Want: rig.WantIPv4(FarGTPU, rig.ProtoUDP, rig.LenUDP+rig.LenGTPU+pdu.len()),
		},
		{
			Name: "end_m_gtp6_d", Most: ManyEntries, ports: fromGNB, Data: pdu.gPDU(GNB6, Addr("2001:db8:20:600::1"), header).frame(),
			Key: key{Offset: rig.LenEthernet + rig.LenIPv6 + rig.LenUDP + 4, base: 1},
			put: putSID(srv6.LocalSID{
				SID: netip.MustParsePrefix("2001:db8:20:600::/56"), Behavior: srv6.EndMGTP6D, Policy: policyGTP6,
				Source: Source, PDUType: srv6.PDUTypeIPv4v6, ArgsOffset: 56,
			}),
			Want: rig.WantIPv6(FarGTP6, 7, rig.ProtoIPv4, pdu.len()),
		},
		{
			Name: "end_m_gtp6_d_di", Most: ManyEntries, ports: fromGNB, Data: pdu.gPDU(GNB6, Addr("2001:db8:20:700::1"), header).frame(),
			Key: key{Offset: rig.LenEthernet + rig.LenIPv6 + rig.LenUDP + 4, base: 1},
			put: putSID(srv6.LocalSID{
				SID: netip.MustParsePrefix("2001:db8:20:700::/56"), Behavior: srv6.EndMGTP6DDi, Policy: policyGTP6,
				Source: Source, PDUType: srv6.PDUTypeIPv4v6,
			}),
			Want: rig.WantIPv6(FarGTP6, 16, rig.ProtoRouting, 24+pdu.len()),
		},
		{
			Name: "end_m_gtp6_e", Most: ManyEntries, ports: []string{node.PortSR},
			Data: pdu.in(packet.IPv6{Src: GNB6, Dst: e6SID}, packet.SRH{Segments: []netip.Addr{Final, e6SID}}).frame(),
			Key:  key{Offset: rig.LenEthernet + 24 + 8, base: 1},
			put: putSID(srv6.LocalSID{
				SID: netip.MustParsePrefix("2001:db8:20:500::/56"), Behavior: srv6.EndMGTP6E, Source: Source,
			}),
			Want: rig.WantIPv6(Final, 16, rig.ProtoUDP, rig.LenUDP+rig.LenGTPU+pdu.len()),
		},
	}
}

// Names returns the names of functions, in order.
func Names(list []Function) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.Name)
	}
	return out
}
