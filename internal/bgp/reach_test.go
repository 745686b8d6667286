package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// routes is a ReachHandler that keeps what it receives.
type routes struct {
	mu     sync.Mutex
	routes map[overlay.Destination][]Route
	gone   []overlay.Destination
}

// partsOf are node i's parts of tenants, which all have the same addresses.
func partsOf(i string, tenants ...uint8) (out []overlay.Part) {
	for _, id := range tenants {
		for _, p := range []string{"10.9." + i + ".0/24", "fd09:" + i + "::/64"} {
			out = append(out, overlay.Part{
				Destination: overlay.Destination{Tenant: id, Prefix: prefix(p)}, SID: addr(fmt.Sprintf("fc00:0:%s:1%02x::", i, id)),
			})
		}
	}
	return out
}

func newRoutes() *routes { return &routes{routes: map[overlay.Destination][]Route{}} }

// to is the destination that a text names: overlay.Destination.String.
func to(s string) overlay.Destination {
	d, err := overlay.ParseDestination(s)
	if err != nil {
		panic(err)
	}
	return d
}

func (h *routes) PutReach(d overlay.Destination, routes []Route) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.routes[d] = routes
}

func (h *routes) WithdrawReach(d overlay.Destination) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.routes, d)
	h.gone = append(h.gone, d)
}

func (h *routes) of(p string) []Route {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.routes[to(p)]
}

// by says behind which address a prefix is.
func (h *routes) by(p, address string) bool {
	routes := h.of(p)
	return len(routes) > 0 && routes[0].Best && routes[0].Address == addr(address)
}

func (h *routes) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.routes)
}

// member is a node of a cluster of the tests, with what it receives.
type member struct {
	*Speaker
	routes   *routes
	observed *observed
	node     overlay.Node
}

