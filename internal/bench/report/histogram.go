package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// quantiles are those that describe a latency.
var quantiles = []struct {
	name string
	q    float64
}{{"P50", 0.5}, {"P90", 0.9}, {"P99", 0.99}, {"P99.9", 0.999}, {"max", 1}}

// filled says whether a row has packets to show, and notes where not.
func (c *chart) filled(r row) bool {
	if h := r.measurement.Histogram; h != nil && h.Total() > 0 {
		return true
	}
	c.note(r.source, cmp.Or(r.name, c.Metric)+": no packets.")
	return false
}

// tail is from how many times the median on the largest value has the axis of
// percentiles made logarithmic: nothing else could be read on it.
const tail = 10

func (c *chart) placePercentiles() {
	largest := 0.0
	for _, r := range c.rows {
		if h := r.measurement.Histogram; h != nil {
			largest = max(largest, h.Quantile(0.99))
			c.scale = scaleOf(h.Unit, largest)
		}
	}
	for _, q := range quantiles {
		c.categories = append(c.categories, q.name)
	}
	for _, r := range c.rows {
		if !c.filled(r) {
			continue
		}
		s := c.seriesOf(r)
		c.LogY = c.LogY || r.measurement.Histogram.Quantile(1) > tail*r.measurement.Histogram.Quantile(0.5)
		for i, q := range quantiles {
			v := r.measurement.Histogram.Quantile(q.q) / c.scale.by
			s.points = append(s.points, point{x: float64(i), y: v, text: number(v) + c.scale.suffix()})
		}
	}
	c.checkLogarithms()
}

// bins is how many columns a density has at most.
const bins = 100

// placeDensity counts the histograms again into columns of equal width, around
// where most packets are; a note says how many are outside.
func (c *chart) placeDensity() {
	c.LogX = c.LogX && !c.Centered
	g := grid{log: c.LogX, low: math.Inf(1), high: math.Inf(-1)}
	for _, r := range c.rows {
		if h := r.measurement.Histogram; h != nil && h.Total() > 0 {
			g.cover(h, c.zeroOf(h))
			c.xScale = scaleOf(h.Unit, max(math.Abs(g.low), math.Abs(g.high)))
		}
	}
	g.finish()
	c.scale = scale{unit: "%", by: 1}
	most := 0.0
	for _, r := range c.rows {
		if !c.filled(r) {
			continue
		}
		s := c.seriesOf(r)
		shares, outside := g.count(r.measurement.Histogram, c.zeroOf(r.measurement.Histogram))
		for i, share := range shares {
			low, high := g.edge(i)/c.xScale.by, g.edge(i+1)/c.xScale.by
			s.points = append(s.points, point{x: (low + high) / 2, y: 100 * share})
		}
		most = max(most, outside)
	}
	if most > 0.0001 {
		c.Notes = append(c.Notes, fmt.Sprintf("Up to %s %% of a line's packets are outside of the picture.", number(100*most)))
	}
	if c.YTitle = "share of packets"; !g.log {
		c.YTitle += " per " + tickText(g.width/c.xScale.by) + c.xScale.suffix()
	}
	c.checkLogarithms()
}

// zeroOf is the value from which a histogram's values are counted.
func (c *chart) zeroOf(h *result.Histogram) float64 {
	if c.Centered {
		return h.Quantile(0.5)
	}
	return 0
}

// grid are the columns of a density: of equal width, or of equal ratio.
type grid struct {
	log              bool
	low, high, width float64
	widest           float64 // bucket at a median: finer columns would be empty
}

// reach is how many times the distance of the quartiles a density reaches to
// either side: a tail that is longer would leave no room for the rest.
const reach = 6

// cover widens the grid until it includes a histogram without its tails: from
// P0.1 to P99.9 at most.
func (g *grid) cover(h *result.Histogram, zero float64) {
	median := h.Quantile(0.5)
	far := reach * (h.Quantile(0.75) - h.Quantile(0.25))
	if far == 0 || g.log {
		far = math.Inf(1)
	}
	first, last, middle := bucketOf(h, 0.001), bucketOf(h, 0.999), bucketOf(h, 0.5)
	g.low = min(g.low, max(float64(h.Lower[first]), median-far)-zero)
	g.high = max(g.high, min(float64(h.Upper[last]), median+far)-zero)
	g.widest = max(g.widest, float64(h.Upper[middle]-h.Lower[middle]))
}

// bucketOf is the bucket that a quantile is in.
func bucketOf(h *result.Histogram, q float64) int {
	value := h.Quantile(q)
	return slices.IndexFunc(h.Upper, func(upper uint64) bool { return float64(upper-1) >= value })
}

func (g *grid) finish() {
	if g.log {
		g.low = max(g.low, 1)
		g.high = max(g.high, g.low+1)
		g.width = math.Log(g.high*1.001/g.low) / bins
		g.width = max(g.width, math.Log1p(g.widest/g.high))
		return
	}
	g.width = niceAbove(max((g.high-g.low)/bins, g.widest, 1))
	g.low = math.Floor(g.low/g.width) * g.width
}

// niceAbove is the next of 1, 2, 5, 10, 20, ...
func niceAbove(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*decade >= v {
			return m * decade
		}
	}
	return 10 * decade
}

func (g grid) edge(i int) float64 {
	if g.log {
		return g.low * math.Exp(float64(i)*g.width)
	}
	return g.low + float64(i)*g.width
}

// count shares a histogram out to the columns; a bucket that reaches over
// several is spread evenly.
func (g grid) count(h *result.Histogram, zero float64) (shares []float64, outside float64) {
	n := 1 // columns: as many as reach the highest value
	for g.edge(n) <= g.high {
		n++
	}
	shares = make([]float64, n)
	total, inside := float64(h.Total()), 0.0
	for b, count := range h.Count {
		low, high := float64(h.Lower[b])-zero, float64(h.Upper[b])-zero
		for i := range shares {
			if part := min(high, g.edge(i+1)) - max(low, g.edge(i)); part > 0 {
				shares[i] += part / (high - low) * float64(count) / total
			}
		}
	}
	for _, s := range shares {
		inside += s
	}
	return shares, max(0, 1-inside)
}
