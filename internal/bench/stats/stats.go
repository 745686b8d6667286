// Package stats is what the measuring platform knows of samples: medians,
// intervals, and whether two runs differ.
package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// resamples is how often the bootstrap draws: enough for the ends of a 95 %
// interval to hold in the second digit.
const resamples = 2000

// Median of no values is NaN.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Clone(values)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// Quantile q of sorted values, between the two nearest.
func Quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// RatioInterval is the 95 % interval of Median(a) / Median(b), where a[i] and
// b[i] were measured together, by the percentile bootstrap. It draws the same
// way each time, so that a report can be made again from its samples.
func RatioInterval(a, b []float64) (low, high float64) {
	if len(a) == 0 || len(a) != len(b) {
		return math.NaN(), math.NaN()
	}
	r := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, resamples)
	drawA, drawB := make([]float64, len(a)), make([]float64, len(a))
	for i := range ratios {
		for j := range drawA {
			k := r.IntN(len(a))
			drawA[j], drawB[j] = a[k], b[k]
		}
		ratios[i] = Median(drawA) / Median(drawB)
	}
	slices.Sort(ratios)
	return Quantile(ratios, 0.025), Quantile(ratios, 0.975)
}
