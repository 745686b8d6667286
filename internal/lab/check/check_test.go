package check

import (
	"maps"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
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

// TestWantWhole: what one of the other streams loses is told.
func TestWantWhole(t *testing.T) {
	var o report.Outcome
	wantWhole([]probe.StreamResult{{Sent: 5, Received: 5}, {Sent: 7, Received: 7}}, &o)
	if len(o.Problems) > 0 {
		t.Errorf("nothing is lost: %v", o.Problems)
	}
	wantWhole([]probe.StreamResult{{Sent: 5, Received: 5}, {Sent: 7, Received: 6}}, &o)
	if len(o.Problems) != 1 || o.Problems[0] != "1 of 12 of the other streams lost" {
		t.Errorf("one is lost: %v", o.Problems)
	}
}
