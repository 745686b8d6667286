package bench

import (
	"fmt"
	"slices"
	"strings"
)

// complaint adds a problem with a field of `with`.
type complaint func(field, fix, format string, args ...any)

// unknown complains about names that no function has.
func unknown(bad complaint, field string, given []string, list []function) {
	for i, name := range given {
		if !slices.Contains(names(list), name) {
			bad(fmt.Sprintf("%s[%d]", field, i), "some of "+strings.Join(names(list), ", "), "there is no %q", name)
		}
	}
}

func checkEntries(bad complaint, entries []uint) {
	for i, n := range entries {
		if n < 1 || n > manyEntries {
			bad(fmt.Sprintf("entries[%d]", i), fmt.Sprintf("1 to %d", manyEntries), "%d is out of range", n)
		}
	}
	if len(entries) == 0 {
		bad("entries", "one number or more, at most 1000 with --quick", "there is none")
	}
}

func checkPackets(bad complaint, packets int) {
	if packets < morePackets || packets > 1<<24 {
		bad("packets", fmt.Sprintf("%d to %d", morePackets, 1<<24), "%d is out of range", packets)
	}
}
