package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/testutil/tshark"
)

// pools are those of a user plane function.
var pools = []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8:45::/48")}

func poolRoutes(nextHop netip.Addr) (out []Originated) {
	for _, p := range pools {
		out = append(out, Originated{Prefix: p, NextHop: nextHop, Communities: []string{"65001:100", "no-export", "65001:1:2"}, LocalPreference: 200})
	}
	return out
}

// origin starts a speaker that is no node of a cluster at our end of a wire.
func (w wire) origin(t *testing.T, c Config, vpns []VPN, peers ...Peer) (*Speaker, *routes) {
	t.Helper()
	h := newRoutes()
	c.ASN, c.RouterID, c.Peers, c.Origin = 65001, addr("10.0.0.1"), peers, &Origin{Handler: h, VPNs: vpns}
	return standard(t, c, newObserved()), h
}

func originate(t *testing.T, s *Speaker, list ...Originated) {
	t.Helper()
	if err := s.Originate(pools, list); err != nil {
		t.Fatal(err)
	}
}

// FRR learns the pools of a user plane function and a framed route, which come and go, by
// the session's address or by a given next hop, with their communities.
func TestOriginateToFRR(t *testing.T) {
	t.Parallel()
	f := router(t)
	f.start("zebra", "")
	f.start("bgpd", strings.ReplaceAll(unicast, "NODE", f.ours.String()))
	s, routes := f.origin(t, Config{}, nil, Peer{Address: f.peer, ASN: 65000, Local: f.ours, Families: []Family{Unicast}})
	originate(t, s, poolRoutes(netip.Addr{})...)
	eventually(t, "FRR knows the pools", func() bool {
		return f.has("ipv4", "10.45.0.0/16", f.ours.String()) && f.has("ipv6", "2001:db8:45::/48", f.ours.String())
	})
	var answer struct {
		Paths []struct {
			Community, LargeCommunity struct{ String string }
		}
	}
	if err := f.show("bgp ipv4 unicast 10.45.0.0/16", &answer); err != nil || len(answer.Paths) != 1 ||
		answer.Paths[0].Community.String != "65001:100 no-export" || answer.Paths[0].LargeCommunity.String != "65001:1:2" {
		t.Errorf("FRR says %+v, %v", answer, err)
	}
	framed := Originated{Prefix: netip.MustParsePrefix("203.0.113.0/28"), NextHop: f.ours}
	originate(t, s, append(poolRoutes(f.ours), framed)...)
	eventually(t, "FRR knows the framed route", func() bool { return f.has("ipv4", "203.0.113.0/28", f.ours.String()) })
	originate(t, s, poolRoutes(f.ours)[1:]...)
	eventually(t, "FRR hears of the withdrawals", func() bool {
		return !f.has("ipv4", "203.0.113.0/28", f.ours.String()) && !f.has("ipv4", "10.45.0.0/16", f.ours.String())
	})
	if !f.has("ipv6", "2001:db8:45::/48", f.ours.String()) {
		t.Error("the pool that stays is gone")
	}
	if routes.count() > 0 {
		t.Errorf("FRR's unicast routes are taken: %v", routes.routes)
	}
}

// While a user plane function restarts, FRR keeps its pools; what it does not announce any
// more is gone after that.
func TestOriginateOverRestart(t *testing.T) {
	t.Parallel()
	f := router(t)
	f.start("zebra", "")
	f.start("bgpd", strings.ReplaceAll(unicast, "NODE", f.ours.String()))
	begin := func(restarting bool) *Speaker {
		s, _ := f.origin(t, Config{Restart: restart, Restarting: restarting}, nil, Peer{Address: f.peer, ASN: 65000, Local: f.ours, Families: []Family{Unicast}})
		return s
	}
	s := begin(false)
	originate(t, s, poolRoutes(f.ours)...)
	both := func() bool {
		return f.has("ipv4", "10.45.0.0/16", f.ours.String()) && f.has("ipv6", "2001:db8:45::/48", f.ours.String())
	}
	eventually(t, "FRR knows the pools", both)
	kept := watch(t, func() bool { return f.has("ipv4", "10.45.0.0/16", f.ours.String()) })
	s.Stop()
	again := begin(true)
	originate(t, again, poolRoutes(f.ours)[0])
	established(t, again)
	eventually(t, "what is not announced again is gone", func() bool { return !f.has("ipv6", "2001:db8:45::/48", f.ours.String()) })
	if n := kept(); n > 0 {
		t.Errorf("FRR was without the pool %d times", n)
	}
}

