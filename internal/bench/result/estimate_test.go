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

// Intervals that meet show nothing; that two quantities are the same has to be shown, too.
func TestRelation(t *testing.T) {
	for _, tt := range []struct {
		a, b Estimate
		want string
	}{
		{Estimate{1, 0.99, 1.01, 9}, Estimate{2, 1.9, 2.1, 9}, "less"},
		{Estimate{2, 1.9, 2.1, 9}, Estimate{1, 0.99, 1.01, 9}, "more"},
		{Estimate{1, 0.99, 1.01, 9}, Estimate{1.02, 1, 1.03, 9}, "same"},
		{Estimate{1, 0.999, 1.001, 9}, Estimate{1.02, 1.019, 1.021, 9}, "same"}, // apart, and close
		{Estimate{1, 0.9, 1.1, 9}, Estimate{1, 0.9, 1.1, 9}, "unknown"},
		{Estimate{1, 0.99, 1.01, 9}, Estimate{1.1, 1, 1.2, 9}, "unknown"},
		{Estimate{1, 1, 1, 1}, Estimate{2, 2, 2, 1}, "unknown"}, // one round each
	} {
		if got := tt.a.Relation(tt.b, "less", "same", "more", "unknown"); got != tt.want {
			t.Errorf("%v and %v: %s, want %s", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestRan(t *testing.T) {
	r := Run{Rounds: 30, Measurements: []Measurement{{Samples: make([]float64, 3)}, {Samples: make([]float64, 4)}}}
	if got := r.Ran(); got != 4 {
		t.Errorf("a run that was stopped in its fifth round had %d", got)
	}
	r.Complete = true
	if got := r.Ran(); got != 30 {
		t.Errorf("a whole run had %d rounds, want 30", got)
	}
}
