package cost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/rig"
)

// Unknown wants only names that a function has.
func Unknown(want experiment.Want, field string, given []string, list []catalog.Function) {
	names := catalog.Names(list)
	isVariant := func(name string) bool { return strings.Contains(name, "@") }
	fix := "some of " + strings.Join(slices.DeleteFunc(slices.Clone(names), isVariant), ", ")
	if i := slices.IndexFunc(names, isVariant); i >= 0 {
		fix += ", or a variant of one, such as " + names[i]
	}
	experiment.Each(want, field, fix, "there is no %q", given, func(name string) bool { return slices.Contains(names, name) })
}

// CheckEntries wants numbers of entries that a table holds.
func CheckEntries(want experiment.Want, entries []uint) {
	Within(want, "entries", entries, 1, catalog.ManyEntries, "")
	want(len(entries) > 0, "entries", "one number or more, at most 1000 with --quick", "there is none")
}

// Numbers are the entries that are asked for, each once, in rising order.
func Numbers(entries []uint) (list []uint32) {
	for _, n := range slices.Sorted(slices.Values(entries)) {
		list = append(list, uint32(n))
	}
	return slices.Compact(list)
}

// Within wants numbers that are in range.
func Within[T uint | int](want experiment.Want, field string, numbers []T, least, most T, unit string) {
	experiment.Each(want, field, fmt.Sprintf("%d to %d%s", least, most, unit), "%d is out of range", numbers, func(n T) bool { return n >= least && n <= most })
}

// CheckPackets wants runs that are neither too short nor too long.
func CheckPackets(want experiment.Want, packets int) {
	want(packets >= rig.MorePackets && packets <= 1<<24,
		"packets", fmt.Sprintf("%d to %d", rig.MorePackets, 1<<24), "%d is out of range", packets)
}