// A peer that advertises a pool, or a part of it, with a better preference: other peers
// keep this node's route, and the peer's are counted and not used. Nor is a less specific
// one that it may advertise.
func TestOthersAdvertiseOurPools(t *testing.T) {
	t.Parallel()
	peers := []string{"ipv4-unicast", "ipv6-unicast", "l3vpn-ipv4-unicast", "l3vpn-ipv6-unicast"}
	thief := goBGPd(t, 65001, fmt.Sprintf(neighbor, 1, ""), speaking(false, peers...))
	other := goBGPd(t, 65001, fmt.Sprintf(neighbor, 1, ""), speaking(false, peers...))
	for _, p := range []string{"10.45.0.0/16", "10.45.9.0/24"} {
		thief.rib("add", "ipv4", p, "nexthop", thief.peer.String(), "local-pref", "900")
	}
	thief.rib("add", "vpnv4", "10.45.8.0/24", "label", "3", "rd", "65009:7", "rt", "65001:7", "nexthop", "10.0.0.254", "local-pref", "900")
	s, routes := thief.origin(t, Config{}, []VPN{{Tenant: 7, Distinguisher: "65001:7", Import: []string{"65001:7"}, Export: []string{"65001:7"}}},
		Peer{Address: thief.peer, ASN: 65001, Local: thief.ours}, Peer{Address: other.peer, ASN: 65001, Local: other.ours})
	own := poolRoutes(other.ours)
	for i := range own {
		own[i].Communities = nil
	}
	originate(t, s, own...)
	intruding := func() (n uint64) {
		for _, p := range peersOf(t, s) {
			if p.Address == thief.peer {
				n = p.Intruding
			}
		}
		return n
	}
	eventually(t, "the thief's three routes are counted", func() bool { return intruding() == 3 })
	eventually(t, "the other knows the pool by this node", func() bool { return other.has("ipv4", "10.45.0.0/16", other.ours.String()) })
	kept := watch(t, func() bool { return other.has("ipv4", "10.45.0.0/16", other.ours.String()) })
	thief.rib("add", "ipv4", "10.45.0.0/16", "nexthop", thief.peer.String(), "local-pref", "950")
	eventually(t, "its fourth route is counted", func() bool { return intruding() == 4 })
	originate(t, s, own[0])
	eventually(t, "a withdrawal reaches the other", func() bool { return !other.has("ipv6", "2001:db8:45::/48", other.ours.String()) })
	if n := kept(); n > 0 {
		t.Errorf("the other was without the pool %d times", n)
	}
	if routes.count() > 0 {
		t.Errorf("the thief's routes are taken: %v", routes.routes)
	}
}

