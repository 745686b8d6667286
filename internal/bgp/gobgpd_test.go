package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// gobgpd is Debian's: GoBGP 3, older than the one that we embed.
type gobgpd struct {
	wire
	t      *testing.T
	config string
	daemon *exec.Cmd
}

// goBGPd makes the namespace and starts the daemon in AS asn.
func goBGPd(t *testing.T, asn int, neighbors ...string) *gobgpd {
	t.Helper()
	if _, err := exec.LookPath("gobgpd"); err != nil {
		t.Skip("needs GoBGP's daemon: install the package gobgpd")
	}
	g := &gobgpd{wire: newWire(t), t: t, config: filepath.Join(t.TempDir(), "gobgpd.toml")}
	text := fmt.Sprintf("[global.config]\nas = %d\nrouter-id = \"10.0.0.254\"\n", asn) + strings.Join(neighbors, "")
	if err := os.WriteFile(g.config, []byte(strings.ReplaceAll(text, "NODE", strings.TrimSuffix(g.ours.String(), "1"))), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	return g
}

func (g *gobgpd) start() {
	g.t.Helper()
	g.daemon = g.ns.Command("gobgpd", "-f", g.config, "--api-hosts", "127.0.0.1:50051", "--pprof-disable")
	if err := g.daemon.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(g.kill)
	eventually(g.t, "gobgpd answers", func() bool { _, err := g.gobgp("global"); return err == nil })
}

func (g *gobgpd) kill() {
	if g.daemon.ProcessState == nil {
		_ = g.daemon.Process.Kill()
		_ = g.daemon.Wait()
	}
}

// gobgp runs the daemon's own client.
func (g *gobgpd) gobgp(args ...string) (string, error) {
	out, err := g.ns.Command("gobgp", args...).CombinedOutput()
	return string(out), err
}

func (g *gobgpd) rib(change, family string, route ...string) {
	g.t.Helper()
	if out, err := g.gobgp(slices.Concat([]string{"global", "rib", change, "-a", family}, route)...); err != nil {
		g.t.Fatalf("%s %q: %v: %s", change, route, err, out)
	}
}

// has says that the daemon knows a prefix by a next hop.
func (g *gobgpd) has(family, prefix, nextHop string) bool {
	out, err := g.gobgp("global", "rib", "-a", family, prefix)
	return err == nil && strings.Contains(out, nextHop)
}

// Parts of a neighbour's configuration. NODE is the prefix of our addresses.
const (
	neighbor = `
[[neighbors]]
  [neighbors.config]
    neighbor-address = "NODE%d"
    peer-as = 65001
    auth-password = "%s"
  [neighbors.transport.config]
    passive-mode = true
`
	client = `
  [neighbors.route-reflector.config]
    route-reflector-client = true
    route-reflector-cluster-id = "10.0.0.254"
`
	oneHop = `
  [neighbors.ttl-security.config]
    enabled = true
    ttl-min = 255
`
	graceful = `
  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 60
`
)

// speaking lists families.
func speaking(graceful bool, families ...string) (out string) {
	for _, f := range families {
		out += fmt.Sprintf("\n  [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n      afi-safi-name = %q\n"+
			"    [neighbors.afi-safis.mp-graceful-restart.config]\n      enabled = %v\n", f, graceful)
	}
	return out
}

var everything = []string{"ipv4-unicast", "ipv6-unicast", "l3vpn-ipv4-unicast", "l3vpn-ipv6-unicast", "ipv4-srpolicy", "ipv6-srpolicy"}

// An external GoBGP and a node advertise each other prefixes of both families by IPv6
// next hops, through TCP MD5 and TTL security; a withdrawal and the session's end are
// received, and so is what comes back.
func TestUnicastWithGoBGPd(t *testing.T) {
	t.Parallel()
	g := goBGPd(t, 65000, fmt.Sprintf(neighbor, 1, "secret"), oneHop, speaking(false, "ipv4-unicast", "ipv6-unicast"))
	send := func() {
		g.rib("add", "ipv4", "192.0.2.0/24", "nexthop", g.peer.String())
		g.rib("add", "ipv6", "2001:db8:99::/48", "nexthop", g.peer.String())
	}
	send()
	m := g.member(t, "1", g.ours, Config{Cluster: &Cluster{Locator: true}}, Peer{Password: "secret", Hops: 1})
	known := func() bool {
		return m.routes.by("192.0.2.0/24", g.peer.String()) && m.routes.by("2001:db8:99::/48", g.peer.String())
	}
	eventually(t, "its prefixes arrive", known)
	for _, prefix := range []netip.Prefix{m.node.Prefixes[0], m.node.Prefixes[1], m.node.Locator} {
		family := "ipv6"
		if prefix.Addr().Is4() {
			family = "ipv4"
		}
		eventually(t, "it knows "+prefix.String(), func() bool { return g.has(family, prefix.String(), g.ours.String()) })
	}
	g.rib("del", "ipv4", "192.0.2.0/24")
	eventually(t, "a withdrawal arrives", func() bool { return m.routes.of("192.0.2.0/24") == nil })
	g.kill()
	eventually(t, "the end arrives", func() bool { return m.routes.count() == 0 })
	g.start()
	send()
	eventually(t, "it is back", known)
}

// While GoBGP restarts what it advertised stays.
func TestGracefulRestartWithGoBGPd(t *testing.T) {
	t.Parallel()
	g := goBGPd(t, 65000, fmt.Sprintf(neighbor, 1, ""), graceful, speaking(true, "ipv4-unicast", "ipv6-unicast"))
	send := func() { g.rib("add", "ipv6", "2001:db8:99::/48", "nexthop", g.peer.String()) }
	send()
	m := g.member(t, "1", g.ours, Config{Restart: 60 * time.Second}, Peer{})
	known := func() bool { return m.routes.by("2001:db8:99::/48", g.peer.String()) }
	eventually(t, "its prefix arrives", known)
	kept := watch(t, known)
	g.kill()
	eventually(t, "the session is down", func() bool { return !isEstablished(m.Speaker) })
	g.start()
	send()
	established(t, m.Speaker)
	eventually(t, "it has sent all again", func() bool {
		m.observed.mu.Lock()
		defer m.observed.mu.Unlock()
		return len(m.observed.completed) > 1
	})
	if n := kept(); n > 0 {
		t.Errorf("its prefix was gone %d times", n)
	}
}

// A GoBGP that reflects: its clients receive each other's prefixes and paths, of the
// VPN, and of an injector's paths with sub-TLV 20 and weights; of the end, too.
func TestReflectedByGoBGPd(t *testing.T) {
	t.Parallel()
	var neighbors []string
	for _, i := range []int{1, 3, 8, 9} {
		neighbors = append(neighbors, fmt.Sprintf(neighbor, i, ""), client, speaking(false, everything...))
	}
	g := goBGPd(t, 65001, neighbors...)
	at := func(i string) netip.Addr { return addr(strings.TrimSuffix(g.ours.String(), "1") + i) }
	for _, i := range []string{"3", "8", "9"} {
		g.address(t, at(i))
	}
	join := func(i string, tenants ...VPN) *member {
		return g.member(t, i, at(i), Config{Cluster: &Cluster{
			VPN: &VPN{Distinguisher: "65001:" + i, Import: []string{"65001:100", "65000:100"}, Export: []string{"65001:100"}}, Tenants: tenants,
		}}, Peer{ASN: 65001, RouteReflector: true})
	}
	a := join("1", VPN{Tenant: 7, Distinguisher: "10.0.0.1:7", Import: []string{"65001:7", "65001:8"}, Export: []string{"65001:7"}},
		VPN{Tenant: 9, Distinguisher: "10.0.0.1:9", Import: []string{"65001:8"}, Export: []string{"65001:9"}})
	b := join("3", VPN{Tenant: 7, Distinguisher: "10.0.0.3:7", Import: []string{"65001:7"}, Export: []string{"65001:7"}},
		VPN{Tenant: 8, Distinguisher: "10.0.0.3:8", Import: []string{"65001:8"}, Export: []string{"65001:8"}})
	eventually(t, "a knows b", func() bool { return a.routes.by("10.244.3.0/24", at("3").String()) && a.pathsTo(b.node) })
	eventually(t, "a knows b's prefix in the VPN", func() bool {
		return slices.ContainsFunc(a.routes.of("10.244.3.0/24"), func(r Route) bool {
			return r.Distinguisher == "65001:3" && slices.Equal(r.Segments, b.node.IPv4)
		})
	})
	// Tenant 7 is the same on both, b's tenant 8 is a's 9 and 7: an extranet.
	if err := b.SetNode(b.node, partsOf("3", 7, 8)...); err != nil {
		t.Fatal(err)
	}
	for destination, sid := range map[string]string{"10.9.3.0/24@tenant/7": "fc00:0:3:107::", "10.9.3.0/24@tenant/9": "fc00:0:3:108::", "fd09:3::/64@tenant/9": "fc00:0:3:108::"} {
		eventually(t, "a knows "+destination+" by "+sid, func() bool {
			routes := a.routes.of(destination)
			return len(routes) > 0 && routes[0].Best && routes[0].Tenant != 0 && slices.Equal(routes[0].Segments, []netip.Addr{addr(sid)})
		})
	}
	if routes := a.routes.of("10.9.3.0/24"); routes != nil {
		t.Errorf("a tenant's prefix is the cluster's, too: %+v", routes)
	}
	if routes := a.routes.of("10.9.3.0/24@tenant/7"); len(routes) != 2 || routes[1].Distinguisher != "10.0.0.3:8" {
		t.Errorf("routes of two tenants of b in tenant 7 of a: %+v", routes)
	}
	if err := b.SetNode(b.node, partsOf("3", 8)...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b's tenant 7 is withdrawn", func() bool {
		routes := a.routes.of("10.9.3.0/24@tenant/7")
		return len(routes) == 1 && routes[0].Distinguisher == "10.0.0.3:8"
	})
	if r := a.routes.of("10.244.3.0/24")[0]; r.Node != addr("10.0.0.3") || r.Peer != g.peer {
		t.Errorf("route %+v", r)
	}

	injector := standard(t, Config{ASN: 65001, RouterID: addr("10.0.0.9"), Peers: []Peer{{Address: g.peer, ASN: 65001, Local: at("9")}}}, nil)
	for _, preference := range []uint32{200, 300} {
		path := gold()
		path.Preference = preference
		if err := injector.Advertise(path, []netip.Addr{addr("10.0.0.1")}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an injected path arrives", func() bool { p, _ := a.observed.path(100); return p.Preference == preference })
		p, _ := a.observed.path(100)
		if p.BindingSID != path.BindingSID || !slices.EqualFunc(p.SegmentLists, path.SegmentLists, sameList) || p.Node != addr("10.0.0.9") {
			t.Errorf("received %+v", p)
		}
	}
	if b.observed.has(100) {
		t.Error("what names another headend was taken")
	}
	if err := injector.Withdraw(gold()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the withdrawal arrives", func() bool { return !a.observed.has(100) })

	// A route by hand, whose label holds a part of its SID: so do GoBGP's own not.
	tellAt(t, at("8"), netip.AddrPortFrom(g.peer, Port), bgp.RF_IPv6_VPN).update(wellKnown + vpn6 + target + transposed)
	eventually(t, "a transposed SID is put together", func() bool {
		routes := a.routes.of("2001:db8:77::/48")
		return len(routes) == 1 && slices.Equal(routes[0].Segments, []netip.Addr{addr("2001:db8:1:1:1::")})
	})
	b.Stop()
	eventually(t, "the end arrives", func() bool { return a.routes.of("10.244.3.0/24") == nil && !a.pathsTo(b.node) })
}

func sameList(a, b srpolicy.SegmentList) bool {
	return a.Weight == b.Weight && slices.Equal(a.Segments, b.Segments)
}
