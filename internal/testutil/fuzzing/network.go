package fuzzing

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Ports are those of every network.
var Ports = []model.Port{
	{Name: "n3", Ifindex: 10, MTU: 1400}, {Name: "n6", Ifindex: 11},
	{Name: "pod", Ifindex: 12, MTU: 90, PartialChecksum: true}, {Name: "out", Ifindex: 13, MTU: 9000},
}

// Source is where everything random comes from.
type Source struct{ *rand.Rand }

// New is a source that a seed decides.
func New(seed uint64) Source { return Source{rand.New(rand.NewPCG(seed, 0x63756c76657274))} }

func (s Source) chance(percent int) bool { return s.IntN(100) < percent }

func (s Source) upTo(least, most int) int { return least + s.IntN(most-least+1) }

// bits is a length or an offset in an address: mostly whole octets, as operators have it. `most` is
// a multiple of 8.
func (s Source) bits(least, most int) int {
	n := s.upTo(least, most)
	if s.chance(60) {
		n = (n + 7) &^ 7
	}
	return n
}

func pick[T any](s Source, from ...T) T { return from[s.IntN(len(from))] }

func ip(text string) netip.Addr       { return netip.MustParseAddr(text) }
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// Network makes tables that have an entry for everything the data path does,
// each with random parameters.
func (s Source) Network() (model.Network, error) {
	n := model.Network{Ports: Ports, Local: []netip.Addr{ip("10.50.0.9"), ip("2001:db8:50::9"), ip("10.3.0.1")},
		LocalRoutes: []netip.Prefix{prefix("10.250.0.16/28"), prefix("2001:db8:b::10/124")}}
	c := &n.Config
	for _, p := range Ports {
		c.Interfaces = append(c.Interfaces, config.Interface{Name: p.Name, Roles: []config.Role{config.RoleAny}})
	}
	c.Interfaces[len(Ports)-1].Roles = []config.Role{config.RoleEdge}
	c.Encapsulation = config.Encapsulation{Source: ip("2001:db8:5::1"), HopLimit: uint8(pick(s, 0, 9, 64, 254))}
	c.Domain = []netip.Prefix{prefix("2001:db8::/32"), prefix("fc00::/16")}
	if s.chance(50) {
		c.Locators = []config.Locator{{Name: "a", Prefix: prefix("2001:db8:1::/48"), FunctionBits: uint8(s.upTo(8, 16))}}
	}
	c.GTPU.Addresses = []netip.Addr{ip("10.3.0.1"), ip("2001:db8:3::1"), ip("10.3.0.2")}
	s.tables().policies(c)
	s.tables().sids(c)
	s.tables().tunnels(c)
	s.tables().steering(c)
	s.tables().classes(c)
	s.ofSessions().sessions(&n)
	s.tables().nextHops(&n)
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return n, fmt.Errorf("the generator made a bad configuration: %w", err)
	}
	s.tables().vpns(c) // which are derived, and whose slices are not the configuration's
	// Last, for steering by a port whose roles drop it is refused, and the guard must hold
	// all the same.
	if s.chance(50) {
		for i := range c.Interfaces {
			if in := &c.Interfaces[i]; in.HasRole(config.RoleAny) {
				s.roles(in)
			}
		}
	}
	return n, nil
}

// roles makes a port guarded, mostly so that much may enter.
func (s Source) roles(in *config.Interface) {
	in.Roles = pick(s, []config.Role{config.RoleN3, config.RoleN6, config.RoleSR}, []config.Role{config.RoleN9, config.RoleN6, config.RoleEdge},
		[]config.Role{config.RoleN3}, []config.Role{config.RoleN6}, []config.Role{config.RoleSR}, []config.Role{config.RoleEdge}, []config.Role{config.RoleN4})
	if in.HasRole(config.RoleN3, config.RoleN9) {
		in.Peers = pick(s, config.Anyone(), config.Senders{prefix("10.3.0.0/16"), prefix("2001:db8::/33")})
	}
	in.Host = pick(s, nil, []string{"any"}, []string{"forward"}, []string{"ping", "bgp", "udp/2000", "tcp/22"})
}

// tableSource makes the entries of a network's tables, except its sessions.
type tableSource struct{ s Source }

func (s Source) tables() tableSource { return tableSource{s} }