func peersOf(t *testing.T, s *Speaker) []PeerStatus {
	t.Helper()
	list, err := s.Peers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The pools of a slice are an L3VPN with the slice's SID behind a GoBGP that reflects; a
// provider edge's routes come back, those with other Route Targets do not.
func TestOriginateInVPN(t *testing.T) {
	t.Parallel()
	g := goBGPd(t, 65001, fmt.Sprintf(neighbor, 1, ""), client, speaking(false, everything...), fmt.Sprintf(neighbor, 3, ""), client, speaking(false, everything...))
	third := addr(strings.TrimSuffix(g.ours.String(), "1") + "3")
	g.address(t, third)
	s, routes := g.origin(t, Config{}, []VPN{{Tenant: 7, Distinguisher: "65001:7", Import: []string{"65001:8", "65001:70"}, Export: []string{"65001:7", "65001:77"}}},
		Peer{Address: g.peer, ASN: 65001, Local: g.ours, RouteReflector: true})
	var list []Originated
	for _, p := range pools {
		list = append(list, Originated{Prefix: p, NextHop: addr("fc00:0:1::1"), Tenant: 7, SID: addr("fc00:0:1:107::"), Locator: netip.MustParsePrefix("fc00:0:1::/48")})
	}
	originate(t, s, list...)
	for i, family := range []string{"vpnv4", "vpnv6"} {
		eventually(t, "GoBGP knows "+family, func() bool {
			out, _ := g.gobgp("global", "rib", "-a", family)
			return strings.Contains(out, "65001:7:"+pools[i].String()) && strings.Contains(out, "fc00:0:1::1") &&
				strings.Contains(out, "fc00:0:1:107::") && strings.Contains(out, "65001:77")
		})
	}
	pe := g.member(t, "3", third, Config{Cluster: &Cluster{Tenants: []VPN{
		{Tenant: 7, Distinguisher: "10.0.0.3:7", Import: []string{"65001:7"}, Export: []string{"65001:8"}},
		{Tenant: 9, Distinguisher: "10.0.0.3:9", Import: []string{"65001:9"}, Export: []string{"65001:9"}},
	}}}, Peer{ASN: 65001, RouteReflector: true})
	if err := pe.SetNode(pe.node, partsOf("3", 7, 9)...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the provider edge knows the pools by the slice's SID", func() bool {
		r := pe.routes.of("10.45.0.0/16@tenant/7")
		return len(r) == 1 && r[0].Best && slices.Equal(r[0].Segments, []netip.Addr{addr("fc00:0:1:107::")})
	})
	if r := pe.routes.of("10.45.0.0/16@tenant/9"); r != nil {
		t.Errorf("another VPN has the pools, too: %+v", r)
	}
	eventually(t, "the slice knows the data network", func() bool {
		r := routes.of("10.9.3.0/24@tenant/7")
		return len(r) == 1 && r[0].Best && r[0].Target == "65001:8" && slices.Equal(r[0].Segments, []netip.Addr{addr("fc00:0:3:107::")})
	})
	// An IPv4 and an IPv6 prefix of tenant 7, none of tenant 9, of the cluster, or of the pools.
	eventually(t, "the slice knows two routes", func() bool { return routes.count() == 2 })
	originate(t, s)
	eventually(t, "the withdrawal reaches the provider edge", func() bool { return pe.routes.of("10.45.0.0/16@tenant/7") == nil })
}

// tshark reads what is advertised, and finds no fault.
func TestTsharkReadsOriginated(t *testing.T) {
	vpns, err := parseVPNs([]VPN{{Tenant: 7, Distinguisher: "65001:7", Export: []string{"65001:7", "65001:77"}}})
	if err != nil {
		t.Fatal(err)
	}
	a := announcer{routerID: addr("10.0.0.1"), vpns: vpns}
	list := append(poolRoutes(addr("2001:db8:d::fe")), Originated{Prefix: pools[0], NextHop: addr("192.0.2.1")},
		Originated{Prefix: pools[0], NextHop: addr("fc00:0:1::1"), Tenant: 7, SID: addr("fc00:0:1:107::"), Locator: netip.MustParsePrefix("fc00:0:1::/48")})
	var all [][]byte
	for _, o := range list {
		err := a.originate(o, func(_ bgp.Family, _ bgp.NLRI, attrs []bgp.PathAttributeInterface) error {
			b, err := bgp.NewBGPUpdateMessage(nil, attrs, nil).Serialize()
			all = append(all, b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	path := capture(t, all)
	out := tshark.Read(t, path, "-T", "fields", "-e", "bgp.type", "-e", "_ws.expert.severity", "-e", "_ws.malformed")
	if want := strings.Repeat("2\t\t\n", len(all)); out != want {
		t.Errorf("tshark sees %q, want %q", out, want)
	}
	text := strings.Join(strings.Fields(tshark.Read(t, path, "-O", "bgp")), " ")
	for _, want := range []string{
		"10.45.0.0/16", "2001:db8:45::/48", "COMMUNITIES: 65001:100 NO_EXPORT", "LARGE_COMMUNITY: 65001:1:2", "LOCAL_PREF: 200",
		"IPv4 Address: 192.0.2.1", "Route Target: 65001:7", "Route Target: 65001:77", "Route Distinguisher: 65001:7",
		"SRv6 SID Value: fc00:0:1:107:: SRv6 SID Flags: 0x00 SRv6 Endpoint Behavior: End.DT46 (0x0014)",
		"Locator Block Length: 32 Locator Node Length: 16 Function Length: 16 Argument Length: 0 Transposition Length: 0 Transposition Offset: 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("tshark does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
