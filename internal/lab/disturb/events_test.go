package disturb

import (
	"maps"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// What a topology may ask for is what can be done.
func TestEventKinds(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(events)), topology.EventKinds(); !slices.Equal(got, want) {
		t.Errorf("events %q, and topologies may have %q", got, want)
	}
}
