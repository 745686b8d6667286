package stats

import (
	"math"
	"slices"
)

// level is the share of figures that may lie outside their interval, and the share
// of comparisons of equal runs that may report a difference.
const level = 0.05

// Fewest is the number of samples from which on Interval has a 95 % interval.
const Fewest = 6

// Interval is a quantity's value and its 95 % interval: the median of the
// samples, or, where the baseline was measured beside each, of their ratios. The
// ratios' median is about twice as steady as the ratio of the medians, where
// others use the machine (a test holds that against recorded runs). Of fewer than
// Fewest samples the interval is all of their range. All are NaN of nothing.
func Interval(samples, baseline []float64) (value, low, high float64) {
	if baseline != nil {
		samples = Ratios(samples, baseline)
	}
	if len(samples) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	// The ends are at order statistics: however samples are distributed, as many are below
	// the median as coins fall on one side.
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	chance := math.Pow(0.5, float64(n)) // that `outside` coins fall so
	for outside, below := 0, chance; ; outside++ {
		chance *= float64(n-outside) / float64(outside+1)
		if below += chance; 2*below > level {
			return Median(samples), sorted[outside], sorted[n-1-outside]
		}
	}
}

// Ratios are samples by what was measured beside them; nil where they are
// nothing, or not as many.
func Ratios(samples, baseline []float64) []float64 {
	if len(samples) == 0 || len(samples) != len(baseline) {
		return nil
	}
	out := make([]float64, len(samples))
	for i := range samples {
		out[i] = samples[i] / baseline[i]
	}
	return out
}
