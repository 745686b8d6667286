package result

import "testing"

func TestEstimate(t *testing.T) {
	m := Measurement{Samples: []float64{200, 220, 400}, Baseline: []float64{100, 110, 100}}
	for _, tt := range []struct {
		value           Value
		want, low, high float64
	}{
		{"", 220, 200, 400},
		{Plain, 220, 200, 400},
		{ToBaseline, 2, 2, 4},
		{OfBaseline, 0.5, 0.25, 0.5},
	} {
		e := m.Estimate(tt.value)
		if e.Value != tt.want || e.Low != tt.low || e.High != tt.high || e.N != 3 || !e.HasInterval() {
			t.Errorf("Estimate(%q) = %+v, want %v, %v to %v of 3", tt.value, e, tt.want, tt.low, tt.high)
		}
	}
	one := Measurement{Samples: []float64{7}}
	if e := one.Estimate(Plain); e.Value != 7 || !e.Measured() || e.HasInterval() {
		t.Errorf("of one sample: %+v, want 7 without an interval", e)
	}
	for name, nothing := range map[string]Estimate{
		"no samples":            Measurement{}.Estimate(Plain),
		"no samples, ratio":     Measurement{}.Estimate(OfBaseline),
		"no baseline":           one.Estimate(OfBaseline),
		"a baseline of nothing": Measurement{Samples: []float64{7}, Baseline: []float64{0}}.Estimate(ToBaseline),
	} {
		if nothing.Measured() || nothing.HasInterval() {
			t.Errorf("%s: %+v is told as measured", name, nothing)
		}
	}
}
