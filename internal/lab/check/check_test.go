package check

import (
	"maps"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// What a topology may ask for is what can be checked.
func TestKinds(t *testing.T) {
	if got := slices.Sorted(maps.Keys(checkKinds)); !slices.Equal(got, topology.CheckKinds) {
		t.Errorf("checks %q, and topologies may have %q", got, topology.CheckKinds)
	}
	if got := slices.Sorted(maps.Keys(reportKinds)); !slices.Equal(got, topology.ReportKinds) {
		t.Errorf("reports %q, and topologies may have %q", got, topology.ReportKinds)
	}
}
