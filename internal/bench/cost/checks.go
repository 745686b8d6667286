package cost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/rig"
)

// complaint adds a problem with a field of `with`.
type complaint func(field, fix, format string, args ...any)

// Unknown complains about names that no function has.
func Unknown(bad complaint, field string, given []string, list []catalog.Function) {
	for i, name := range given {
		if !slices.Contains(catalog.Names(list), name) {
			bad(fmt.Sprintf("%s[%d]", field, i), "some of "+strings.Join(catalog.Names(list), ", "), "there is no %q", name)
		}
	}
}

// CheckEntries complains about numbers of entries that no table holds.
func CheckEntries(bad complaint, entries []uint) {
	for i, n := range entries {
		if n < 1 || n > catalog.ManyEntries {
			bad(fmt.Sprintf("entries[%d]", i), fmt.Sprintf("1 to %d", catalog.ManyEntries), "%d is out of range", n)
		}
	}
	if len(entries) == 0 {
		bad("entries", "one number or more, at most 1000 with --quick", "there is none")
	}
}

// CheckPackets complains about runs that are too short or too long.
func CheckPackets(bad complaint, packets int) {
	if packets < rig.MorePackets || packets > 1<<24 {
		bad("packets", fmt.Sprintf("%d to %d", rig.MorePackets, 1<<24), "%d is out of range", packets)
	}
}
