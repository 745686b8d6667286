package bgp

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// star starts a route reflector, which is a node too, and its clients.
func star(t *testing.T, network, reflector string, clients ...string) (rr *member, all []*member) {
	t.Helper()
	var c Config
	for _, name := range clients {
		c.Peers = append(c.Peers, Peer{Address: addr("127.94." + network + "." + name), Passive: true, Client: true})
	}
	rr = join(t, network, reflector, c)
	for _, name := range clients {
		all = append(all, join(t, network, name, Config{Peers: []Peer{{Address: addr("127.94." + network + "." + reflector), RouteReflector: true}}}))
	}
	for _, m := range append(all, rr) {
		established(t, m.Speaker)
	}
	return rr, all
}

// By a route reflector each client receives the others' prefixes, with their next
// hops and router IDs, and of the path to them, which names it.
func TestRouteReflector(t *testing.T) {
	t.Parallel()
	rr, clients := star(t, "8", "9", "1", "2", "3")
	all := append(slices.Clone(clients), rr)
	for _, m := range all {
		for _, other := range all {
			if m == other {
				continue
			}
			eventually(t, m.node.Name+" receives the prefixes of "+other.node.Name, func() bool {
				return m.routes.by(other.node.Prefixes[0].String(), other.node.Address.String())
			})
			eventually(t, m.node.Name+" receives the path to "+other.node.Name, func() bool { return m.pathsTo(other.node) })
		}
	}
	a, b := clients[0], clients[1]
	if r := a.routes.of("10.244.2.0/24")[0]; r.Node != addr("10.0.0.2") || r.Peer != addr("127.94.8.9") {
		t.Errorf("route %+v", r)
	}
	if path := a.pathTo(b.node, overlay.ColorIPv6); path.Node != addr("10.0.0.2") || path.BindingSID != b.node.BSID6 {
		t.Errorf("path %+v", path)
	}
	b.Stop()
	eventually(t, "the end arrives", func() bool {
		return a.routes.of("10.244.2.0/24") == nil && a.pathTo(b.node, overlay.ColorIPv6) == nil
	})
}

// A route reflector keeps what comes with NO_ADVERTISE to itself, and passes on
// what names headends.
func TestRouteReflectorAndNoAdvertise(t *testing.T) {
	rr, clients := star(t, "9", "9", "1", "2")
	from, to := clients[0], clients[1]
	kept, passed := gold(), gold()
	kept.Color, passed.Color = 201, 202
	for _, v := range []struct {
		path srpolicy.Advertised
		to   []netip.Addr
	}{{kept, nil}, {passed, []netip.Addr{addr("10.0.0.2")}}} {
		if err := from.Advertise(v.path, v.to); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one is passed on", func() bool { return to.observed.has(202) })
	eventually(t, "the other reaches the reflector", func() bool { return rr.observed.has(201) })
	if to.observed.has(201) || rr.observed.has(202) {
		t.Errorf("the client received %q, the reflector %q", to.observed.events, rr.observed.events)
	}
}

// Few headends are named one by one, many all at once.
func TestManyHeadends(t *testing.T) {
	var headends []netip.Addr
	for i := range 600 {
		headends = append(headends, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	for _, n := range []int{0, 1, 2, namedMost + 1, namedMost + 2, 600} {
		a := announcer{routerID: addr("10.0.0.0"), reflected: true} // the first of them
		adverts, err := a.adverts(nodeOf("1"), nil, headends[:n])
		if err != nil {
			t.Fatal(err)
		}
		policies := 0
		for key, v := range adverts {
			if v.path.Family != familyOf(addr("::1")) {
				continue
			}
			policies++
			if n := len(key) + len(v.octets) + 100; n > 4096 {
				t.Errorf("an update of %d octets", n)
			}
			for i, id := range headends {
				one, err := isFor(v.path.Attrs, id)
				if err != nil {
					t.Fatal(err)
				}
				member, err := isFor(v.path.Attrs, (&Config{RouterID: id, Cluster: &Cluster{}}).names()...)
				if err != nil {
					t.Fatal(err)
				}
				if few := n <= namedMost+1; one != (few && 0 < i && i < n) || member != (one || !few) {
					t.Errorf("%d headends: %s is named %v, as a member of the cluster %v", n, id, one, member)
				}
			}
		}
		if want := min(2, 2*max(0, n-1)); policies != want || len(adverts) != want+2 {
			t.Errorf("%d headends: %d policies of %d adverts, want %d and 2 prefixes", n, policies, len(adverts), want)
		}
	}
}
