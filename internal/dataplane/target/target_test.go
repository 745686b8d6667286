package target

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// TestNearV4: packets hear of this node's and of UEs' IPv4 prefixes, before they are in the table of all
// and where an earlier daemon has put them there; not of others.
func TestNearV4(t *testing.T) {
	tables := Tables{
		Four: table.NewHash[abi.Lpm4Key, abi.Target]("target_by_dst4", 16), Six: table.NewHash[abi.Lpm6Key, abi.Target]("target_by_dst6", 16),
		ByPort: table.NewHash[abi.PortKey, abi.Target]("target_by_port", 16),
	}
	trie := lpm.TrieTables{Roots: table.NewArray[abi.TrieRoot](uint32(abi.TrieLeafTRIE_ROOTS)), Blocks: table.NewArray[abi.TrieBlock](64)}
	var near []netip.Prefix
	open := func() *Table {
		return New(tables, lpm.OpenTrie(trie, &table.Grace{}), &port.Table{}, Hooks{Changed: func() {}, Steers: func() {}, NearV4: func(p netip.Prefix) {
			if _, had := tables.Four.Lookup(abi.LPM4(0, p)); had && len(near) < 2 { // a former daemon's come behind
				t.Errorf("%s was in the table before", p)
			}
			near = append(near, p)
		}})
	}
	first := open()
	for _, c := range []struct {
		table  uint32
		prefix string
		kind   abi.TargetKind
	}{
		{0, "192.0.2.1/32", abi.TargetKindTARGET_PASS}, {0, "10.77.0.0/16", abi.TargetKindTARGET_PDR},
		{0, "10.244.0.5/32", abi.TargetKindTARGET_POD}, {0, "11.0.0.0/8", abi.TargetKindTARGET_POLICY},
		{abi.MemberTable, "12.0.0.1/32", abi.TargetKindTARGET_PASS}, {0, "2001:db8::1/128", abi.TargetKindTARGET_PASS},
	} {
		if err := first.PutFrom(c.table, netip.MustParsePrefix(c.prefix), abi.Target{Kind: uint32(c.kind)}); err != nil {
			t.Fatal(err)
		}
	}
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("10.77.0.0/16")}
	if !slices.Equal(near, want) {
		t.Errorf("%v, want %v", near, want)
	}
	open()
	if len(near) != 4 || !slices.Contains(near[2:], want[0]) || !slices.Contains(near[2:], want[1]) {
		t.Errorf("the next daemon: %v, want %v again", near, want)
	}
}