func (src tableSource) segments(least, most int) []netip.Addr {
	list := make([]netip.Addr, src.s.upTo(least, most))
	for i := range list {
		list[i] = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0xe, byte(16*src.s.IntN(4) + i)})
	}
	return list
}

// policies: p0 to p3 for packets, l2 for frames.
func (src tableSource) policies(c *config.Config) {
	for i := range 4 {
		p := srpolicy.Policy{Name: fmt.Sprintf("p%d", i), Behavior: pick(src.s, srv6.HEncaps, srv6.HEncapsRed)}
		p.Color, p.Endpoint = uint32(1+i), ip(pick(src.s, "2001:db8:e:f::1", "2001:db8:e:f::1", "2001:db8:e:f::2"))
		if src.s.chance(30) {
			p.Source = ip("2001:db8:5::5")
		}
		if src.s.chance(50) {
			p.BindingSID = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0xb, byte(i), 15: 1})
		}
		for range src.s.upTo(1, pick(src.s, 1, 1, 4)) {
			p.SegmentLists = append(p.SegmentLists, srpolicy.SegmentList{Weight: uint32(src.s.upTo(1, 5)), Segments: src.segments(1, 4)})
			p.Down, p.Slow = append(p.Down, pick(src.s, "", "", "unreachable")), append(p.Slow, pick(src.s, "", "", "above the bound"))
		}
		for range pick(src.s, 0, 0, 1, 3) {
			p.Protection = append(p.Protection, srpolicy.SegmentList{Weight: uint32(src.s.upTo(1, 5)), Segments: src.segments(1, 4)})
			p.Down, p.Slow = append(p.Down, pick(src.s, "", "", "unreachable")), append(p.Slow, pick(src.s, "", "", "above the bound"))
		}
		c.Policies = append(c.Policies, p)
	}
	c.Policies = append(c.Policies, srpolicy.Policy{Name: "l2", Behavior: pick(src.s, srv6.HEncapsL2, srv6.HEncapsL2Red),
		SegmentLists: []srpolicy.SegmentList{{Segments: src.segments(1, 3)}}})
}

func (src tableSource) policy() string { return fmt.Sprintf("p%d", src.s.IntN(4)) }

// without are behaviours that have no upper layer which they could leave to the kernel.
var without = map[srv6.Behavior]bool{srv6.EndMGTP4E: true, srv6.EndMGTP6E: true, srv6.EndMAP: true,
	srv6.EndB6Encaps: true, srv6.EndB6EncapsRed: true}

// sids has one or two of every behaviour, each in a /48 of its own.
func (src tableSource) sids(c *config.Config) {
	behaviors := []srv6.Behavior{srv6.End, srv6.End, srv6.EndX, srv6.EndT, srv6.EndDX2, srv6.EndDX4, srv6.EndDX6, srv6.EndDT4,
		srv6.EndDT6, srv6.EndDT46, srv6.EndB6Encaps, srv6.EndB6EncapsRed, srv6.EndMAP, srv6.EndLimit, srv6.EndMGTP6D,
		srv6.EndMGTP6D, srv6.EndMGTP6DDi, srv6.EndMGTP6DDi, srv6.EndMGTP6E, srv6.EndMGTP6E, srv6.EndMGTP4E, srv6.EndMGTP4E}
	for i, b := range behaviors {
		sid := srv6.LocalSID{Behavior: b, SID: netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 1, byte(i)}), 128)}
		if i%2 == 0 { // in the locator, where there is one
			sid.SID = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, byte(i)}), 128)
		}
		if src.s.chance(40) {
			sid.SID = netip.PrefixFrom(sid.SID.Addr(), 64)
		}
		sid.AllowUpperLayer = !without[b] && src.s.chance(20)
		src.parameters(&sid)
		sid.IgnoreTag = (b == srv6.EndMGTP6E || b == srv6.EndMGTP4E) && src.s.chance(20)
		if b == srv6.EndB6Encaps || b == srv6.EndB6EncapsRed {
			i := slices.IndexFunc(c.Policies, func(p srpolicy.Policy) bool { return p.Name == sid.Policy })
			sid.Behavior = c.Policies[i].BindingBehavior() // with which it has to agree
		}
		sid.SID = sid.SID.Masked()
		c.SIDs = append(c.SIDs, sid)
	}
}

