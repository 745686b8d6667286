package cost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/rig"
)

// complaint adds a problem with a field of `with`.
type complaint func(field, fix, format string, args ...any)

// Unknown complains about names that no function has.
func Unknown(bad complaint, field string, given []string, list []catalog.Function) {
	names := catalog.Names(list)
	experiment.Each(bad, field, "some of "+strings.Join(names, ", "), "there is no %q", given, func(name string) bool { return slices.Contains(names, name) })
}

// CheckEntries complains about numbers of entries that no table holds.
func CheckEntries(bad complaint, entries []uint) {
	Within(bad, "entries", entries, 1, catalog.ManyEntries, "")
	if len(entries) == 0 {
		bad("entries", "one number or more, at most 1000 with --quick", "there is none")
	}
}

// Numbers are the entries that are asked for, each once, in rising order.
func Numbers(entries []uint) (list []uint32) {
	for _, n := range slices.Sorted(slices.Values(entries)) {
		list = append(list, uint32(n))
	}
	return slices.Compact(list)
}

// Within complains about numbers that are out of range.
func Within[T uint | int](bad complaint, field string, numbers []T, least, most T, unit string) {
	experiment.Each(bad, field, fmt.Sprintf("%d to %d%s", least, most, unit), "%d is out of range", numbers, func(n T) bool { return n >= least && n <= most })
}

// CheckPackets complains about runs that are too short or too long.
func CheckPackets(bad complaint, packets int) {
	if packets < rig.MorePackets || packets > 1<<24 {
		bad("packets", fmt.Sprintf("%d to %d", rig.MorePackets, 1<<24), "%d is out of range", packets)
	}
}
