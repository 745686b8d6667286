package netdev

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func mac(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

// network has one Ethernet device, VLANs above it, and what cannot be sent to.
func network() *Snapshot {
	eth := func(index int, name, kind string, last byte) Link {
		return Link{Index: index, Name: name, Kind: kind, MTU: 1500, MAC: mac(last), Up: true, Carrier: true, Ethernet: true}
	}
	lo := Link{Index: 1, Name: "lo", Kind: "device", MTU: 65536, Up: true, Carrier: true, Loopback: true}
	eth0 := eth(2, "eth0", "device", 2)
	eth0.XDP, eth0.MTU = XDPBasic|XDPRedirect|XDPTransmit, 9000
	outer := eth(3, "eth0.100", "vlan", 3)
	outer.Parent, outer.VLAN, outer.MTU = 2, VLAN{0x88a8, 100}, 1600
	inner := eth(4, "inner", "vlan", 4)
	inner.Parent, inner.VLAN, inner.MTU = 3, VLAN{0x8100, 7}, 8000
	third := eth(5, "third", "vlan", 5)
	third.Parent, third.VLAN = 4, VLAN{0x8100, 8}
	moved := eth(6, "moved", "vlan", 6)
	moved.Parent, moved.ParentElsewhere, moved.VLAN = 2, true, VLAN{0x8100, 9}
	down := eth(7, "down", "device", 7)
	down.Carrier = false
	onDown := eth(8, "down.5", "vlan", 8)
	onDown.Parent, onDown.VLAN = 7, VLAN{0x8100, 5}
	tun := Link{Index: 9, Name: "tun0", Kind: "tuntap", MTU: 1500, Up: true, Carrier: true}
	bridge := eth(10, "br0", "bridge", 10)
	veth := eth(11, "veth0", "veth", 11)
	return &Snapshot{
		Links: []Link{lo, eth0, outer, inner, third, moved, down, onDown, tun, bridge, veth},
		Addresses: []Address{
			{Ifindex: 1, Prefix: prefix("127.0.0.1/8")},
			{Ifindex: 2, Prefix: prefix("192.0.2.1/24")},
			{Ifindex: 2, Prefix: prefix("fe80::1/64")},
			{Ifindex: 4, Prefix: prefix("2001:db8::1/64")},
			{Ifindex: 4, Prefix: prefix("2001:db8::66/64"), Tentative: true},
		},
		Routes: []Route{
			unicast(254, "192.0.2.0/24", Hop{Ifindex: 2}),
			unicast(254, "0.0.0.0/0", Hop{Gateway: addr("192.0.2.2"), Ifindex: 2}),
			unicast(254, "2001:db8::/64", Hop{Ifindex: 4}),
			unicast(254, "198.51.100.0/24", Hop{Gateway: addr("192.0.2.9"), Ifindex: 7, Dead: true}, Hop{Gateway: addr("192.0.2.2"), Ifindex: 2}),
			unicast(254, "198.51.101.0/24", Hop{Gateway: addr("192.0.2.9"), Ifindex: 7, Dead: true}),
			{Table: 254, Prefix: prefix("203.0.113.0/24"), Type: RouteBlackhole},
			{Table: 100, Prefix: prefix("203.0.113.0/24"), Type: RouteThrow},
			unicast(100, "10.0.0.0/8", Hop{Gateway: addr("192.0.2.3"), Ifindex: 2}),
		},
		Neighbours: []Neighbour{
			{Ifindex: 2, Addr: addr("192.0.2.2"), MAC: mac(0x22), State: NUDStale},
			{Ifindex: 2, Addr: addr("192.0.2.3"), MAC: mac(0x23), State: NUDPermanent},
			{Ifindex: 2, Addr: addr("192.0.2.4"), MAC: mac(0x24), State: NUDFailed},
			{Ifindex: 2, Addr: addr("192.0.2.5"), State: NUDIncomplete},
			{Ifindex: 4, Addr: addr("2001:db8::2"), MAC: mac(0x42), State: NUDReachable},
			{Ifindex: 2, Addr: addr("fe80::2"), MAC: mac(0x22), State: NUDProbe},
			{Ifindex: 5, Addr: addr("2001:db8::3"), MAC: mac(0x53), State: NUDReachable},
		},
	}
}

func unicast(table uint32, p string, hops ...Hop) Route {
	return Route{Table: table, Prefix: prefix(p), Type: RouteUnicast, Hops: hops}
}

func TestResolve(t *testing.T) {
	s := network()
	for _, c := range []struct {
		key  Key
		want string // ifindex, MTU, dst's and src's last octet, tags
	}{
		{Key{NextHop: addr("192.0.2.2")}, "2 9000 22<02 []"},
		{Key{NextHop: addr("8.8.8.8")}, "2 9000 22<02 []"},
		{Key{NextHop: addr("10.1.2.3")}, "2 9000 22<02 []"},
		{Key{NextHop: addr("10.1.2.3"), Table: 100}, "2 9000 23<02 []"},
		{Key{NextHop: addr("198.51.100.7")}, "2 9000 22<02 []"},
		{Key{NextHop: addr("2001:db8::2")}, "2 1600 42<04 [{34984 100} {33024 7}]"},
		{Key{NextHop: addr("fe80::2"), Interface: "eth0"}, "2 9000 22<02 []"},
		{Key{NextHop: addr("fe80::2%eth0"), Interface: "eth0"}, "2 9000 22<02 []"},
		{Key{NextHop: addr("::ffff:192.0.2.2")}, "2 9000 22<02 []"},
		{Key{Interface: "eth0"}, "2 9000 -<02 []"},
		{Key{Interface: "eth0.100"}, "2 1600 -<03 [{34984 100}]"},
	} {
		nh, err := Resolve(s, c.key)
		if err != nil || nh.Pass {
			t.Errorf("%s: %+v, %v", c.key, nh, err)
			continue
		}
		if got := fmt.Sprintf("%d %d %s<%s %v", nh.Ifindex, nh.MTU, last(nh.Dst), last(nh.Src), nh.VLANs); got != c.want {
			t.Errorf("%s: got %s, want %s", c.key, got, c.want)
		}
	}
}

func last(a net.HardwareAddr) string {
	if a == nil {
		return "-"
	}
	return fmt.Sprintf("%02x", a[5])
}

func TestResolveNotReady(t *testing.T) {
	s := network()
	for _, c := range []struct {
		key  Key
		want error
	}{
		{Key{}, ErrBadKey},
		{Key{Interface: "none"}, ErrNoInterface},
		{Key{Interface: "down"}, ErrDown},
		{Key{Interface: "down.5"}, ErrDown},
		{Key{NextHop: addr("198.51.101.1")}, ErrDown},
		{Key{NextHop: addr("192.0.2.4")}, ErrNoNeighbour},
		{Key{NextHop: addr("192.0.2.5")}, ErrNoNeighbour},
		{Key{NextHop: addr("192.0.2.6")}, ErrNoNeighbour},
		{Key{NextHop: addr("203.0.113.1")}, ErrUnreachable},
		{Key{NextHop: addr("203.0.113.1"), Table: 100}, ErrNoRoute},
		{Key{NextHop: addr("192.0.2.2"), Table: 7}, ErrNoRoute},
		{Key{NextHop: addr("2001:db9::1")}, ErrNoRoute},
	} {
		if nh, err := Resolve(s, c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v; want %v", c.key, nh, err, c.want)
		}
	}
}

func TestResolvePass(t *testing.T) {
	s := network()
	for name, want := range map[string]string{
		"lo": "ends at this node", "tun0": "not an Ethernet", "br0": "bridge", "moved": "another network namespace",
		"third": "VLAN tags", "veth0": "GRO",
	} {
		if nh, err := Resolve(s, Key{Interface: name}); err != nil || !nh.Pass || !strings.Contains(nh.Why, want) {
			t.Errorf("%s: %+v, %v", name, nh, err)
		}
	}
	if nh, err := Resolve(s, Key{NextHop: addr("192.0.2.1")}); err != nil || !nh.Pass {
		t.Errorf("own address: %+v, %v", nh, err)
	}

	// Where only XDP cannot send, the neighbour is found as elsewhere.
	s = network()
	s.Neighbours = append(s.Neighbours, Neighbour{Ifindex: 10, Addr: addr("192.0.2.7"), MAC: mac(0x17), State: NUDReachable},
		Neighbour{Ifindex: 11, Addr: addr("192.0.2.7"), MAC: mac(0x27), State: NUDStale},
		Neighbour{Ifindex: 11, Addr: addr("192.0.2.8"), MAC: mac(0x28), State: NUDFailed})
	for key, want := range map[Key]string{
		{NextHop: addr("192.0.2.7"), Interface: "br0"}: "17", {NextHop: addr("192.0.2.7"), Interface: "veth0"}: "27",
		{NextHop: addr("192.0.2.8"), Interface: "veth0"}: "-", {NextHop: addr("192.0.2.9"), Interface: "veth0"}: "-",
		{NextHop: addr("192.0.2.7"), Interface: "tun0"}: "-",
	} {
		if nh, err := Resolve(s, key); err != nil || !nh.Pass || last(nh.Dst) != want {
			t.Errorf("%s: %+v, %v; want address %s", key, nh, err, want)
		}
	}

	s = network()
	s.AnyEthernet = true
	for name, pass := range map[string]bool{"br0": false, "veth0": false, "tun0": true, "lo": true, "third": true} {
		if nh, err := Resolve(s, Key{Interface: name}); err != nil || nh.Pass != pass {
			t.Errorf("generic mode, %s: %+v, %v; want pass %v", name, nh, err, pass)
		}
	}
}

func TestMirrorPure(t *testing.T) {
	s := network()
	s.Routes = append(s.Routes,
		Route{Table: 255, Prefix: prefix("192.0.2.1/32"), Type: RouteLocal, Hops: []Hop{{Ifindex: 2}}},
		unicast(254, "192.0.2.3/32", Hop{Ifindex: 2}), // an address that is routed on the link
		unicast(254, "192.0.2.4/32", Hop{Ifindex: 2}), // the same, not resolved
		unicast(254, "192.0.2.128/25", Hop{Gateway: addr("192.0.2.2"), Ifindex: 2}),
	)
	s.Neighbours = append(s.Neighbours, Neighbour{Ifindex: 2, Addr: addr("192.0.2.129"), MAC: mac(9), State: NUDStale})
	m := Mirror(s, []uint32{0, 100})
	via := func(a, dev string) []Key { return []Key{{NextHop: addr(a), Interface: dev}} }
	for _, c := range []struct {
		table uint32
		p     string
		want  []Key
	}{
		{254, "192.0.2.0/24", nil},
		{254, "192.0.2.1/32", nil},
		{254, "192.0.2.2/32", via("192.0.2.2", "eth0")},
		{254, "192.0.2.3/32", via("192.0.2.3", "eth0")},
		{254, "192.0.2.4/32", nil},
		{254, "2001:db8::2/128", via("2001:db8::2", "inner")},
		{254, "0.0.0.0/0", via("192.0.2.2", "eth0")},
		{254, "198.51.100.0/24", via("192.0.2.2", "eth0")},
		{254, "203.0.113.0/24", nil},
		{100, "10.0.0.0/8", via("192.0.2.3", "eth0")},
	} {
		got, ok := m[RouteKey{c.table, prefix(c.p)}]
		if !ok || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("table %d %s: %v (there: %v), want %v", c.table, c.p, got, ok, c.want)
		}
	}
	for _, p := range []string{
		"192.0.2.5/32",    // not resolved
		"fe80::2/128",     // link-local
		"192.0.2.129/32",  // routed by a gateway, whatever the neighbour table says
		"2001:db8::3/128", // on another link than the prefix
	} {
		if got, ok := m[RouteKey{254, prefix(p)}]; ok {
			t.Errorf("%s is mirrored: %v", p, got)
		}
	}
	if got := fmt.Sprint(nextHops(m)); got != "[192.0.2.2 dev eth0 192.0.2.3 dev eth0 2001:db8::2 dev inner]" {
		t.Errorf("keys: %s", got)
	}
}

