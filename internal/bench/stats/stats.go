// Package stats is what the measuring platform knows of samples: medians,
// intervals, and whether two runs differ.
package stats

import (
	"math"
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
	v := slices.Sorted(slices.Values(values))
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
