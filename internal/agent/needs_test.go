package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slice"
)

// The log says what the host lacks: forwarding, and a way to the router of N6 in each table
// and family that sessions use.
func TestHostNeeds(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "sys/net/ipv4"), 0o755); err != nil {
		t.Fatal(err)
	}
	forward := func(v string) {
		if err := os.WriteFile(filepath.Join(proc, "sys/net/ipv4/ip_forward"), []byte(v), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	forward("0\n")
	c := &config.Config{}
	links := &netdev.Snapshot{}
	if got := hostNeeds(c, links, proc); len(got) != 0 {
		t.Errorf("no UPF: %q", got)
	}
	c.UPF = config.UPF{N4: []netip.Addr{addr("10.4.0.1")}, UEPools: []config.UEPool{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8::/48")}}}}
	c.Slices = []slice.Slice{{Name: "a"}, {Name: "b", Table: 100}, {Name: "c", Table: 200, N9: &slice.N9{}}}
	links.Routes = []netdev.Route{{Table: 254, Type: netdev.RouteUnicast, Prefix: netip.MustParsePrefix("0.0.0.0/0")}}
	want := []string{"net.ipv4.ip_forward is 0", "table 100 has no route to a router of N6 for IPv4", "table 100 has no route to a router of N6 for IPv6", "table 254 has no route to a router of N6 for IPv6"}
	got := hostNeeds(c, links, proc)
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
	forward("1\n")
	if got := hostNeeds(c, links, proc); len(got) != 3 {
		t.Errorf("it forwards: %q", got)
	}
}
