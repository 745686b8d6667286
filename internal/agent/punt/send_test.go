package punt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slowpath"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

type sent struct {
	frame   []byte
	ifindex int
}

func (s *sent) Transmit(frame []byte, ifindex int) error {
	s.frame, s.ifindex = frame, ifindex
	return nil
}
func (s *sent) Close() error { return nil }

func TestSendWithoutARawSocket(t *testing.T) {
	s := withRoute(links("eth0", "eth1"))
	s.Links = append(s.Links, netdev.Link{
		Index: 3, Name: "vlan7", Kind: "vlan", MTU: 1400, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 3}, Up: true, Carrier: true,
		Ethernet: true, Parent: 2, VLAN: netdev.VLAN{TPID: 0x8100, ID: 7},
	})
	s.Neighbours = append(s.Neighbours, netdev.Neighbour{
		Ifindex: 3, Addr: addr("fe80::9"), MAC: net.HardwareAddr{2, 7, 7, 7, 7, 7}, State: netdev.NUDStale,
	})
	out := &sent{}
	var asked []netdev.Key
	sender := &sender{out: out, links: func() *netdev.Snapshot { return s }, ask: func(k netdev.Key) { asked = append(asked, k) }}

	four := make([]byte, 28)
	four[0] = 0x45
	copy(four[16:], []byte{203, 0, 113, 5})
	if err := sender.Send(four, slowpath.Way{Table: 254}); err != nil {
		t.Fatal(err)
	}
	if want := "020909090909" + "020000000001" + "0800" + hex.EncodeToString(four); hex.EncodeToString(out.frame) != want || out.ifindex != 1 {
		t.Errorf("sent by %d:\n%x, want\n%s", out.ifindex, out.frame, want)
	}

	six := make([]byte, 48)
	six[0] = 0x60
	copy(six[24:], addr("fe80::9").AsSlice())
	if err := sender.Send(six, slowpath.Way{Table: 254, Ifindex: 3}); err != nil {
		t.Fatal(err)
	}
	if want := "020707070707" + "020000000003" + "81000007" + "86dd"; !strings.HasPrefix(hex.EncodeToString(out.frame), want) || out.ifindex != 2 {
		t.Errorf("sent by %d:\n%x, want\n%s", out.ifindex, out.frame, want)
	}

	for name, c := range map[string]struct {
		packet  []byte
		ifindex int
		want    string
	}{
		"no IP packet":               {[]byte{0x45, 0}, 0, "neither"},
		"no route":                   {bytes.Replace(four, []byte{203, 0}, []byte{9, 9}, 1), 0, "no route"},
		"no such interface":          {six, 44, "no interface 44"},
		"more than the MTU":          {append(six, make([]byte, 1400)...), 3, "MTU is 1400"},
		"link-local on another link": {six, 1, "not resolved"},
	} {
		out.frame = nil
		if err := sender.Send(c.packet, slowpath.Way{Table: 254, Ifindex: c.ifindex}); err == nil || !strings.Contains(err.Error(), c.want) || out.frame != nil {
			t.Errorf("%s: %v, sent %x", name, err, out.frame)
		}
	}
	if want := (netdev.Key{NextHop: addr("fe80::9"), Interface: "eth0"}); len(asked) != 1 || asked[0] != want {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	s.Links[0].XDP = 0
	if err := sender.Send(four, slowpath.Way{Table: 254}); err == nil || !strings.Contains(err.Error(), "CAP_NET_RAW") || errors.Is(err, netdev.ErrNoRoute) {
		t.Errorf("a device that cannot be redirected to: %v", err)
	}
}

// tagged is a snapshot with a VLAN device, and a customer's table behind it.
func tagged() *netdev.Snapshot {
	s := withRoute(links("eth0", "eth1"))
	s.Links = append(s.Links, netdev.Link{
		Index: 3, Name: "vlan7", Kind: "vlan", MTU: 1400, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 3}, Up: true, Carrier: true,
		Ethernet: true, Parent: 2, VLAN: netdev.VLAN{TPID: 0x8100, ID: 7},
	})
	s.Addresses = append(s.Addresses,
		netdev.Address{Ifindex: 2, Prefix: prefix("198.51.100.1/24")},
		netdev.Address{Ifindex: 3, Prefix: prefix("fe80::3/64")},
		netdev.Address{Ifindex: 3, Prefix: prefix("2001:db8:7::2/64"), Tentative: true},
		netdev.Address{Ifindex: 3, Prefix: prefix("2001:db8:7::9/64")},
		netdev.Address{Ifindex: 3, Prefix: prefix("2001:db8:1::1/64")},
		netdev.Address{Ifindex: 3, Prefix: prefix("10.7.0.1/24")})
	s.Routes = append(s.Routes,
		netdev.Route{Table: 100, Prefix: prefix("10.7.0.0/24"), Type: netdev.RouteUnicast, Hops: []netdev.Hop{{Ifindex: 3, Weight: 1}}},
		netdev.Route{Table: 100, Prefix: prefix("10.66.0.0/16"), Type: netdev.RouteBlackhole})
	s.Neighbours = append(s.Neighbours, netdev.Neighbour{
		Ifindex: 3, Addr: addr("10.7.0.8"), MAC: net.HardwareAddr{2, 7, 7, 7, 7, 8}, State: netdev.NUDReachable,
	})
	return s
}

