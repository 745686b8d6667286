package reach

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestPeers: a peer is closed from its first user to its last, unless the configuration
// opens it, and users of a peer that is known change nothing.
func TestPeers(t *testing.T) {
	writes := 0
	table := New(table.NewHash[abi.Lpm6Key, uint32]("ue_reach", 16), func() { writes++ }, func(netip.Prefix) {})
	gnb, other := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("2001:db8::1")
	have := func(step string, wantWrites int, want map[string]abi.Reach) {
		t.Helper()
		keys := map[abi.Lpm6Key]uint32{}
		for p, r := range want {
			keys[keyOf(netip.MustParsePrefix(p))] = uint32(r)
		}
		if got := maps.Collect(table.hash.All()); !maps.Equal(got, keys) {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
		if writes != wantWrites {
			t.Errorf("%s: %d writes, want %d", step, writes, wantWrites)
		}
		writes = 0
	}
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	do(table.Use(gnb), table.Use(gnb), table.Use(other), table.Use(gnb))
	have("used", 2, map[string]abi.Reach{"10.1.0.1/32": abi.ReachREACH_CLOSED, "2001:db8::1/128": abi.ReachREACH_CLOSED})
	do(table.Unuse(gnb), table.Unuse(gnb), table.Unuse(other))
	have("used once", 1, map[string]abi.Reach{"10.1.0.1/32": abi.ReachREACH_CLOSED})
	do(table.Set(prefixes("10.1.0.0/28"), prefixes("10.0.0.0/8")))
	have("opened", 3, map[string]abi.Reach{"10.0.0.0/8": abi.ReachREACH_OPEN, "10.1.0.0/28": abi.ReachREACH_CLOSED})
	do(table.Set(prefixes("10.1.0.1/32"), nil))
	have("closed", 3, map[string]abi.Reach{"10.1.0.1/32": abi.ReachREACH_CLOSED})
	do(table.Unuse(gnb))
	have("no peer, but closed", 0, map[string]abi.Reach{"10.1.0.1/32": abi.ReachREACH_CLOSED})
	do(table.Set(nil, nil))
	have("empty", 1, nil)
}

// TestNear: packets hear of each IPv4 prefix before it is in the table, those of an earlier daemon
// included.
func TestNear(t *testing.T) {
	var near []string
	hash := table.NewHash[abi.Lpm6Key, uint32]("ue_reach", 16)
	tell := func(p netip.Prefix) {
		if len(near) > 0 && hash.Get(keyOf(p)) != 0 { // the first is
			t.Errorf("%s was in the table before", p)
		}
		near = append(near, p.String())
	}
	for _, p := range prefixes("198.51.100.0/24", "2001:db8::/32") {
		if err := hash.Put(keyOf(p), uint32(abi.ReachREACH_CLOSED)); err != nil {
			t.Fatal(err)
		}
	}
	table := New(hash, func() {}, tell)
	if err := table.Set(prefixes("10.1.0.0/16", "2001:db8:1::/48"), nil); err != nil {
		t.Fatal(err)
	}
	if err := table.Use(netip.MustParseAddr("192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"198.51.100.0/24", "10.1.0.0/16", "192.0.2.1/32"}; !slices.Equal(near, want) {
		t.Errorf("%v, want %v", near, want)
	}
}

// TestFamilies: what is said of one family says nothing of the other.
func TestFamilies(t *testing.T) {
	if four, six := keyOf(netip.MustParsePrefix("0.0.0.0/0")), keyOf(netip.MustParsePrefix("::/0")); four == six {
		t.Errorf("%v is the key of both", four)
	}
}
