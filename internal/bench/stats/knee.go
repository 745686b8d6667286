package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Curve is a share that falls as a rate rises: at each rate, in rising order, a sample for
// each round.
type Curve struct {
	Rates  []float64
	Shares [][]float64 // of Rates[i]
}

// fit is the falling curve that is nearest to the samples: by least absolute deviations, so
// that a few rounds that dip at a low rate do not bend it. Neighbours that would rise are
// pooled, and have the median of their samples; of two that are as near the higher one, since
// what comes through at a higher rate comes through at a lower one.
func (c Curve) fit() []float64 {
	type block struct {
		samples []float64
		median  float64
		rates   int
	}
	middle := func(samples []float64) float64 {
		sorted := slices.Sorted(slices.Values(samples))
		return sorted[len(sorted)/2]
	}
	var blocks []block
	for _, samples := range c.Shares {
		blocks = append(blocks, block{samples, middle(samples), 1})
		for n := len(blocks); n > 1 && blocks[n-1].median > blocks[n-2].median; n = len(blocks) {
			pooled := slices.Concat(blocks[n-2].samples, blocks[n-1].samples)
			blocks = append(blocks[:n-2], block{pooled, middle(pooled), blocks[n-2].rates + blocks[n-1].rates})
		}
	}
	var fitted []float64
	for _, b := range blocks {
		fitted = append(fitted, slices.Repeat([]float64{b.median}, b.rates)...)
	}
	return fitted
}

// knee is the rate at which the fitted curve falls below a share: between two rates, as if it
// fell evenly over their ratio. 0: it is below at the lowest rate; where it never falls below,
// the highest rate.
func (c Curve) knee(share float64) float64 {
	fitted := c.fit()
	at := slices.IndexFunc(fitted, func(v float64) bool { return !(v >= share) })
	switch at {
	case -1:
		return c.Rates[len(c.Rates)-1]
	case 0:
		return 0
	}
	low, high := fitted[at-1], fitted[at]
	return c.Rates[at-1] * math.Pow(c.Rates[at]/c.Rates[at-1], (low-share)/(low-high))
}

// rounds are as many as all rates have samples of.
func (c Curve) rounds() int {
	if len(c.Shares) == 0 {
		return 0
	}
	n := len(c.Shares[0])
	for _, s := range c.Shares {
		n = min(n, len(s))
	}
	return n
}

// of is the curve of some rounds.
func (c Curve) of(rounds []int) Curve {
	out := Curve{Rates: c.Rates}
	for _, s := range c.Shares {
		var some []float64
		for _, r := range rounds {
			some = append(some, s[r])
		}
		out.Shares = append(out.Shares, some)
	}
	return out
}

// Knee is the highest rate of which a share is delivered, by the fitted curve, and its 95 %
// interval by the percentile bootstrap of the rounds. n is the number of rounds; of fewer
// than Fewest the interval is all of the bootstrap's range. All are NaN of nothing.
func Knee(c Curve, share float64) (value, low, high float64, n int) {
	return kneesOf(share, c)
}

// KneeRatio is the knee of a curve by that of another that was measured in the same rounds.
func KneeRatio(c, by Curve, share float64) (value, low, high float64, n int) {
	return kneesOf(share, c, by)
}

// kneesOf is the knee of one curve, or that of the first by that of the second.
func kneesOf(share float64, curves ...Curve) (value, low, high float64, n int) {
	n = curves[0].rounds()
	for _, c := range curves {
		n = min(n, c.rounds())
	}
	if n == 0 {
		return math.NaN(), math.NaN(), math.NaN(), 0
	}
	of := func(rounds []int) float64 {
		v := curves[0].of(rounds).knee(share)
		for _, c := range curves[1:] {
			v /= c.of(rounds).knee(share)
		}
		return v
	}
	rounds := make([]int, n)
	for i := range rounds {
		rounds[i] = i
	}
	value = of(rounds)
	draw := rand.New(rand.NewPCG(11, 12))
	values := make([]float64, resamples)
	for i := range values {
		for k := range rounds {
			rounds[k] = draw.IntN(n)
		}
		values[i] = of(rounds)
	}
	slices.Sort(values)
	if n < Fewest {
		return value, values[0], values[len(values)-1], n
	}
	return value, Quantile(values, level/2), Quantile(values, 1-level/2), n
}
