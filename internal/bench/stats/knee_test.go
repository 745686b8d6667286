package stats

import (
	"math"
	"testing"
)

// alike is a curve whose rounds are all the same.
func alike(rounds int, rates, shares []float64) Curve {
	c := Curve{Rates: rates}
	for _, s := range shares {
		samples := make([]float64, rounds)
		for i := range samples {
			samples[i] = s
		}
		c.Shares = append(c.Shares, samples)
	}
	return c
}

func TestKnee(t *testing.T) {
	rates := []float64{4.25, 5.3, 6.7, 8.5, 10.6, 13.2}
	for _, tt := range []struct {
		name      string
		shares    []float64
		low, high float64 // between which the knee is
	}{
		{"a dip before the knee", []float64{1, 0.997, 1, 1, 0.95, 0.8}, 8.5, 8.6},
		{"no dip", []float64{1, 1, 1, 1, 0.95, 0.8}, 8.5, 8.6},
		{"an early knee", []float64{1, 0.997, 0.98, 0.9, 0.7, 0.6}, 4.25, 5.3},
		{"a sharp one", []float64{1, 1, 0.5, 0.45, 0.4, 0.3}, 5.3, 5.4},
		{"what stays a little below is lost", []float64{1, 0.98, 0.98, 0.97, 0.5, 0.4}, 4.25, 4.4},
		{"a dip, one rate whole", []float64{1, 1, 0.997, 1, 0.9, 0.8}, 8.5, 8.6},
		{"two dips in a row, one rate whole", []float64{1, 0.997, 0.997, 1, 0.9, 0.8}, 4.25, 5.3},
		{"it never falls", []float64{1, 1, 1, 1, 1, 0.9995}, 13.2, 13.2},
		{"lost at any rate", []float64{0.99, 0.99, 0.9, 0.8, 0.7, 0.6}, 0, 0},
	} {
		value, low, high, n := Knee(alike(9, rates, tt.shares), 0.999)
		if value < tt.low || value > tt.high || low != value || high != value || n != 9 {
			t.Errorf("%s: %v (%v to %v) of %d rounds, want %v to %v", tt.name, value, low, high, n, tt.low, tt.high)
		}
	}
	if value, _, _, n := Knee(Curve{}, 0.999); !math.IsNaN(value) || n != 0 {
		t.Errorf("of nothing: %v of %d rounds", value, n)
	}
}

var fieldRates = []float64{4.25, 5.3, 6.7, 8.5, 10.6, 13.2, 17, 21.2, 26.5}

// fieldReport are uplink curves of five rounds on a machine with other work, of 22 November
// 2026: GTP-U dips by 0.3 % at 5.3 Gbit/s in most rounds, and is whole at 6.7 and 8.5.
var fieldReport = map[string]Curve{
	"GTP-U": {fieldRates, [][]float64{
		{1, 1, 0.9972, 1, 0.9975}, {0.9967, 1, 1, 0.9967, 0.9963}, {0.9992, 0.9961, 1, 1, 1}, {0.9915, 1, 1, 1, 1}, {0.9851, 0.9659, 1, 0.994, 1},
		{0.8995, 0.9132, 0.7637, 0.5791, 0.8956}, {0.6969, 0.6686, 0.6737, 0.6155, 0.7012}, {0.4222, 0.5636, 0.5668, 0.5677, 0.5749}, {0.5116, 0.3906, 0.5041, 0.4832, 0.5121},
	}},
	"traditional": {fieldRates, [][]float64{
		{0.9973, 1, 1, 1, 0.9975}, {1, 1, 1, 1, 1}, {1, 0.9954, 1, 1, 1}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1},
		{0.9838, 0.9554, 1, 0.9993, 0.9997}, {0.9953, 0.9881, 0.9581, 0.991, 0.963}, {0.7205, 0.8041, 0.7734, 0.7766, 0.7685}, {0.7468, 0.5764, 0.7407, 0.7327, 0.7013},
	}},
	"enhanced": {fieldRates, [][]float64{
		{1, 1, 1, 1, 0.9974}, {1, 1, 1, 0.9927, 1}, {1, 1, 1, 0.9966, 1}, {1, 0.9174, 0.8987, 0.8542, 0.9996}, {1, 0.7063, 0.9993, 0.7211, 0.9998},
		{0.9265, 0.5643, 0.905, 0.8031, 0.9187}, {0.5676, 0.4683, 0.4622, 0.698, 0.6911}, {0.5733, 0.3935, 0.5696, 0.3807, 0.5805}, {0.5285, 0.3804, 0.5243, 0.5359, 0.5372},
	}},
}

// A dip of 0.3 % made GTP-U look three times slower than SRv6: 4.25 against 13.2.
func TestKneeOfFieldReport(t *testing.T) {
	gtpu, low, high, n := Knee(fieldReport["GTP-U"], 0.999)
	t.Logf("GTP-U: %.2f (%.2f to %.2f)", gtpu, low, high)
	if gtpu < 8.5 || gtpu > 10.6 || low > gtpu || high < gtpu || n != 5 {
		t.Errorf("GTP-U: %v (%v to %v) of %d rounds, want 8.5 to 10.6", gtpu, low, high, n)
	}
	for name, want := range map[string][2]float64{"traditional": {1, 2}, "enhanced": {0.5, 1.6}} {
		ratio, low, high, _ := KneeRatio(fieldReport[name], fieldReport["GTP-U"], 0.999)
		t.Logf("%s by GTP-U: %.2f (%.2f to %.2f)", name, ratio, low, high)
		if ratio < want[0] || ratio > want[1] || low > ratio || high < ratio {
			t.Errorf("%s by GTP-U: %v (%v to %v), want %v", name, ratio, low, high, want)
		}
	}
}

// With a knee that differs from round to round the interval holds its middle, and two curves
// of the same rounds are told apart by less than the rounds differ.
func TestKneeInterval(t *testing.T) {
	rates := []float64{4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16}
	curve := func(by float64) Curve {
		c := Curve{Rates: rates}
		for _, x := range rates {
			var samples []float64
			for round := range 9 {
				knee := by * (7 + 0.4*float64(round)) // 7 to 10.2
				samples = append(samples, min(1, knee/x))
			}
			c.Shares = append(c.Shares, samples)
		}
		return c
	}
	value, low, high, _ := Knee(curve(1), 0.999)
	if value < 8 || value > 9 || low < 7 || low >= value || high > 10.3 || high <= value {
		t.Errorf("%v (%v to %v), want about 8.6", value, low, high)
	}
	ratio, low, high, _ := KneeRatio(curve(1.3), curve(1), 0.999)
	if ratio < 1.1 || ratio > 1.5 || low <= 1 {
		t.Errorf("ratio %v (%v to %v), want about 1.3", ratio, low, high)
	}
}
