package stats

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
		if got := Median(tt.values); got != tt.want {
			t.Errorf("Median(%v) = %v, want %v", tt.values, got, tt.want)
		}
		if !slices.Equal(tt.values, before) {
			t.Errorf("median changed its values from %v to %v", before, tt.values)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestQuantile(t *testing.T) {
	sorted := []float64{0, 10, 20, 30, 40}
	for q, want := range map[float64]float64{0: 0, 0.25: 10, 0.5: 20, 0.6: 24, 1: 40} {
		if got := Quantile(sorted, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("Quantile(%v) = %v, want %v", q, got, want)
		}
	}
}

// The interval of a median has exact ends in order statistics: for 9 values,
// the second and the eighth hold it with 96 %.
func TestRatioInterval(t *testing.T) {
	values, ones := []float64{7, 1, 9, 3, 5, 2, 8, 4, 6}, []float64{1, 1, 1, 1, 1, 1, 1, 1, 1}
	low, high := RatioInterval(values, ones)
	if low < 2 || low > 3 || high < 7 || high > 8 {
		t.Errorf("interval = %v to %v, want about 2 to 8", low, high)
	}
	if l, h := RatioInterval(values, ones); l != low || h != high {
		t.Errorf("the second time it is %v to %v: a report could not be drawn again", l, h)
	}
	// What was slow together does not blur the ratio.
	twice := []float64{14, 2, 18, 6, 10, 4, 16, 8, 12}
	if l, h := RatioInterval(values, twice); l != 0.5 || h != 0.5 {
		t.Errorf("interval of values by twice the values = %v to %v, want 0.5", l, h)
	}
	// An outlier must not widen it.
	if _, h := RatioInterval([]float64{1, 1, 1, 1, 1, 1, 1, 1, 1e6}, ones); h != 1 {
		t.Errorf("one outlier of nine makes the upper end %v", h)
	}
	if l, h := RatioInterval(values, ones[1:]); !math.IsNaN(l) || !math.IsNaN(h) {
		t.Errorf("interval of unequal numbers = %v to %v, want none", l, h)
	}
}
