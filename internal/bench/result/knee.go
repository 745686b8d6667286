package result

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/bench/stats"
)

// Whole is the share of packets that are delivered at rates that a device keeps up with: on a
// machine that others use too, all of them would be a matter of luck.
const Whole = 0.999

// curveOf puts the measurements of a share in the order of the numbers in their label x.
func curveOf(list []Measurement, x string) (c stats.Curve) {
	number := func(m Measurement) float64 {
		v, err := strconv.ParseFloat(m.Labels[x], 64)
		if err != nil {
			return -1
		}
		return v
	}
	list = slices.DeleteFunc(slices.Clone(list), func(m Measurement) bool { return number(m) <= 0 || len(m.Samples) == 0 })
	slices.SortStableFunc(list, func(a, b Measurement) int { return cmp.Compare(number(a), number(b)) })
	for _, m := range list {
		c.Rates, c.Shares = append(c.Rates, number(m)), append(c.Shares, m.Samples)
	}
	return c
}

// Knee is the highest rate of which the share Whole is delivered, by a falling curve through the
// measurements; x is the label with the rate.
func Knee(curve []Measurement, x string) (e Estimate) {
	e.Value, e.Low, e.High, e.N = stats.Knee(curveOf(curve, x), Whole)
	return e
}

// kneeRatio is the knee of one curve by that of another of the same rounds.
func kneeRatio(curve, by []Measurement, x string) (e Estimate) {
	e.Value, e.Low, e.High, e.N = stats.KneeRatio(curveOf(curve, x), curveOf(by, x), Whole)
	return e
}