// header is an Ethernet header, given in hexadecimal.
func header(t *testing.T, tags string) []byte {
	t.Helper()
	b, err := hex.DecodeString("0200000000aa" + "0200000000bb" + tags)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSendBack(t *testing.T) {
	s := tagged()
	out := &sent{}
	sender := &sender{out: out, links: func() *netdev.Snapshot { return s }}
	packet := append([]byte{0x45}, make([]byte, 27)...)
	back := header(t, "81000007"+"0800")
	if err := sender.Send(packet, slowpath.Way{Ifindex: 2, Back: back}); err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Clone(back), packet...); !bytes.Equal(out.frame, want) || out.ifindex != 2 {
		t.Errorf("sent by %d:\n%x, want\n%x", out.ifindex, out.frame, want)
	}
	if err := sender.Send(packet, slowpath.Way{Ifindex: 44, Back: back}); err == nil || !strings.Contains(err.Error(), "no interface 44") {
		t.Errorf("an interface that is not there: %v", err)
	}
	s.Links[1].XDP = 0
	if err := sender.Send(packet, slowpath.Way{Ifindex: 2, Back: back}); err == nil || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("a device that cannot be redirected to: %v", err)
	}
}

func TestSendByTable(t *testing.T) {
	s := tagged()
	out := &sent{}
	var asked []netdev.Key
	sender := &sender{out: out, links: func() *netdev.Snapshot { return s }, ask: func(k netdev.Key) { asked = append(asked, k) }}
	to := func(dst string) []byte {
		b := append([]byte{0x45}, make([]byte, 27)...)
		copy(b[16:], addr(dst).AsSlice())
		return b
	}
	if err := sender.Send(to("10.7.0.8"), slowpath.Way{Ifindex: 1, Table: 100}); err != nil {
		t.Fatal(err)
	}
	if want := "020707070708" + "020000000003" + "81000007" + "0800"; !strings.HasPrefix(hex.EncodeToString(out.frame), want) || out.ifindex != 2 {
		t.Errorf("sent by %d: %x", out.ifindex, out.frame)
	}
	for name, c := range map[string]struct {
		dst   string
		table uint32
		none  bool // no route
	}{
		"only main knows it": {"203.0.113.5", 100, true},
		"blackhole":          {"10.66.0.1", 100, true},
		"of no table":        {"10.7.0.8", 0, true},
		"link-local":         {"169.254.1.1", 100, true},
		"silent":             {"10.7.0.9", 100, false},
	} {
		out.frame = nil
		err := sender.Send(to(c.dst), slowpath.Way{Ifindex: 1, Table: c.table})
		if err == nil || errors.Is(err, slowpath.ErrNoRoute) != c.none || out.frame != nil {
			t.Errorf("%s: %v, sent %x", name, err, out.frame)
		}
	}
	if want := (netdev.Key{NextHop: addr("10.7.0.9"), Table: 100}); len(asked) != 1 || asked[0] != want {
		t.Errorf("asked for %v, want %v", asked, want)
	}
}

func TestSourceOfErrors(t *testing.T) {
	s := tagged()
	sender := &sender{links: func() *netdev.Snapshot { return s }}
	plain, vlan, priority := header(t, "0800"), header(t, "81006007"+"0800"), header(t, "81000000"+"0800")
	// In a namespace without routes the kernel chooses nothing.
	netns.New(t).Do(t, func() {
		for name, c := range map[string]struct {
			dst  string
			way  slowpath.Way
			want string
		}{
			"of the interface":           {"198.51.100.7", slowpath.Way{Ifindex: 2, Back: plain}, "198.51.100.1"},
			"of the interface, priority": {"198.51.100.7", slowpath.Way{Ifindex: 2, Back: priority}, "198.51.100.1"},
			"of the VLAN":                {"10.50.0.1", slowpath.Way{Ifindex: 2, Back: vlan}, "10.7.0.1"},
			"of the same subnet":         {"2001:db8:7::8", slowpath.Way{Ifindex: 2, Back: vlan}, "2001:db8:7::9"},
			"the lowest":                 {"2001:db8:ff::8", slowpath.Way{Ifindex: 2, Back: vlan}, "2001:db8:1::1"},
			"link-local":                 {"fe80::8", slowpath.Way{Ifindex: 2, Back: vlan}, "fe80::3"},
			"by the table":               {"10.7.0.8", slowpath.Way{Ifindex: 1, Table: 100}, "10.7.0.1"},
			"of another interface":       {"2001:db8:9::8", slowpath.Way{Ifindex: 1, Back: plain}, "2001:db8:1::1"},
		} {
			got, err := sender.Source(addr(c.dst), c.way)
			if err != nil || got != addr(c.want) {
				t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
			}
		}
		if got, err := sender.Source(addr("203.0.113.5"), slowpath.Way{Ifindex: 1, Table: 100}); !errors.Is(err, slowpath.ErrNoRoute) {
			t.Errorf("no route in the table: %s, %v", got, err)
		}
	})
}

