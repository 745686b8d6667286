package lan

import (
	"testing"
	"time"
)

// TestFloodsBounded: more copies than the budget are not made, until it has
// grown again.
func TestFloodsBounded(t *testing.T) {
	now := time.Unix(1, 0)
	l := NewLinks(Options{Now: func() time.Time { return now }})
	n := 0
	for l.allow() {
		n++
	}
	if n != floodsBurst {
		t.Errorf("%d copies at once, want %d", n, floodsBurst)
	}
	now = now.Add(time.Second / 10)
	for n = 0; l.allow(); n++ {
	}
	if n != floodRate/10 {
		t.Errorf("%d copies after 100 ms, want %d", n, floodRate/10)
	}
}
