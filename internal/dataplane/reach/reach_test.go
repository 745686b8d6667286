package reach

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
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
	trie := lpm.OpenTrie(lpm.TrieTables{
		Roots: table.NewArray[abi.TrieRoot](uint32(abi.TrieLeafTRIE_ROOTS)), Blocks: table.NewArray[abi.TrieBlock](64),
	}, &table.Grace{})
	table := New(table.NewHash[abi.Lpm6Key, uint32]("ue_reach", 16), trie, func() { writes++ })
	writes = 0
	gnb, other := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("2001:db8::1")
	have := func(step string, wantWrites int, want map[string]abi.Reach) {
		t.Helper()
		entries := map[lpm.At]uint32{}
		for p, r := range want {
			entries[lpm.At{Prefix: netip.MustParsePrefix(p)}] = uint32(r)
		}
		if got := maps.Collect(table.by.All()); !maps.Equal(got, entries) {
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