func (src tableSource) parameters(sid *srv6.LocalSID) {
	length := func(bits int) { sid.SID = netip.PrefixFrom(sid.SID.Addr(), bits) }
	switch sid.Behavior {
	case srv6.End, srv6.EndX, srv6.EndT:
		src.flavors(sid)
		if sid.Behavior == srv6.EndX {
			sid.NextHop = ip("fd00::a1")
		} else if sid.Behavior == srv6.EndT {
			sid.Table = 100
		}
	case srv6.EndDX2:
		sid.Interface = "n6"
	case srv6.EndDX4, srv6.EndDX6:
		next := map[srv6.Behavior]string{srv6.EndDX4: "10.200.0.1", srv6.EndDX6: "fd00::a2"}
		if src.s.chance(70) {
			sid.NextHop = ip(next[sid.Behavior])
		} else {
			sid.Interface = "n6"
		}
	case srv6.EndDT4, srv6.EndDT6, srv6.EndDT46:
		sid.Table = pick(src.s, uint32(254), 100)
	case srv6.EndB6Encaps, srv6.EndB6EncapsRed:
		sid.Policy = src.policy()
	case srv6.EndMAP:
		sid.Map = ip("2001:db8:e7:1234::5")
	case srv6.EndLimit:
		length(src.s.upTo(56, 70))
		sid.GroupBits, sid.RateBits, sid.RateUnit = uint8(src.s.upTo(1, 16)), uint8(src.s.upTo(1, 16)), 4_000_000
	case srv6.EndMGTP6D, srv6.EndMGTP6DDi:
		sid.Policy, sid.Source, sid.PDUType = src.policy(), ip("2001:db8:2::1"), pick(src.s, srv6.PDUTypes()...)
		sid.ArgsOffset = uint8(src.s.bits(50, 88))
		if sid.Behavior == srv6.EndMGTP6DDi && src.s.chance(50) {
			sid.ArgsOffset = 0
		}
	case srv6.EndMGTP6E:
		length(src.s.upTo(56, 88))
		sid.Source, sid.PDUSessionContainer = ip("2001:db8:2::1"), pick(src.s, srv6.ContainerTypes()...)
	case srv6.EndMGTP4E:
		length(src.s.upTo(56, 56))
		sid.SourcePrefixLength, sid.PDUSessionContainer = uint8(src.s.upTo(1, 96)), pick(src.s, srv6.ContainerTypes()...)
	}
}

func (src tableSource) flavors(sid *srv6.LocalSID) {
	for _, f := range []srv6.Flavor{srv6.PSP, srv6.USP, srv6.USD} {
		if src.s.chance(50) {
			sid.Flavors = append(sid.Flavors, f)
		}
	}
	if src.s.chance(40) {
		sid.SID = netip.PrefixFrom(sid.SID.Addr(), src.s.upTo(56, 80))
		sid.Flavors, sid.BlockLength = append(sid.Flavors, srv6.NextCSID), uint8(src.s.upTo(16, 48))
	}
}

// tunnels: two that send, four that receive.
func (src tableSource) tunnels(c *config.Config) {
	container := func() srv6.ContainerType { return pick(src.s, srv6.ContainerTypes()...) }
	c.Tunnels = []gtpu.Tunnel{
		{Name: "far4", Remote: ip("10.8.0.8"), RemoteTEID: src.s.Uint32() | 1},
		{Name: "far6", Remote: ip("2001:db8:8::8"), RemoteTEID: src.s.Uint32() | 1},
		{Name: "main", LocalTEID: 0x100, Decapsulate: true},
		{Name: "table", LocalTEID: 0x101, Decapsulate: true, Table: 100},
		{Name: "policy", LocalTEID: 0xfedc0102, Policy: src.policy()},
		{Name: "switch4", LocalTEID: 0x103, SwitchTo: "far4"},
		{Name: "switch6", LocalTEID: 0x12000104, SwitchTo: "far6"},
	}
	for i := range 2 {
		if t := &c.Tunnels[i]; src.s.chance(60) {
			if t.PDUSessionContainer = container(); t.PDUSessionContainer != srv6.ContainerNone {
				t.QFI = uint8(src.s.IntN(64))
			}
		}
	}
}

