package bgp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/overlay"
)

// isStale says whether all routes of a prefix are of a peer that has been away for longer than
// its restart time.
func (m *member) isStale(p string) bool {
	m.reporting.Lock()
	defer m.reporting.Unlock()
	routes := m.reach.routes[overlay.Destination{Prefix: prefix(p)}]
	for _, c := range routes {
		if !c.isStale {
			return false
		}
	}
	return len(routes) > 0
}

// away is a route reflector that goes and comes back.
type away struct {
	a, b   *member
	kill   func()
	start  func()
	prefix string // of b
}

// test kills the reflector of a and b: a keeps what b advertised while the reflector is away,
// and loses it once the reflector is back without it.
func (w away) test(t *testing.T) {
	t.Helper()
	known := func() bool { return w.a.routes.by(w.prefix, w.b.node.Address.String()) }
	eventually(t, "a knows b", known)
	kept := watch(t, known)
	w.kill()
	eventually(t, "the reflector's routes are stale", func() bool { return w.a.isStale(w.prefix) })
	if n := kept(); n > 0 || len(w.a.routes.gone) > 0 {
		t.Errorf("a was without b %d times; it lost %v", n, w.a.routes.gone)
	}
	w.b.Stop()
	w.start()
	eventually(t, "the reflector is back without b", func() bool { return w.a.routes.of(w.prefix) == nil })
}

// longLived is what a client of these reflectors has.
func longLived() Config {
	return Config{Restart: 3 * time.Second, Stale: time.Hour, Cluster: &Cluster{}}
}

// frrReflector starts FRR as the reflector of two nodes.
func frrReflector(t *testing.T, more string) (w away) {
	t.Helper()
	f := router(t)
	f.start("zebra", "")
	second := addr(strings.TrimSuffix(f.ours.String(), "1") + "3")
	f.address(t, second)
	text := strings.NewReplacer("restart-time 60\n", "restart-time 3\n"+more).Replace(reflecting)
	var config strings.Builder
	for line := range strings.Lines(text) {
		config.WriteString(strings.ReplaceAll(line, "NODE", f.ours.String()))
		if strings.Contains(line, "NODE") {
			config.WriteString(strings.ReplaceAll(line, "NODE", second.String()))
		}
	}
	bgpd := f.start("bgpd", config.String())
	join := func(i string, at netip.Addr) *member {
		return f.member(t, i, at, longLived(), Peer{ASN: 65001, RouteReflector: true})
	}
	w = away{a: join("1", f.ours), b: join("3", second), prefix: "10.244.3.0/24"}
	w.kill, w.start = func() { f.kill(bgpd) }, func() { f.start("bgpd", config.String()) }
	return w
}

// FRR's long-lived graceful restart: its clients keep each other's routes.
func TestLongLivedWithFRR(t *testing.T) {
	t.Parallel()
	frrReflector(t, " bgp long-lived-graceful-restart stale-time 3600\n").test(t)
}

// The peer's stale time ends them.
func TestLongLivedEnds(t *testing.T) {
	t.Parallel()
	w := frrReflector(t, " bgp long-lived-graceful-restart stale-time 3\n")
	eventually(t, "a knows b", func() bool { return w.a.routes.by(w.prefix, w.b.node.Address.String()) })
	w.kill()
	eventually(t, "the reflector's routes are stale", func() bool { return w.a.isStale(w.prefix) })
	eventually(t, "they are gone", func() bool { return w.a.routes.count() == 0 })
}

// A reflector that does not offer it is away for its restart time at most.
func TestLongLivedIsNotOffered(t *testing.T) {
	t.Parallel()
	w := frrReflector(t, "")
	eventually(t, "a knows b", func() bool { return w.a.routes.by(w.prefix, w.b.node.Address.String()) })
	w.kill()
	eventually(t, "the reflector's routes are gone", func() bool { return w.a.routes.count() == 0 })
}

// GoBGP's long-lived graceful restart: of prefixes and of the path to the node.
func TestLongLivedWithGoBGPd(t *testing.T) {
	t.Parallel()
	const long = "\n  [neighbors.graceful-restart.config]\n    enabled = true\n    restart-time = 3\n    long-lived-enabled = true\n"
	var neighbors []string
	for _, i := range []int{1, 3} {
		families := speaking(true, everything...)
		families = strings.ReplaceAll(families, "    [neighbors.afi-safis.mp-graceful-restart.config]",
			"    [neighbors.afi-safis.long-lived-graceful-restart.config]\n      enabled = true\n      restart-time = 3600\n    [neighbors.afi-safis.mp-graceful-restart.config]")
		neighbors = append(neighbors, fmt.Sprintf(neighbor, i, ""), client, long, families)
	}
	g := goBGPd(t, 65001, neighbors...)
	second := addr(strings.TrimSuffix(g.ours.String(), "1") + "3")
	g.address(t, second)
	join := func(i string, at netip.Addr) *member {
		return g.member(t, i, at, longLived(), Peer{ASN: 65001, RouteReflector: true})
	}
	w := away{a: join("1", g.ours), b: join("3", second), kill: g.kill, start: g.start, prefix: "10.244.3.0/24"}
	there := w.b.node
	eventually(t, "a knows the path to b", func() bool { return w.a.pathsTo(there) })
	w.test(t)
	eventually(t, "the path to b is gone, too", func() bool { return w.a.pathTo(there, overlay.ColorIPv4) == nil })
}

// Stale routes are used only where nothing else is there.
func TestFreshBeforeStale(t *testing.T) {
	fresh, stale := candidate{localPref: 1}, candidate{isStale: true, localPref: 1000}
	if n, why := decide(&fresh, &stale); n >= 0 || why != "fresh before stale" {
		t.Errorf("%d: %s", n, why)
	}
	if bgp.COMMUNITY_LLGR_STALE != 0xffff0006 { // RFC 9494 section 5
		t.Errorf("the community is %#x", uint32(bgp.COMMUNITY_LLGR_STALE))
	}
}
