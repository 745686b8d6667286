package nat_test

import (
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/nat"
)

// Each UE has ports of its own, and whoever has a port is found by it.
func TestBlocks(t *testing.T) {
	pool := netip.MustParsePrefix("10.45.0.0/22")
	n := nat.NAT{Addresses: netip.MustParsePrefix("203.0.113.16/28")}.WithDefaults()
	if n.UEsPerAddress() != 64 || n.Room() != 1024 || n.Smallest(pool) != 28 {
		t.Fatalf("%d UEs of an address, room for %d, /%d is the smallest", n.UEsPerAddress(), n.Room(), n.Smallest(pool))
	}
	type port struct {
		at     netip.Addr
		number uint16
	}
	has := map[port]netip.Addr{}
	for ue := pool.Addr(); pool.Contains(ue); ue = ue.Next() {
		b, ok := n.BlockOf(pool, ue)
		if !ok || !n.Addresses.Contains(b.Address) || b.First < nat.FirstPort || uint32(b.Last-b.First)+1 != n.PortsPerUE {
			t.Fatalf("%s has %v", ue, b)
		}
		for _, p := range []uint16{b.First, b.Last} {
			if other, taken := has[port{b.Address, p}]; taken {
				t.Fatalf("%s and %s have port %d of %s", ue, other, p, b.Address)
			}
			has[port{b.Address, p}] = ue
			if got, ok := n.UEOf(pool, b.Address, p); !ok || got != ue {
				t.Errorf("port %d of %s is of %s, want %s", p, b.Address, got, ue)
			}
		}
	}
	if b, _ := n.BlockOf(pool, netip.MustParseAddr("10.45.0.65")); b.Address != netip.MustParseAddr("203.0.113.17") || b.First != 2032 || b.Last != 3039 {
		t.Errorf("10.45.0.65 has %v, want 203.0.113.17, 2032 to 3039", b)
	}
}

func TestNobody(t *testing.T) {
	pool := netip.MustParsePrefix("10.45.0.0/26")
	n := nat.NAT{Addresses: netip.MustParsePrefix("203.0.113.0/30"), PortsPerUE: 4032}.WithDefaults()
	for _, c := range []struct {
		address string
		port    uint16
	}{{"203.0.113.4", 2000}, {"203.0.113.0", 1023}, {"198.51.100.1", 2000}} {
		if ue, ok := n.UEOf(pool, netip.MustParseAddr(c.address), c.port); ok {
			t.Errorf("%s:%d is of %s", c.address, c.port, ue)
		}
	}
	if b, ok := n.BlockOf(pool, netip.MustParseAddr("10.46.0.1")); ok {
		t.Errorf("a UE of another pool has %v", b)
	}
}