// vpns are routes of the VPNs 1 and 2, of those that sessions' packets leave by.
func (src tableSource) vpns(c *config.Config) {
	for vpn := range uint8(2) {
		for _, p := range []string{"0.0.0.0/0", "0.0.0.0/1", "10.0.0.0/8", "10.2.0.0/16", "10.45.0.0/25", "::/0", "2001:db8::/33", "2001:db8:45::/49"} {
			if src.s.chance(50) {
				c.Steering = append(c.Steering, srpolicy.Steering{Prefix: prefix(p), Tenant: vpn + 1, Policy: src.policy()})
			}
		}
	}
}

func (src tableSource) steering(c *config.Config) {
	to := func(p string, set func(*srpolicy.Steering)) {
		st := srpolicy.Steering{Prefix: prefix(p)}
		set(&st)
		c.Steering = append(c.Steering, st)
	}
	policy := func(st *srpolicy.Steering) { st.Policy = src.policy() }
	tunnel := func(st *srpolicy.Steering) { st.Tunnel = pick(src.s, "far4", "far6") }
	to("10.50.0.0/16", policy)
	to("10.50.7.0/24", pick(src.s, policy, tunnel))
	to("2001:db8:50::/48", policy)
	to("2001:db8:50:7::/64", pick(src.s, policy, tunnel))
	to("10.60.0.0/16", tunnel)
	to("2001:db8:60::/48", tunnel)
	if src.s.chance(70) {
		c.GTPU.Pools = []netip.Prefix{prefix("10.45.0.0/24"), prefix("2001:db8:45::/56")}
	}
	to("10.45.0.7/32", pick(src.s, policy, tunnel))
	to("10.45.0.0/28", pick(src.s, policy, tunnel))
	to("2001:db8:45:7::/64", pick(src.s, policy, tunnel))
	to("10.99.0.0/24", func(st *srpolicy.Steering) { st.GTP4D = src.gtp4d("2001:db8:d100::", "") })
	to("10.99.1.0/24", func(st *srpolicy.Steering) { st.GTP4D = src.gtp4d("2001:db8:d200::", src.policy()) })
	own := func(name, p string) {
		c.Steering = append(c.Steering, srpolicy.Steering{Prefix: prefix(p), Interface: name, Policy: src.policy()})
	}
	own("n3", "10.50.0.0/17")
	own("n3", "2001:db8:50::/48")
	own("n6", "10.77.0.0/16")
	if src.s.chance(30) {
		own("n6", "0.0.0.0/0")
		own("n6", "2001:db8:40::/42")
	}
	port := func(name string, vlans []uint16, p string) {
		c.Steering = append(c.Steering, srpolicy.Steering{Interface: name, VLANs: vlans, Policy: p})
	}
	if src.s.chance(40) { // what such a port receives does not take the short path
		port("n6", nil, pick(src.s, src.policy(), "l2"))
		port("n6", []uint16{5, 6}, pick(src.s, src.policy(), "l2"))
	}
	if src.s.chance(40) {
		port("n3", []uint16{77}, "l2")
		port("n3", []uint16{77, 5}, pick(src.s, src.policy(), "l2"))
	}
}

// classes lead to the policies' colors, and to one that none has.
func (src tableSource) classes(c *config.Config) {
	for i := range src.s.IntN(6) {
		one := class.Class{Name: fmt.Sprintf("c%d", i), Color: uint32(src.s.upTo(1, 5)), Priority: i, Strict: src.s.chance(30)}
		for dscp := range uint16(64) {
			if src.s.chance(30) {
				one.Match.DSCP = append(one.Match.DSCP, dscp)
			}
		}
		if src.s.chance(40) {
			one.Match.Interfaces = []string{pick(src.s, "n3", "n6")}
			if src.s.chance(30) {
				one.Match.VLANs = []uint16{pick[uint16](src.s, 5, 77), 100}
			}
		}
		if src.s.chance(30) {
			one.Match.Sources = []netip.Prefix{prefix(pick(src.s, "10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0")), prefix(pick(src.s, "2001:db8::/32", "::/0"))}
		}
		if i < 2 && src.s.chance(60) {
			one.Match.Destinations = []netip.Prefix{prefix(pick(src.s, "10.50.0.128/25", "10.50.0.0/16", "10.50.7.0/25")), prefix("2001:db8:50:7::/64")}
		}
		if src.s.chance(30) {
			one.Match = class.Match{QFIs: []uint16{uint16(src.s.IntN(4)), uint16(src.s.IntN(4))}}
		}
		c.TrafficClasses = append(c.TrafficClasses, one)
	}
}

