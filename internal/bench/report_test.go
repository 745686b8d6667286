package bench

import "testing"

func TestReportFromSamples(t *testing.T) {
	f := function{name: "end"}
	rows := []*row{
		{
			function: f, entries: 1, beside: true, baseline: []float64{100, 110, 120}, live: []float64{125, 110, 160},
			linux: []float64{500, 440, 800}, testRun: []float64{60, 61, 62}, front: []float64{40, 45, 50},
		},
		{
			function: f, entries: 1000, baseline: []float64{100}, live: []float64{200}, testRun: []float64{70}, front: []float64{40},
		},
	}
	got := makeReport(rows, environment{Rounds: 3})
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
	one := []pace{{100, 1e6}, {110, 1e6}, {90, 1e6}}
	two := []pace{{125, 2e6}, {110, 1e6}, {100, 1e6}}
	got := scalingOf(&row{function: function{name: "end"}, entries: 7}, one, two)
	if got.Ratio != 1.8 || got.Low != 1.6 || got.High != 2 || got.WallRatio != 2 || got.Entries != 7 {
		t.Errorf("%+v: want 1.8, 1.6 to 2, and 2 by the wall", got)
	}
}
