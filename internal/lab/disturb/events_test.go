package disturb

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// What a topology may ask for is what can be done.
func TestEventKinds(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(events)), topology.EventKinds(); !slices.Equal(got, want) {
		t.Errorf("events %q, and topologies may have %q", got, want)
	}
}

// It is counted from the first event that is no wait, to the last answer before the next wait.
func TestActedAfter(t *testing.T) {
	const each = 20 * time.Millisecond
	answer := events["active"]
	t.Cleanup(func() { events["active"] = answer })
	events["active"] = func(context.Context, action) error { time.Sleep(each); return nil }
	r := &Runner{Instance: &instance.Instance{Topology: &topology.Topology{}}}
	wait, active := topology.Event{Do: "wait", For: topology.Duration(each)}, topology.Event{Do: "active"}
	for name, tt := range map[string]struct {
		list        []topology.Event
		least, rest int // of these 20 ms each in the figure, and beside it
	}{
		"at once":         {[]topology.Event{active}, 1, 0},
		"after a wait":    {[]topology.Event{wait, wait, active}, 1, 2},
		"the last answer": {[]topology.Event{active, active}, 2, 0},
		"a later one":     {[]topology.Event{wait, active, wait, active}, 1, 3},
		"nobody is asked": {[]topology.Event{wait}, 0, 1},
	} {
		var o report.Outcome
		start := time.Now()
		if err := Do(t.Context(), r, tt.list, &o); err != nil {
			t.Fatal(err)
		}
		least, most := time.Duration(tt.least)*each, time.Since(start)-time.Duration(tt.rest)*each
		if got := time.Duration(o.ActedAfter) * time.Millisecond; got < least || got > most || tt.least == 0 && got != 0 {
			t.Errorf("%s: %v, want %v to %v", name, got, least, most)
		}
	}
}
