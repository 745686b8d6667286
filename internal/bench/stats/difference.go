package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Margin is how far two runs of the same thing differ besides what their rounds
// show: each starts its daemon anew, and gets other memory. Less than it is no
// difference, however many rounds agree. It is from recorded runs of the same
// thing (testdata, TestSameThing), of which without it twice as many differ as
// the test allows for.
const Margin = 0.015

// Series is one quantity at one point of a run, a sample for each round. With a
// baseline, the ratios to it are compared.
type Series struct{ Samples, Baseline []float64 }

// logs are what is compared: in them a ratio is a distance.
func (s Series) logs() []float64 {
	values := s.Samples
	if s.Baseline != nil {
		values = Ratios(s.Samples, s.Baseline)
	}
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Log(v)
	}
	return out
}

// Difference is how a quantity of a second run stands to that of a first.
type Difference struct {
	// Ratio is the second by the first, of medians, Low and High its 95 % interval.
	Ratio, Low, High float64
	// P is how often runs that differ by no more than the margin would show as much.
	P float64
	// Real: it is a difference, of all that were compared together (Holm, 5 %).
	Real bool
}

// Differences compares the quantities of two runs, first[i] with second[i]. What
// has no samples on either side, or such that have no logarithm, gets P = 1 and
// ratios that are no numbers. What is no more than the margin is no difference.
func Differences(first, second []Series, margin float64) []Difference {
	out := make([]Difference, min(len(first), len(second)))
	ps := make([]float64, len(out))
	for i := range out {
		a, b := first[i].logs(), second[i].logs()
		out[i] = Difference{math.NaN(), math.NaN(), math.NaN(), 1, false}
		if d := Median(b) - Median(a); !math.IsNaN(d) && !math.IsInf(d, 0) {
			low, high := shiftInterval(a, b)
			out[i] = Difference{Ratio: math.Exp(d), Low: math.Exp(low), High: math.Exp(high), P: chance(a, b, margin)}
		}
		ps[i] = out[i].P
	}
	for i, real := range Holm(ps) {
		out[i].Real = real
	}
	return out
}

// chance is how often logarithms that differ by no more than a margin would fall
// as far apart as a and b: b is brought nearer by the margin before they are
// compared.
func chance(a, b []float64, margin float64) float64 {
	d, most := Median(b)-Median(a), math.Log1p(margin)
	if math.Abs(d) <= most {
		return 1
	}
	nearer := slices.Clone(b)
	for i := range nearer {
		nearer[i] -= math.Copysign(most, d)
	}
	return rankSum(a, nearer)
}

// shiftInterval is the 95 % interval of Median(b) - Median(a), by the percentile
// bootstrap of both apart: no round of one run belongs to one of the other.
func shiftInterval(a, b []float64) (low, high float64) {
	r := rand.New(rand.NewPCG(5, 6))
	draw := func(from []float64) float64 {
		to := make([]float64, len(from))
		for i := range to {
			to[i] = from[r.IntN(len(from))]
		}
		return Median(to)
	}
	shifts := make([]float64, resamples)
	for i := range shifts {
		shifts[i] = draw(b) - draw(a)
	}
	slices.Sort(shifts)
	return Quantile(shifts, 0.025), Quantile(shifts, 0.975)
}

// exact is up to how many samples of both runs all ways to share them out are
// counted.
const exact = 80

// rankSum is how often values would fall into two such groups that differ as
// much or more in their ranks, were they shared out by chance: the permutation
// test of Wilcoxon, Mann and Whitney, two-sided. It minds no outliers.
func rankSum(a, b []float64) float64 {
	ranks := ranks(slices.Concat(a, b))
	sum, squares := 0, 0.0
	for i, r := range ranks {
		if i < len(a) {
			sum += r
		}
		squares += float64(r * r)
	}
	n, m := float64(len(ranks)), float64(len(a))
	middle := m * (n + 1) // of doubled ranks
	off := math.Abs(float64(sum) - middle)
	if len(ranks) <= exact {
		return countedTail(ranks, len(a), middle, off)
	}
	variance := m * (n - m) / (n - 1) * (squares/n - (n+1)*(n+1))
	return math.Erfc(off / math.Sqrt(2*variance))
}

// ranks are twice the values' ranks from 1 on, of equal ones their middle: twice,
// so that they are whole.
func ranks(values []float64) []int {
	order := rising(values)
	out := make([]int, len(values))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && values[order[to]] == values[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			out[i] = from + 1 + to
		}
		from = to
	}
	return out
}

// rising are the indices of values, those of the lowest first.
func rising(values []float64) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(values[i], values[j]) })
	return order
}

// countedTail is the share of all choices of `size` ranks whose sum is `off` or
// more from the middle.
func countedTail(ranks []int, size int, middle, off float64) float64 {
	total := 0
	for _, r := range ranks {
		total += r
	}
	// ways[k][s]: how many choices of k of the ranks so far have the sum s
	ways := make([][]float64, size+1)
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := size; k > 0; k-- {
			for s := total; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	all, far := 0.0, 0.0
	for s, n := range ways[size] {
		all += n
		if math.Abs(float64(s)-middle) >= off {
			far += n
		}
	}
	return far / all
}

// Holm says which of several tests are positive so that all are right 95 times
// of 100 where nothing differs: the smallest p counts as many times as there are
// tests, the next one time less, up to the first that fails.
func Holm(p []float64) []bool {
	out := make([]bool, len(p))
	for rank, i := range rising(p) {
		if p[i]*float64(len(p)-rank) > level {
			break
		}
		out[i] = true
	}
	return out
}
