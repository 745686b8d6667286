package services

import (
	"strings"
	"testing"
)

// Every Service has a chain for each endpoint and an element of the map, in both families; of no
// Services nothing is left.
func TestRules(t *testing.T) {
	three := Rules(3)
	for want, times := range map[string]int{"dnat to ": 12, "chain service-": 8, " : goto service-": 6, "hook prerouting priority dstnat": 2, "hook postrouting": 2} {
		if n := strings.Count(three, want); n != times {
			t.Errorf("%q is there %d times, want %d", want, n, times)
		}
	}
	if none := Rules(0); strings.Contains(none, "chain") || strings.Count(none, "delete table") != 2 {
		t.Errorf("of no Services: %s", none)
	}
}
