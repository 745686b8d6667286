package netdev

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// A dot in an interface's name is a slash in a sysctl's, and the larger of two values counts.
func TestFiltersStrictly(t *testing.T) {
	proc := t.TempDir()
	set := func(name, value string) {
		t.Helper()
		file := filepath.Join(proc, "sys/net/ipv4/conf", name, "rp_filter")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if FiltersStrictly(proc, "eth0.100") { // nobody knows
		t.Error("without procfs")
	}
	for _, c := range []struct {
		all, own string
		strict   bool
	}{{"0", "0", false}, {"0", "1", true}, {"1", "0", true}, {"1", "1", true}, {"2", "1", false}, {"1", "2", false}} {
		set("all", c.all)
		set("eth0.100", c.own)
		if got := FiltersStrictly(proc, "eth0.100"); got != c.strict {
			t.Errorf("all %s, own %s: %v", c.all, c.own, got)
		}
	}
}

func TestLeadsAway(t *testing.T) {
	s := &Snapshot{Routes: []Route{
		{Table: 254, Type: RouteUnicast, Prefix: netip.MustParsePrefix("10.6.0.0/24"), Hops: []Hop{{Ifindex: 2}}},
		{Table: 254, Type: RouteBlackhole, Prefix: netip.MustParsePrefix("::/0")},
		{Table: 100, Type: RouteUnicast, Prefix: netip.MustParsePrefix("192.0.2.0/24"), Hops: []Hop{{Ifindex: 2, Gateway: netip.MustParseAddr("10.6.0.2")}}},
	}}
	if s.LeadsAway(254, true) || s.LeadsAway(254, false) || !s.LeadsAway(100, true) || s.LeadsAway(100, false) {
		t.Error("wrong")
	}
}