func (src tableSource) gtp4d(locator, policy string) *srpolicy.GTP4D {
	source := netip.PrefixFrom(ip("2001:db8:2::"), src.s.bits(40, 96))
	return &srpolicy.GTP4D{SIDPrefix: netip.PrefixFrom(ip(locator), src.s.bits(40, 56)), SourcePrefix: source,
		PDUType: pick(src.s, srv6.PDUTypes()...), Policy: policy}
}

// nextHops: routes with one to three next hops each, and adjacencies for most
// of what tables name; some links are too small, some neighbours are the
// kernel's.
func (src tableSource) nextHops(n *model.Network) {
	for i := range 4 {
		for _, a := range []string{"fd00::%d", "10.200.1.%d"} {
			src.adjacency(n, model.Key{NextHop: ip(fmt.Sprintf(a, i+1)), Interface: "n6"}, 100)
		}
	}
	src.adjacency(n, model.Key{Interface: "n6"}, 100)
	names := []netip.Addr{ip("fd00::a1"), ip("fd00::a2"), ip("10.200.0.1"), ip("2001:db8:e7:1234::5"), ip("10.8.0.8"), ip("2001:db8:8::8")}
	known := map[netip.Addr]bool{}
	for _, p := range n.Config.Policies {
		for _, l := range p.Lists() {
			names = append(names, l.Segments[0])
		}
	}
	for _, name := range names {
		switch {
		case known[name]:
		case src.s.chance(20):
			src.shared(n, model.Key{NextHop: name})
		default:
			src.adjacency(n, model.Key{NextHop: name}, 85)
		}
		if !known[name] && src.s.chance(25) {
			n.PathMTUs = append(n.PathMTUs, model.PathMTU{Ends: []netip.Addr{name}, MTU: pick(src.s, 200, 1280, 1310, 1360)})
		}
		known[name] = true
	}
	for _, table := range []uint32{0, 100} {
		src.route(n, table, "::/0", "fd00::%d")
		src.route(n, table, "0.0.0.0/0", "10.200.1.%d")
		src.route(n, table, "2001:db8:e::/48", "fd00::%d")
		src.route(n, table, "10.2.0.0/16", "10.200.1.%d")
	}
}

func (src tableSource) route(n *model.Network, table uint32, p, next string) {
	if src.s.chance(20) {
		return
	}
	r := model.Route{Table: table, Prefix: prefix(p)}
	for range src.s.upTo(1, pick(src.s, 1, 3)) {
		r.Via = append(r.Via, model.Key{NextHop: ip(fmt.Sprintf(next, src.s.upTo(1, 4))), Interface: "n6"})
	}
	n.Routes = append(n.Routes, r)
}

// shared makes an adjacency whose flows share next hops.
func (src tableSource) shared(n *model.Network, key model.Key) {
	next, a := "fd00::%d", model.Adjacency{Key: key}
	if key.NextHop.Is4() {
		next = "10.200.1.%d"
	}
	for i := range src.s.upTo(2, 4) {
		a.Shared = append(a.Shared, model.Key{NextHop: ip(fmt.Sprintf(next, i+1)), Interface: "n6"})
	}
	n.Adjacencies = append(n.Adjacencies, a)
}

// serial makes each adjacency's address its own.
func (src tableSource) adjacency(n *model.Network, key model.Key, percent int) {
	if !src.s.chance(percent) {
		return
	}
	a := model.Adjacency{Key: key, Out: pick(src.s, "n3", "n6", "n6"), MTU: pick(src.s, 300, 1400, 1500, 9000),
		Src: model.MAC{2, 0, 0, 0, 6, 1}, Dst: model.MAC{2, 0, 0, 1}}
	binary.BigEndian.PutUint16(a.Dst[4:], uint16(len(n.Adjacencies)))
	if key == (model.Key{Interface: "n6"}) {
		a.Out = "n6"
	} else {
		a.Pass = src.s.chance(8)
		for range src.s.IntN(3) {
			a.VLAN = append(a.VLAN, model.VLAN{TPID: pick(src.s, uint16(0x8100), 0x88a8), ID: uint16(src.s.upTo(1, 4094))})
		}
	}
	n.Adjacencies = append(n.Adjacencies, a)
}
