package bench

import (
	"math"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{1, 1, 2, 1000}, 1.5},
	} {
		before := slices.Clone(tt.values)
		if got := median(tt.values); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.values, got, tt.want)
		}
		if !slices.Equal(tt.values, before) {
			t.Errorf("median changed its values from %v to %v", before, tt.values)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestQuantile(t *testing.T) {
	sorted := []float64{0, 10, 20, 30, 40}
	for q, want := range map[float64]float64{0: 0, 0.25: 10, 0.5: 20, 0.6: 24, 1: 40} {
		if got := quantile(sorted, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
}

// The interval of a median has exact ends in order statistics: for 9 values,
// the second and the eighth hold it with 96 %.
func TestRatioInterval(t *testing.T) {
	values, ones := []float64{7, 1, 9, 3, 5, 2, 8, 4, 6}, []float64{1, 1, 1, 1, 1, 1, 1, 1, 1}
	low, high := ratioInterval(values, ones)
	if low < 2 || low > 3 || high < 7 || high > 8 {
		t.Errorf("interval = %v to %v, want about 2 to 8", low, high)
	}
	if l, h := ratioInterval(values, ones); l != low || h != high {
		t.Errorf("the second time it is %v to %v: a report could not be drawn again", l, h)
	}
	// What was slow together does not blur the ratio.
	twice := []float64{14, 2, 18, 6, 10, 4, 16, 8, 12}
	if l, h := ratioInterval(values, twice); l != 0.5 || h != 0.5 {
		t.Errorf("interval of values by twice the values = %v to %v, want 0.5", l, h)
	}
	// An outlier must not widen it.
	if _, h := ratioInterval([]float64{1, 1, 1, 1, 1, 1, 1, 1, 1e6}, ones); h != 1 {
		t.Errorf("one outlier of nine makes the upper end %v", h)
	}
	if l, h := ratioInterval(values, ones[1:]); !math.IsNaN(l) || !math.IsNaN(h) {
		t.Errorf("interval of unequal numbers = %v to %v, want none", l, h)
	}
}

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
	if first.NS != 125 || first.Ratio != 0.88 || first.Low != 0.75 || first.High != 1 {
		t.Errorf("row %+v: want 125 ns, 0.88, 0.75 to 1", first)
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
	if got.Ratio != 200.0/110 || got.Low != 1.6 || got.High != 2 || got.WallRatio != 2 || got.Entries != 7 {
		t.Errorf("%+v: want 1.82, 1.6 to 2, and 2 by the wall", got)
	}
}