// What the library's types say of a VLAN device.
func TestNewLink(t *testing.T) {
	attrs := netlink.LinkAttrs{
		Index: 7, Name: "eth0.100", MTU: 1496, HardwareAddr: mac(7), Flags: net.FlagUp, RawFlags: unix.IFF_LOWER_UP,
		ParentIndex: 2, NetNsID: -1, EncapType: "ether", MasterIndex: 9,
	}
	got := newLink(&netlink.Vlan{LinkAttrs: attrs, VlanId: 100, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD})
	want := Link{
		Index: 7, Name: "eth0.100", Kind: "vlan", MTU: 1496, MAC: mac(7), Up: true, Carrier: true, Ethernet: true,
		Parent: 2, VLAN: VLAN{0x88a8, 100}, Master: 9,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	attrs.NetNsID, attrs.Flags = 0, 0
	if got := newLink(&netlink.Vlan{LinkAttrs: attrs}); !got.ParentElsewhere || got.Up {
		t.Errorf("a VLAN device whose parent is elsewhere: %+v", got)
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct{ weights, want []int }{
		{[]int{1}, []int{1}},
		{[]int{256}, []int{1}},
		{[]int{1, 1}, []int{1, 1}},
		{[]int{10, 20}, []int{1, 2}},
		{[]int{3, 4}, []int{3, 4}},
		{[]int{1, 255}, []int{1, 6}},
		{[]int{100, 100, 101}, []int{2, 2, 3}},
		{[]int{5, 4, 3, 2, 1, 1, 1}, []int{1, 1, 1, 1, 1, 1, 1}},
	} {
		if got := shares(c.weights); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v: %v, want %v", c.weights, got, c.want)
		}
	}
	if got := repeat(make([]Key, 8), make([]int, 8)); got != nil {
		t.Errorf("eight next hops: %v, want the kernel to spread them", got)
	}
}

// Flows share the next hops that are alive; where one takes them all, nothing is shared.
func TestSharedNextHops(t *testing.T) {
	s := network()
	by := func(kernelOnly string, hops ...Hop) Route {
		r := unicast(254, "2001:db8:e::/48", hops...)
		r.KernelOnly = kernelOnly
		return r
	}
	one := Hop{Gateway: addr("fe80::7"), Ifindex: 2, Weight: 3}
	two := Hop{Gateway: addr("fe80::8"), Ifindex: 4}
	both := []Share{{Key{NextHop: addr("fe80::7"), Interface: "eth0"}, 3}, {Key{NextHop: addr("fe80::8"), Interface: "inner"}, 1}}
	for what, c := range map[string]struct {
		route Route
		key   Key
		want  []Share
	}{
		"two next hops":         {by("", one, two), Key{NextHop: addr("2001:db8:e::1")}, both},
		"on two links":          {by("", Hop{Ifindex: 2}, Hop{Ifindex: 4}), Key{NextHop: addr("2001:db8:e::1")}, []Share{{Key{NextHop: addr("2001:db8:e::1"), Interface: "eth0"}, 1}, {Key{NextHop: addr("2001:db8:e::1"), Interface: "inner"}, 1}}},
		"one is dead":           {by("", one, Hop{Gateway: addr("fe80::9"), Ifindex: 7, Dead: true}), Key{NextHop: addr("2001:db8:e::1")}, nil},
		"one of three is dead":  {by("", one, Hop{Gateway: addr("fe80::9"), Ifindex: 7, Dead: true}, two), Key{NextHop: addr("2001:db8:e::1")}, both},
		"the kernel's business": {by("it has an encapsulation", one, two), Key{NextHop: addr("2001:db8:e::1")}, nil},
		"a neighbour":           {by("", one, two), Key{NextHop: addr("2001:db8:e::1"), Interface: "eth0"}, nil},
		"an interface":          {by("", one, two), Key{Interface: "eth0"}, nil},
		"another table":         {by("", one, two), Key{NextHop: addr("2001:db8:e::1"), Table: 100}, nil},
		"this node":             {by("", one, two), Key{NextHop: addr("192.0.2.1")}, nil},
	} {
		s := &Snapshot{Links: s.Links, Addresses: s.Addresses, Routes: append(slices.Clip(s.Routes), c.route)}
		if got := s.Shares(c.key); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestLocal(t *testing.T) {
	got := network().Local()
	want := []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestOwn: what the kernel keeps, by addresses and by routes of the tables that every packet meets.
func TestOwn(t *testing.T) {
	s := network()
	s.Addresses = append(s.Addresses, Address{Ifindex: 2, Prefix: prefix("198.51.100.7/24"), Tentative: true})
	s.Routes = append(s.Routes, []Route{
		{Table: TableLocal, Prefix: prefix("192.0.2.1/32"), Type: RouteLocal},
		{Table: TableLocal, Prefix: prefix("192.0.2.255/32"), Type: RouteBroadcast},
		{Table: TableLocal, Prefix: prefix("10.9.0.0/16"), Type: RouteLocal}, // ip route add local 10.9.0.0/16 dev lo
		{Table: TableMain, Prefix: prefix("10.10.0.0/16"), Type: RouteLocal},
		{Table: TableLocal, Prefix: prefix("2001:db8::/128"), Type: RouteAnycast},
		{Table: 100, Prefix: prefix("0.0.0.0/0"), Type: RouteLocal}, // only packets with a mark meet it
		{Table: TableLocal, Prefix: prefix("127.0.0.0/8"), Type: RouteLocal},
		{Table: TableLocal, Prefix: prefix("fe80::/128"), Type: RouteAnycast},
		{Table: TableLocal, Prefix: prefix("ff00::/8"), Type: RouteLocal},
		{Table: TableLocal, Prefix: prefix("198.51.100.7/32"), Type: RouteLocal},
		{Table: TableMain, Prefix: prefix("10.11.0.0/16"), Type: RouteUnicast},
	}...)
	want := []netip.Prefix{prefix("10.9.0.0/16"), prefix("10.10.0.0/16"), prefix("192.0.2.1/32"), prefix("192.0.2.255/32"), prefix("2001:db8::/128"), prefix("2001:db8::1/128")}
	if got := s.Own(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What changes no frame makes no new snapshot; all else does.
func TestSame(t *testing.T) {
	quiet := network()
	quiet.Neighbours[0].State = NUDDelay
	if !quiet.same(network()) {
		t.Error("a neighbour that goes from stale to delay makes a difference")
	}
	for name, change := range map[string]func(*Snapshot){
		"neighbour fails":   func(s *Snapshot) { s.Neighbours[0].State = NUDFailed },
		"neighbour's MAC":   func(s *Snapshot) { s.Neighbours[0].MAC = mac(0x99) },
		"link down":         func(s *Snapshot) { s.Links[1].Carrier = false },
		"link's MAC":        func(s *Snapshot) { s.Links[1].MAC = mac(0x99) },
		"XDP features":      func(s *Snapshot) { s.Links[1].XDP = 0 },
		"route's gateway":   func(s *Snapshot) { s.Routes[1].Hops[0].Gateway = addr("192.0.2.3") },
		"route goes":        func(s *Snapshot) { s.Routes = s.Routes[1:] },
		"address goes":      func(s *Snapshot) { s.Addresses = s.Addresses[1:] },
		"rule comes":        func(s *Snapshot) { s.Rules = []Rule{{Priority: 5}} },
		"address is usable": func(s *Snapshot) { s.Addresses[4].Tentative = false },
	} {
		s := network()
		change(s)
		if s.same(network()) {
			t.Errorf("%s: makes no difference", name)
		}
	}
}

// nextHops returns the next hops of a mirror, each once, sorted.
func nextHops(m map[RouteKey][]Key) []Key {
	all := slices.Concat(slices.Collect(maps.Values(m))...)
	slices.SortFunc(all, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}
