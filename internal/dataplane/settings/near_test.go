package settings

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// TestNearV4: a prefix is near by its first octet, a short one by all that it has.
func TestNearV4(t *testing.T) {
	for _, c := range []struct {
		prefix string
		want   [4]uint64
	}{
		{"10.1.2.3/32", [4]uint64{1 << 10}},
		{"10.0.0.0/8", [4]uint64{1 << 10}},
		{"127.255.0.0/16", [4]uint64{1: 1 << 63}},
		{"64.0.0.0/6", [4]uint64{1: 0xf}},
		{"191.2.3.4/5", [4]uint64{2: 0xff << 56}},
		{"0.0.0.0/1", [4]uint64{^uint64(0), ^uint64(0)}},
		{"0.0.0.0/0", [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}},
	} {
		b := Open(table.NewArray[abi.Settings](1), nil, Limits{})
		before := b.Get()
		b.NearV4(netip.MustParsePrefix(c.prefix))
		want := before
		want.Near4 = c.want
		if got := b.Get(); got != want {
			t.Errorf("%s: %x, want %x", c.prefix, got.Near4, c.want)
		}
	}
	b := Open(table.NewArray[abi.Settings](1), nil, Limits{})
	b.NearV4(netip.MustParsePrefix("10.0.0.0/8"))
	b.NearV4(netip.MustParsePrefix("192.0.2.0/24"))
	if got, want := b.Get().Near4, [4]uint64{0: 1 << 10, 3: 1}; got != want {
		t.Errorf("two prefixes: %x, want %x", got, want)
	}
	b.OnlyNearV4(slices.Values([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}), slices.Values([]netip.Prefix{netip.MustParsePrefix("11.0.0.0/8")}))
	if got, want := b.Get().Near4, [4]uint64{0: 1 << 11, 3: 1}; got != want {
		t.Errorf("others only: %x, want %x", got, want)
	}
}
