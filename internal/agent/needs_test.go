package agent

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slice"
)

// procWith is a procfs with settings of net: values by path.
func procWith(t *testing.T, values map[string]string) string {
	t.Helper()
	proc := t.TempDir()
	for path, value := range values {
		set(t, proc, path, value)
	}
	return proc
}

func set(t *testing.T, proc, path, value string) {
	t.Helper()
	file := filepath.Join(proc, "sys/net", path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func withPools(prefixes ...string) *config.Config {
	pool := config.UEPool{}
	for _, p := range prefixes {
		pool.Prefixes = append(pool.Prefixes, netip.MustParsePrefix(p))
	}
	return &config.Config{UPF: config.UPF{N4: []netip.Addr{addr("10.4.0.1")}, UEPools: []config.UEPool{pool}}}
}

// begins says whether each line starts as wanted, and there are no others.
func begins(lines []string, want ...string) bool {
	return slices.EqualFunc(lines, want, strings.HasPrefix)
}

// The log says what the host lacks: forwarding, and a way to the router of N6 in each table
// and family that sessions use.
func TestHostNeeds(t *testing.T) {
	proc := procWith(t, map[string]string{"ipv4/ip_forward": "0"})
	c := withPools("10.45.0.0/16", "2001:db8::/48")
	c.Slices = []slice.Slice{{Name: "a"}, {Name: "b", Table: 100}, {Name: "c", Table: 200, N9: &slice.N9{}}}
	links := &netdev.Snapshot{Routes: []netdev.Route{{Table: 254, Type: netdev.RouteUnicast, Prefix: netip.MustParsePrefix("0.0.0.0/0")}}}
	routes := []string{"table 100 has no route to a router of N6 for IPv4", "table 100 has no route to a router of N6 for IPv6", "table 254 has no route to a router of N6 for IPv6"}
	if got := hostNeeds(c, links, proc); !begins(got, slices.Concat([]string{"net.ipv4.ip_forward is 0"}, routes)...) {
		t.Errorf("%q", got)
	}
	set(t, proc, "ipv4/ip_forward", "1")
	if got := hostNeeds(c, links, proc); !begins(got, routes...) {
		t.Errorf("it forwards: %q", got)
	}
}

// Nothing is said of an address family that no session uses.
func TestHostNeedsOfAFamily(t *testing.T) {
	proc := procWith(t, map[string]string{"ipv4/ip_forward": "0", "ipv6/conf/all/forwarding": "0", "ipv4/conf/all/rp_filter": "1"})
	links := &netdev.Snapshot{Links: []netdev.Link{{Name: "n3"}}, Routes: []netdev.Route{
		{Table: 254, Type: netdev.RouteUnicast, Prefix: netip.MustParsePrefix("0.0.0.0/0")},
		{Table: 254, Type: netdev.RouteUnicast, Prefix: netip.MustParsePrefix("::/0")},
	}}
	const four, six, strict = "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "rp_filter of n3"
	for _, c := range []struct {
		pool, gtpu string
		want       []string
	}{
		{"10.45.0.0/16", "10.1.0.254", []string{four, strict}},
		{"10.45.0.0/16", "2001:db8::1", []string{four, six, strict}},
		{"2001:db8:45::/48", "2001:db8::1", []string{six}},
	} {
		config := withPools(c.pool)
		config.GTPU.Addresses = []netip.Addr{addr(c.gtpu)}
		config.Interfaces = n3AndN6()
		if got := hostNeeds(config, links, proc); !begins(got, c.want...) {
			t.Errorf("%s by %s: %q", c.pool, c.gtpu, got)
		}
	}
}

func n3AndN6() []config.Interface {
	return []config.Interface{{Name: "n3", Roles: []config.Role{config.RoleN3}}, {Name: "n6", Roles: []config.Role{config.RoleN6}}}
}

// A strict filter hurts where tunnels come in, on interfaces that are there; the line has the
// setting, the file and the command.
func TestStrictFilterIsSaid(t *testing.T) {
	proc := procWith(t, map[string]string{"ipv4/conf/all/rp_filter": "0", "ipv4/conf/n3/rp_filter": "1", "ipv4/conf/n6/rp_filter": "1", "ipv4/conf/gone/rp_filter": "1"})
	c := withPools("10.45.0.0/16")
	c.Interfaces = append(n3AndN6(), config.Interface{Name: "gone", Roles: []config.Role{config.RoleN9}})
	links := &netdev.Snapshot{Links: []netdev.Link{{Name: "n3"}, {Name: "n6"}}}
	got := filtered(c, links, proc)
	if !begins(got, "rp_filter of n3 is strict") || !strings.Contains(got[0], "sysctl -w net.ipv4.conf.n3.rp_filter=2") || !strings.Contains(got[0], "/etc/sysctl.d") {
		t.Errorf("%q", got)
	}
	set(t, proc, "ipv4/conf/all/rp_filter", "2")
	if got := filtered(c, links, proc); len(got) != 0 {
		t.Errorf("loose: %q", got)
	}
}

// Each matter is said once, also one that comes up later, and again if it was fixed.
func TestNeedsAreSaidOnce(t *testing.T) {
	var log bytes.Buffer
	proc := procWith(t, map[string]string{"ipv4/ip_forward": "1"})
	goal := &plan.Goal{Desired: desired.State{Process: desired.Process{UPF: withPools("10.45.0.0/16").UPF}}}
	there := &netdev.Snapshot{Routes: []netdev.Route{{Table: 254, Type: netdev.RouteUnicast, Prefix: netip.MustParsePrefix("0.0.0.0/0")}}}
	c := &core{log: slog.New(slog.NewTextHandler(&log, nil)), goal: &plan.Goal{}, links: &netdev.Snapshot{}}
	n := needs{core: c, proc: proc}
	look := func(what string, goal *plan.Goal, links *netdev.Snapshot, want int) {
		t.Helper()
		c.goal, c.links = goal, links
		log.Reset()
		n.look()
		if got := strings.Count(log.String(), "event=host.setting"); got != want {
			t.Errorf("%s: %d lines, want %d: %s", what, got, want, log.String())
		}
	}
	look("no sessions", &plan.Goal{}, &netdev.Snapshot{}, 0)
	look("all is well", goal, there, 0)
	look("the route is lost", goal, &netdev.Snapshot{}, 1)
	look("and still is", goal, &netdev.Snapshot{}, 0)
	set(t, proc, "ipv4/ip_forward", "0")
	look("and nothing is forwarded", goal, &netdev.Snapshot{}, 1)
	look("the route is there again", goal, there, 0)
	look("and lost again", goal, &netdev.Snapshot{}, 1)
}

// Pins that somebody has removed are logged once, and shown while they are gone.
func TestMissingPinsAreSaid(t *testing.T) {
	var log strings.Builder
	var gone []string
	n, dp := needs{}, &dataPath{MissingPins: func() []string { return gone }}
	look := func() { n.sayPins(dp.missingPins(), slog.New(slog.NewTextHandler(&log, nil))) }
	said := func() int { return strings.Count(log.String(), "event=datapath.pins_missing") }
	look()
	if said() != 0 || dp.missingPins() != "" {
		t.Errorf("all are there: %s", log.String())
	}
	gone = []string{"/sys/fs/bpf/culvert/maps/pdr", "/sys/fs/bpf/culvert/maps/sid"}
	look()
	gone = gone[:1]
	look()
	if said() != 1 || !strings.Contains(log.String(), "2 pins are gone, such as /sys/fs/bpf/culvert/maps/pdr") {
		t.Errorf("two are gone, then one: %s", log.String())
	}
	gone = nil
	look()
	gone = []string{"/sys/fs/bpf/culvert/maps/pdr"}
	look()
	if said() != 2 {
		t.Errorf("gone again: %s", log.String())
	}
}
