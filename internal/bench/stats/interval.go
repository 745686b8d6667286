package stats

import (
	"math"
	"slices"
)

// level is how often a figure may be outside its interval, and how often two
// runs of the same thing may be told to differ.
const level = 0.05

// fewest is from how many samples on an interval of 95 % is to be had of their
// order: below, even the smallest and the largest hold the median too seldom.
const fewest = 6

// Interval is a quantity's value and its 95 % interval: the median of the
// samples, or, where the baseline was measured beside each, median(samples) /
// median(baseline). Of fewer than 6 samples the interval is all of their spread.
// All are NaN of nothing.
func Interval(samples, baseline []float64) (value, low, high float64) {
	if baseline == nil {
		value = Median(samples)
		low, high = medianInterval(samples)
		return value, low, high
	}
	ratios := Ratios(samples, baseline)
	if ratios == nil {
		return math.NaN(), math.NaN(), math.NaN()
	}
	value = Median(samples) / Median(baseline)
	if len(ratios) < fewest {
		return value, min(value, slices.Min(ratios)), max(value, slices.Max(ratios))
	}
	low, high = RatioInterval(samples, baseline)
	return value, low, high
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

// medianInterval has its ends at order statistics: however samples are
// distributed, as many are below the median as coins fall on one side.
func medianInterval(samples []float64) (low, high float64) {
	if len(samples) == 0 {
		return math.NaN(), math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	chance := math.Pow(0.5, float64(n)) // that `outside` coins fall so
	outside, below := 0, chance
	for {
		chance *= float64(n-outside) / float64(outside+1)
		if below += chance; 2*below > level {
			return sorted[outside], sorted[n-1-outside]
		}
		outside++
	}
}
