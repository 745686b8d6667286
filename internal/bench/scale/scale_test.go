package scale

import (
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

func TestScalingFromSamples(t *testing.T) {
	with := ScalingKind.New().(*rowsExperiment)
	with.Functions, with.Entries = []string{"end"}, []uint{7}
	labels := with.points()[0].labels()
	run := &result.Run{Measurements: []result.Measurement{
		{Metric: metricTwoCores, Labels: labels, Unit: "ns", Samples: []float64{125, 110, 100}, Baseline: []float64{200, 220, 180}},
		{Metric: metricTwoCoresWall, Labels: labels, Unit: "ns", Samples: []float64{2e6, 1e6, 1e6}, Baseline: []float64{2e6, 2e6, 2e6}},
	}}
	got := scalingOf(&experiment.File{With: with}, run).Rows[0]
	if got.Ratio != 1.8 || got.Low != 1.6 || got.High != 2 || got.WallRatio != 2 || got.Entries != 7 || got.OneNS != 100 || got.TwoNS != 110 {
		t.Errorf("%+v: want 1.8, 1.6 to 2, and 2 by the wall", got)
	}
}

func TestPlan(t *testing.T) {
	with := ScalingKind.New().(*rowsExperiment)
	with.Entries = []uint{1000, 1, 1000, 1_000_000}
	rows := map[string][]uint32{}
	for _, r := range with.points() {
		rows[r.Name] = append(rows[r.Name], r.Entries)
		if r.Beside && r.Entries != 1 {
			t.Errorf("%s: the kernel beside %d entries", r.Name, r.Entries)
		}
	}
	for name, want := range map[string][]uint32{
		"gtpu_decap": {1, 1000, 1_000_000}, "end_m_gtp4_e": {1, 1000, 1_000_000}, "end": {1, 1000}, "h_encaps": {1}, "l2_forward": {1},
		"open5gs_uplink": {1, 1000, 1_000_000}, "open5gs_flow_downlink": {1, 1000},
	} {
		if !slices.Equal(rows[name], want) {
			t.Errorf("%s: entries %v, want %v", name, rows[name], want)
		}
	}
}

// Unless functions are named, sessions are measured in the shapes that real cores send.
func TestShapesInDefaultList(t *testing.T) {
	var names []string
	for _, r := range UPFKind.New().(*rowsExperiment).points() {
		names = append(names, r.Name)
	}
	for _, name := range []string{
		"open5gs_uplink", "open5gs_downlink", "free5gc_uplink", "free5gc_downlink",
		"open5gs_flow_uplink", "open5gs_flow_downlink", "free5gc_flow_uplink", "free5gc_flow_downlink",
		"uplink_destinations_1000", "uplink_destinations_100000", "uplink_ecmp",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s", name)
		}
	}
}
