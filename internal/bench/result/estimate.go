package result

import (
	"fmt"
	"math"

	"github.com/culvert-net/culvert/internal/bench/stats"
)

// Estimate is what a measurement says of a quantity.
type Estimate struct {
	Value     float64 // NaN: nothing was measured
	Low, High float64 // of the 95 % interval, see stats.Interval
	N         int     // samples
}

// Estimate is the value of a measurement that a figure shows.
func (m Measurement) Estimate(v Value) Estimate {
	e := Estimate{N: len(m.Samples)}
	switch {
	case v == "" || v == Plain:
		e.Value, e.Low, e.High = stats.Interval(m.Samples, nil)
	case len(m.Baseline) != len(m.Samples):
		e.Value, e.Low, e.High = math.NaN(), math.NaN(), math.NaN()
	case v == ToBaseline:
		e.Value, e.Low, e.High = stats.Interval(m.Samples, m.Baseline)
	case v == OfBaseline:
		e.Value, e.Low, e.High = stats.Interval(m.Baseline, m.Samples)
	}
	return e
}

// String is "1.14 (1.10 to 1.19)", or of one sample "1.14".
func (e Estimate) String() string {
	if !e.HasInterval() {
		return fmt.Sprintf("%.2f", e.Value)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", e.Value, e.Low, e.High)
}

// Compare is below 0 if e is less than other for certain, above 0 if it is more, and 0
// if their intervals meet.
func (e Estimate) Compare(other Estimate) int {
	switch {
	case e.High < other.Low:
		return -1
	case e.Low > other.High:
		return 1
	}
	return 0
}

// Margin is how far apart two quantities may be that are called the same, as a part of either.
const Margin = 0.05

// Same says that e and other are the same, up to Margin: all values of their intervals are. That
// intervals meet does not show it.
func (e Estimate) Same(other Estimate) bool {
	return e.Measured() && other.Measured() && e.High <= other.Low*(1+Margin) && other.High <= e.Low*(1+Margin)
}

// Relation says how e compares with other in one of four words: for less, for the same, for
// more, and for what the intervals do not show. Of one sample they show nothing.
func (e Estimate) Relation(other Estimate, less, same, more, unknown string) string {
	switch sign := e.Compare(other); {
	case !e.HasInterval() || !other.HasInterval():
		return unknown
	case e.Same(other):
		return same
	case sign < 0:
		return less
	case sign > 0:
		return more
	}
	return unknown
}

// Measured says whether there is a value.
func (e Estimate) Measured() bool { return !math.IsNaN(e.Value) && !math.IsInf(e.Value, 0) }

// HasInterval says whether there is one: a single sample has none.
func (e Estimate) HasInterval() bool {
	return e.Measured() && e.N > 1 && !math.IsNaN(e.Low+e.High) && !math.IsInf(e.Low+e.High, 0)
}
