package tally

import (
	"maps"
	"sync/atomic"
	"testing"
)

func TestAll(t *testing.T) {
	var c struct {
		Sent atomic.Uint64 `metric:"sent"`
		Now  atomic.Int64  `metric:"now"` // which falls, too
		Own  atomic.Uint64
		Lost atomic.Uint64 `metric:"lost"`
	}
	c.Sent.Add(3)
	c.Own.Add(5)
	if got, want := maps.Collect(All(&c)), map[string]uint64{"sent": 3, "lost": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name := range All(&c) {
		if name != "sent" {
			t.Errorf("%s comes first", name)
		}
		break
	}
}
