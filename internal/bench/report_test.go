package bench

import (
	"testing"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

func TestReportFromSamples(t *testing.T) {
	f := function{name: "end"}
	rows := []measured{
		{
			row: &row{function: f, entries: 1, beside: true}, baseline: []float64{100, 110, 120}, live: []float64{125, 110, 160},
			linux: []float64{500, 440, 800}, testRun: []float64{60, 61, 62}, front: []float64{40, 45, 50},
		},
		{
			row: &row{function: f, entries: 1000}, baseline: []float64{100}, live: []float64{200}, testRun: []float64{70}, front: []float64{40},
		},
	}
	got := makeReport("functions", rows, environment{Rounds: 3})
	first := got.Rows[0]
	if first.NS != 125 || first.Ratio != 0.8 || first.Low != 0.75 || first.High != 1 {
		t.Errorf("row %+v: want 125 ns, 0.8, 0.75 to 1", first)
	}
	if first.KernelRatio == nil || *first.KernelRatio != 4 {
		t.Errorf("kernel ratio %v, want 4", first.KernelRatio)
	}
	if s := got.Samples[0]; s.TestRunNS != 16 || s.AddedNS != 15 {
		t.Errorf("samples %+v: want test run 16 and 15 added", s)
	}
	if got.Rows[1].KernelRatio != nil || got.Rows[1].Ratio != 0.5 {
		t.Errorf("row %+v: want 0.5 and no kernel", got.Rows[1])
	}
}

func TestScalingFromSamples(t *testing.T) {
	with := scalingKind().New().(*rowsExperiment)
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