// Candidate paths of a node come before the routes that need their policies.
func TestOrderOfAdverts(t *testing.T) {
	a := announcer{routerID: addr("10.0.0.1"), locator: true}
	all, err := a.adverts(nodeOf("1"), nil, []netip.Addr{addr("10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	var routes, paths int
	for _, key := range inOrder(all) {
		if all[key].path.Family == bgp.RF_SR_POLICY_IPv6 {
			if paths++; routes > 0 {
				t.Errorf("%s comes after routes", all[key].path.Nlri)
			}
			continue
		}
		routes++
	}
	if paths < 2 || routes != 3 {
		t.Errorf("%d candidate paths, %d routes: want one for each family, and pods' prefixes and the locator", paths, routes)
	}
}

// nodeOf is node i: its pods have 10.244.i.0/24 and fd00:10:244:i::/64.
func nodeOf(i string) overlay.Node {
	locator := prefix("fc00:0:" + i + "::/48")
	return overlay.Node{
		Name: "node-" + i, Address: addr("2001:db8::" + i), Locator: locator,
		Prefixes: []netip.Prefix{prefix("10.244." + i + ".0/24"), prefix("fd00:10:244:" + i + "::/64")},
		IPv4:     []netip.Addr{addr("fc00:0:" + i + ":4::")}, IPv6: []netip.Addr{addr("fc00:0:" + i + ":6::")},
		BSID4: addr("fc00:0:" + i + ":b4::"), BSID6: addr("fc00:0:" + i + ":b6::"),
	}
}

// join starts node i, which listens on 127.94.net.i.
func join(t *testing.T, network, i string, c Config) *member {
	t.Helper()
	m := &member{routes: newRoutes(), observed: newObserved(), node: nodeOf(i)}
	own := addr("127.94." + network + "." + i)
	c.ASN, c.RouterID, c.Listen = 65001, addr("10.0.0."+i), []netip.Addr{own}
	for n := range c.Peers {
		c.Peers[n].Local = own
		if c.Peers[n].ASN == 0 {
			c.Peers[n].ASN = 65001
		}
	}
	if c.Cluster == nil {
		c.Cluster = &Cluster{}
	}
	c.Cluster.Handler = m.routes
	m.Speaker = speaker(t, c, m.observed)
	if err := m.SetNode(m.node); err != nil {
		t.Fatal(err)
	}
	return m
}

// mesh starts nodes that are all each other's peers. The first of two connects.
func mesh(t *testing.T, network string, c Config, names ...string) []*member {
	t.Helper()
	var all []*member
	for i, name := range names {
		own := c
		own.Peers = nil
		for j, other := range names {
			if i != j {
				own.Peers = append(own.Peers, Peer{Address: addr("127.94." + network + "." + other), Passive: i > j})
			}
		}
		if c.Cluster != nil {
			cluster := *c.Cluster
			own.Cluster = &cluster
		}
		all = append(all, join(t, network, name, own))
	}
	for _, m := range all {
		established(t, m.Speaker)
	}
	return all
}

// pathsTo says that m knows the path to a node, for both families.
func (m *member) pathsTo(n overlay.Node) bool {
	for _, color := range []uint32{overlay.ColorIPv4, overlay.ColorIPv6} {
		if m.pathTo(n, color) == nil {
			return false
		}
	}
	return true
}

func (m *member) pathTo(n overlay.Node, color uint32) *Path {
	m.observed.mu.Lock()
	defer m.observed.mu.Unlock()
	for k, p := range m.observed.paths {
		if k.color == color && k.endpoint == n.Address {
			return &p
		}
	}
	return nil
}

// Each node of a full mesh receives the others' prefixes, of both families by
// their IPv6 addresses, and of the path to them; of changes, and of the end.
func TestMesh(t *testing.T) {
	t.Parallel()
	all := mesh(t, "4", Config{}, "1", "2", "3")
	for _, m := range all {
		for _, other := range all {
			if m == other {
				continue
			}
			eventually(t, "prefixes arrive", func() bool {
				return m.routes.by(other.node.Prefixes[0].String(), other.node.Address.String()) &&
					m.routes.by(other.node.Prefixes[1].String(), other.node.Address.String())
			})
			eventually(t, "the path there arrives", func() bool { return m.pathsTo(other.node) })
		}
	}
	a, b := all[0], all[1]
	got := a.routes.of("10.244.2.0/24")[0]
	want := Route{Reach: overlay.Reach{Prefix: prefix("10.244.2.0/24"), Address: addr("2001:db8::2"), From: addr("127.94.4.2")},
		Source: Source{65001, addr("10.0.0.2"), addr("127.94.4.2")}, Best: true, Why: "the only one"}
	if !sameRoute(got, want) || got.Prefix != want.Prefix || got.From != want.From {
		t.Errorf("route %+v, want %+v", got, want)
	}
	path := a.pathTo(b.node, overlay.ColorIPv4)
	if path.BindingSID != b.node.BSID4 || !slices.Equal(path.SegmentLists[0].Segments, b.node.IPv4) || path.PolicyName != "node-2/ipv4" ||
		path.Preference != srpolicy.DefaultPreference || path.Distinguisher != 0x0a000002 {
		t.Errorf("path %+v", path)
	}

	changed := b.node
	changed.Prefixes = []netip.Prefix{prefix("10.244.2.0/24"), prefix("10.245.2.0/24")}
	changed.IPv4 = []netip.Addr{addr("2001:db8::2"), addr("fd11::4")}
	if err := b.SetNode(changed); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change arrives", func() bool {
		path := a.pathTo(b.node, overlay.ColorIPv4)
		return a.routes.by("10.245.2.0/24", "2001:db8::2") && a.routes.of("fd00:10:244:2::/64") == nil && path != nil && slices.Equal(path.SegmentLists[0].Segments, changed.IPv4)
	})
	b.Stop()
	eventually(t, "the end arrives", func() bool { return a.routes.count() == 2 && a.pathTo(b.node, overlay.ColorIPv4) == nil })
}

// Of two nodes that advertise a prefix everybody takes the same one, and knows of
// the other. One that has the prefix itself takes neither.
func TestTwoNodesClaimOnePrefix(t *testing.T) {
	all := mesh(t, "5", Config{}, "1", "2", "3")
	for _, m := range all[1:] {
		m.node.Prefixes = append(m.node.Prefixes, prefix("10.244.9.0/24"))
		if err := m.SetNode(m.node); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both arrive", func() bool { return len(all[0].routes.of("10.244.9.0/24")) == 2 })
	routes := all[0].routes.of("10.244.9.0/24")
	if !routes[0].Best || routes[0].Node != addr("10.0.0.2") || routes[0].Why != "lowest router ID" || routes[1].Best || routes[1].Why != "stands by" {
		t.Errorf("routes %+v", routes)
	}
	eventually(t, "its owner receives the other", func() bool { return len(all[1].routes.of("10.244.9.0/24")) == 1 })
	if r := all[1].routes.of("10.244.9.0/24")[0]; r.Best || r.Node != addr("10.0.0.3") || !strings.Contains(r.Why, "of this node") {
		t.Errorf("route %+v", r)
	}
	all[1].node.Prefixes = all[1].node.Prefixes[:2]
	if err := all[1].SetNode(all[1].node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other is taken by both", func() bool {
		return all[0].routes.by("10.244.9.0/24", "2001:db8::3") && len(all[0].routes.of("10.244.9.0/24")) == 1 && all[1].routes.by("10.244.9.0/24", "2001:db8::3")
	})
}

// What is not among the prefixes that are taken, and default routes, are not advertised
// to the handler.
func TestPrefixesAreFiltered(t *testing.T) {
	all := mesh(t, "6", Config{Cluster: &Cluster{Prefixes: []netip.Prefix{prefix("10.244.0.0/16"), prefix("fd00:10:244::/48")}}}, "1", "2")
	b := all[1]
	b.node.Prefixes = append(b.node.Prefixes, prefix("192.0.2.0/24"), prefix("0.0.0.0/0"), prefix("::/0"), prefix("fd00:10::/32"), prefix("10.244.8.0/24"))
	if err := b.SetNode(b.node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one arrives", func() bool { return all[0].routes.by("10.244.8.0/24", "2001:db8::2") })
	b.node.Prefixes = append(b.node.Prefixes, prefix("10.244.9.0/24")) // after which all before it have been handled
	if err := b.SetNode(b.node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last arrives", func() bool { return all[0].routes.by("10.244.9.0/24", "2001:db8::2") })
	peers, err := all[0].Peers(context.Background())
	if err != nil || peers[0].Received != 10 || peers[0].Malformed != 0 || all[0].routes.count() != 4 {
		t.Errorf("%d prefixes, peers %+v, %v", all[0].routes.count(), peers, err)
	}
}

// A peer that advertises too much is disconnected, what it advertised is gone, and after
// a while it may come back.
func TestTooManyPrefixes(t *testing.T) {
	t.Parallel()
	all := mesh(t, "7", Config{MaxPrefixes: 3, pause: 2 * time.Second, Cluster: &Cluster{}}, "1", "2")
	eventually(t, "prefixes arrive", func() bool { return all[0].routes.count() == 2 })
	b := all[1]
	few := b.node
	b.node.Prefixes = append(b.node.Prefixes, prefix("10.1.0.0/24"), prefix("10.2.0.0/24"), prefix("10.3.0.0/24"))
	if err := b.SetNode(b.node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its prefixes are gone", func() bool { return all[0].routes.count() == 0 })
	if err := b.SetNode(few); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool { return all[0].routes.count() == 2 })
	for i := range uint32(4) {
		a := gold()
		a.Color = 1000 + i
		if err := b.Advertise(a, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "so it is with candidate paths", func() bool { return all[0].routes.count() == 0 && !all[0].observed.has(1000) })
}

// A node's locator is advertised where the underlay has to route it, and is nobody
// else's.
func TestLocatorsAreAdvertised(t *testing.T) {
	t.Parallel()
	all := mesh(t, "16", Config{Cluster: &Cluster{Locator: true}}, "1", "2")
	a, b := all[0], all[1]
	eventually(t, "the locator arrives", func() bool { return a.routes.by("fc00:0:2::/48", "2001:db8::2") })
	b.node.Prefixes = append(b.node.Prefixes, a.node.Locator)
	if err := b.SetNode(b.node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other claims ours", func() bool { return len(a.routes.of("fc00:0:1::/48")) == 1 })
	if r := a.routes.of("fc00:0:1::/48")[0]; r.Best {
		t.Errorf("route %+v", r)
	}
	b.node.IPv4, b.node.IPv6 = []netip.Addr{b.node.Address, b.node.IPv4[0]}, []netip.Addr{b.node.Address, b.node.IPv6[0]}
	if err := b.SetNode(b.node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one that need not be routed is not advertised", func() bool { return a.routes.of("fc00:0:2::/48") == nil })
}
