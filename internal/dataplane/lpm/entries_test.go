package lpm

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// TestEntries: each way to keep entries gives back where they are, and one family says nothing of the
// other.
func TestEntries(t *testing.T) {
	four, six := At{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, At{Prefix: netip.MustParsePrefix("::/0")}
	for name, e := range map[string]Entries[uint32]{
		"families": Families[uint32]{table.NewHash[abi.Lpm4Key, uint32]("four", 16), table.NewHash[abi.Lpm6Key, uint32]("six", 16)},
		"mixed":    Mixed[uint32]{table.NewHash[abi.Lpm6Key, uint32]("mixed", 16)},
	} {
		all := map[At]uint32{four: 1, six: 2, {Prefix: netip.MustParsePrefix("10.1.0.0/16")}: 3, {Prefix: netip.MustParsePrefix("2001:db8::1/128")}: 4}
		for at, v := range all {
			must(t, e.put(at, v))
		}
		if got := maps.Collect(e.All()); !maps.Equal(got, all) {
			t.Errorf("%s: %v, want %v", name, got, all)
		}
		must(t, e.delete(four))
		if _, there := e.Lookup(four); there {
			t.Errorf("%s: %v is still there", name, four)
		}
		if v, there := e.Lookup(six); !there || v != 2 {
			t.Errorf("%s: %v has %d, want 2", name, six, v)
		}
	}
}
