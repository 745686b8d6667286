package netdev

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestForwardingOff(t *testing.T) {
	proc := t.TempDir()
	set := func(path, value string) {
		t.Helper()
		file := filepath.Join(proc, "sys/net", path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if off := ForwardingOff(proc); len(off) != 0 { // nobody knows
		t.Errorf("without procfs: %v", off)
	}
	set("ipv4/ip_forward", "0")
	set("ipv6/conf/all/forwarding", "1")
	if off := ForwardingOff(proc); !slices.Equal(off, []string{"net.ipv4.ip_forward"}) {
		t.Errorf("off: %v", off)
	}
	set("ipv4/ip_forward", "1")
	if off := ForwardingOff(proc); len(off) != 0 {
		t.Errorf("off: %v", off)
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
