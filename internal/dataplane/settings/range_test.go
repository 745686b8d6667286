package settings

import (
	"fmt"
	"testing"
)

func TestRefit(t *testing.T) {
	for _, c := range []struct {
		what            string
		ranges          [][2]uint32 // {base, size}
		was, first, end uint32
		want            string
	}{
		{"none", nil, 1, 1, 10, "[]"},
		{"they stay as far behind", [][2]uint32{{10, 4}, {20, 4}}, 10, 30, 44, "[30 40]"},
		{"they close up", [][2]uint32{{20, 4}, {10, 4}}, 10, 30, 38, "[30 34]"},
		{"one finds no room", [][2]uint32{{10, 4}, {20, 8}, {14, 4}}, 10, 30, 38, "[30 0 34]"},
	} {
		if got := fmt.Sprint(Refit(c.ranges, c.was, c.first, c.end)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