// Errors go to a UE by its own rules.
func TestErrorToUE(t *testing.T) {
	var sent []byte
	var session uint64
	snapshot := withRoute(links("eth0", "eth1"))
	s := &sender{
		links: func() *netdev.Snapshot { return snapshot },
		toUE:  func(s uint64, b []byte) error { session, sent = s, b; return nil },
	}
	way := slowpath.Way{Ifindex: 2, Table: event.SessionTable, Session: 7}
	packet := make([]byte, 28)
	packet[0] = 0x45
	copy(packet[16:], []byte{10, 45, 0, 1})
	if err := s.Send(packet, way); err != nil || session != 7 || !slices.Equal(sent, packet) {
		t.Errorf("sent %x to session %d, %v", sent, session, err)
	}
	for _, ue := range []string{"10.45.0.1", "2001:db8:45::1"} {
		source, err := s.Source(addr(ue), way)
		local := slices.ContainsFunc(snapshot.Addresses, func(a netdev.Address) bool { return a.Prefix.Addr() == source })
		if err == nil && !local || err != nil && !errors.Is(err, slowpath.ErrNoRoute) {
			t.Errorf("to %s from %s, %v", ue, source, err)
		}
	}
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// links is a network of Ethernet devices without routes, numbered from 1.
func links(names ...string) *netdev.Snapshot {
	s := &netdev.Snapshot{}
	for i, name := range names {
		s.Links = append(s.Links, link(i+1, name))
	}
	return s
}

func link(index int, name string) netdev.Link {
	return netdev.Link{
		Index: index, Name: name, Kind: "veth", MTU: 1500, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)},
		Up: true, Carrier: true, Ethernet: true, XDP: netdev.XDPBasic | netdev.XDPRedirect | netdev.XDPTransmit,
	}
}

// withRoute adds an address, a neighbour and a route through it.
func withRoute(s *netdev.Snapshot) *netdev.Snapshot {
	s.Addresses = append(s.Addresses, netdev.Address{Ifindex: 1, Prefix: prefix("192.0.2.1/24")})
	s.Routes = append(s.Routes,
		netdev.Route{Table: netdev.TableMain, Prefix: prefix("192.0.2.0/24"), Type: netdev.RouteUnicast, Hops: []netdev.Hop{{Ifindex: 1, Weight: 1}}},
		netdev.Route{Table: netdev.TableMain, Prefix: prefix("203.0.113.0/24"), Type: netdev.RouteUnicast, Hops: []netdev.Hop{{Gateway: addr("192.0.2.9"), Ifindex: 1, Weight: 1}}})
	s.Neighbours = append(s.Neighbours,
		netdev.Neighbour{Ifindex: 1, Addr: addr("192.0.2.9"), MAC: net.HardwareAddr{2, 9, 9, 9, 9, 9}, State: netdev.NUDReachable})
	return s
}

// What a prefix is steered for goes that way where the main table would be asked, where there is
// no table, and where the table has no route.
func TestSendSteered(t *testing.T) {
	s := withRoute(links("eth0", "eth1"))
	out := &sent{}
	var steered [][]byte
	sender := &sender{
		out: out, links: func() *netdev.Snapshot { return s }, ask: func(netdev.Key) {},
		steered: func(a netip.Addr) bool { return a == addr("203.0.113.5") },
		steer:   func(packet []byte) error { steered = append(steered, packet); return nil },
	}
	to := func(dst string) []byte {
		packet := make([]byte, 28)
		packet[0] = 0x45
		copy(packet[16:], addr(dst).AsSlice())
		return packet
	}
	for name, row := range map[string]struct {
		dst  string
		way  slowpath.Way
		want bool
	}{
		"by the main table":               {"203.0.113.5", slowpath.Way{Table: 254}, true},
		"by no table":                     {"203.0.113.5", slowpath.Way{}, true},
		"by a table without a route":      {"203.0.113.5", slowpath.Way{Table: 100}, true},
		"back by the link":                {"203.0.113.5", slowpath.Way{Table: 254, Ifindex: 1, Back: make([]byte, 14)}, false},
		"to what is not steered":          {"203.0.113.6", slowpath.Way{Table: 254}, false},
		"to what is not steered, nowhere": {"203.0.113.6", slowpath.Way{Table: 100}, false},
	} {
		steered, out.frame = nil, nil
		err := sender.Send(to(row.dst), row.way)
		if row.want != (len(steered) == 1) || row.want && (err != nil || out.frame != nil) {
			t.Errorf("%s: %d steered, %x sent, %v", name, len(steered), out.frame, err)
		}
	}
}
