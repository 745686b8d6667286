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
