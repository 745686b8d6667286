package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// Compare is how runs are compared.
type Compare struct {
	// Margin is what is no difference, as a share; 0: stats.Margin.
	Margin float64 `json:"margin,omitempty"`
	// RatiosOnly leaves out what has no baseline of the same run beside it.
	RatiosOnly bool `json:"ratios_only,omitempty"`
}

func (c Compare) margin() float64 { return cmp.Or(c.Margin, stats.Margin) }

// Comparison is what several runs of an experiment say of each other.
type Comparison struct {
	Experiment  string       `json:"experiment"`
	Runs        []string     `json:"runs"` // the first is what the others are compared with
	Differences []Difference `json:"differences"`
	Notes       []string     `json:"notes,omitempty"`
	Compare
}

// Difference is how a quantity of a run stands to that of the first run.
type Difference struct {
	Figure string        `json:"figure"` // the first that shows it
	Metric string        `json:"metric"`
	Labels result.Labels `json:"labels"`
	Value  result.Value  `json:"value"`
	Unit   string        `json:"unit"`
	Run    string        `json:"run"`
	// First and Second are the two runs' values, in the unit.
	First  float64 `json:"first"`
	Second float64 `json:"second"`
	// Ratio is the second value divided by the first, Low and High its 95 %
	// interval. All are null if the ratio is undefined, as of 0 to 0.
	Ratio *float64 `json:"ratio"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	P     float64  `json:"p"`
	// Verdict is "real" or "not shown", of all differences of the two runs together;
	// or "no ratio".
	Verdict string `json:"verdict"`
	// Change is "better" or "worse" where a difference is real, and one of the two is better.
	Change string `json:"change,omitempty"`

	better result.Better
}

// The changes.
const (
	Improved = "better"
	Worse    = "worse"
)

// setChange says what a real difference means.
func (d *Difference) setChange() {
	up := *d.Ratio > 1
	switch {
	case d.better == result.Neither:
	case up == (d.better == result.BetterMore):
		d.Change = Improved
	default:
		d.Change = Worse
	}
}

const (
	real     = "real"
	notShown = "not shown"
	noRatio  = "no ratio" // nothing is so many times as much as 0
)

// pair compares what both runs have measured and a figure shows, each once.
func (c *Comparison) pair(first, other source, charts []*chart) {
	var list []Difference
	var places []int // in the list
	var a, b []stats.Series
	seen := map[string]bool{}
	for _, ch := range charts {
		if c.RatiosOnly && !ch.isRatio() {
			continue
		}
		for _, r := range ch.rows {
			// at is the row of the same quantity in the other run.
			at := slices.IndexFunc(ch.rows, func(o row) bool {
				return o.label == other.label && maps.Equal(o.measurement.Labels, r.measurement.Labels)
			})
			key := fmt.Sprint(r.measurement.Metric, r.measurement.Labels, ch.isRatio())
			if r.label != first.label || at < 0 || !r.estimate.Measured() || !ch.rows[at].estimate.Measured() || seen[key] {
				continue
			}
			match := ch.rows[at]
			seen[key] = true
			list = append(list, Difference{
				Figure: ch.ID, Metric: ch.Metric, Labels: r.measurement.Labels, Value: ch.Value, Unit: ch.unitOf(r.measurement),
				Run: other.label, First: r.estimate.Value, Second: match.estimate.Value, P: 1, Verdict: noRatio,
				better: ch.BetterOf(r.measurement),
			})
			x, y := seriesOf(r, ch.Value), seriesOf(match, ch.Value)
			if positive(x) && positive(y) {
				places, a, b = append(places, len(list)-1), append(a, x), append(b, y)
			}
		}
	}
	noisy := c.checkNoise(first, other)
	for i, s := range stats.Differences(a, b, c.margin()) {
		d := &list[places[i]]
		d.P, d.Ratio, d.Low, d.High, d.Verdict = s.P, &s.Ratio, &s.Low, &s.High, notShown
		if s.Real && !noisy {
			d.Verdict = real
			d.setChange()
		}
	}
	c.Differences = append(c.Differences, list...)
	c.checkPower(first, other, a, b)
}

// checkNoise says which of the runs is too noisy to claim anything: then no difference is real.
func (c *Comparison) checkNoise(runs ...source) (noisy bool) {
	for _, s := range runs {
		if limit := s.run.NoiseLimit; limit > 0 && s.run.Environment.Noise > limit {
			noisy = true
			c.Notes = append(c.Notes, fmt.Sprintf("%s is too noisy to claim anything: others took %.0f %% of a CPU's time, %.0f %% is the limit. No difference is called real.",
				s.label, 100*s.run.Environment.Noise, 100*limit))
		}
	}
	return noisy
}

func seriesOf(r row, v result.Value) stats.Series {
	switch v {
	case result.ToBaseline:
		return stats.Series{Samples: r.measurement.Samples, Baseline: r.measurement.Baseline}
	case result.OfBaseline:
		return stats.Series{Samples: r.measurement.Baseline, Baseline: r.measurement.Samples}
	}
	return stats.Series{Samples: r.measurement.Samples}
}

// positive says whether there are ratios of all samples.
func positive(s stats.Series) bool {
	return !slices.ContainsFunc(slices.Concat(s.Samples, s.Baseline), func(v float64) bool { return !(v > 0) })
}

// checkPower says where so few rounds, and so many comparisons, could show no
// difference however large.
func (c *Comparison) checkPower(first, other source, a, b []stats.Series) {
	if len(a) == 0 && len(c.Differences) == 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s and %s have measured nothing that is the same.", first.label, other.label))
		return
	}
	least := 1.0
	for i := range a {
		// The smallest p that a rank test of n and m rounds can have is 2 of all ways to
		// share them out.
		ways, m := 1.0, len(b[i].Samples)
		for k := range a[i].Samples {
			ways *= float64(m+k+1) / float64(k+1)
		}
		least = min(least, 2/ways)
	}
	if len(a) > 0 && least*float64(len(a)) > 0.05 {
		c.Notes = append(c.Notes, fmt.Sprintf(
			"%s and %s have too few rounds: among %d comparisons not even the largest difference could be told from chance. Measure more rounds, or compare fewer quantities.",
			first.label, other.label, len(a)))
	}
}

// in are the differences of what a chart shows.
func (c *Comparison) in(ch *chart) []Difference {
	return slices.DeleteFunc(slices.Clone(c.Differences), func(d Difference) bool { return d.Figure != ch.ID })
}

// words describe a difference: "0.86 times (0.85 to 0.88)".
func (d Difference) words() (ratio, interval string) {
	if d.Ratio == nil {
		return "–", "–"
	}
	return differenceScale.words(result.Estimate{Value: *d.Ratio, Low: *d.Low, High: *d.High, N: 2})
}

// nameOf is what tells a difference from the others of its chart.
func (c *Comparison) nameOf(d Difference, keys []string) string {
	var words []string
	for _, k := range keys {
		if v := d.Labels[k]; v != "" {
			words = append(words, labelText(v))
		}
	}
	if len(c.Runs) > 2 {
		words = append(words, d.Run)
	}
	if len(words) == 0 {
		return strings.ReplaceAll(d.Metric, "_", " ")
	}
	return strings.Join(words, ", ")
}

// forestOf draws the differences of a chart's quantities below each other. It
// returns nil if the chart has no differences.
func (c *Comparison) forestOf(ch *chart) *chart {
	if len(c.in(ch)) == 0 {
		return nil
	}
	f := &chart{Figure: ch.Figure, prefix: ch.prefix, scale: differenceScale, categories: []string{}}
	f.ID, f.Kind, f.Value, f.LogX, f.LogY, f.Anchors = ch.ID+"-differences", forest, "", false, false, nil
	f.Title = "Differences: " + ch.Title
	f.Caption = fmt.Sprintf("1 is no difference. Real is what stands out from chance with all quantities taken together (Holm, 5 %%), and by more than the margin of %s %%.", tickText(100*c.margin()))
	if f.YTitle = "each run by "; len(c.Runs) == 2 {
		f.YTitle = c.Runs[1] + " by "
	}
	f.YTitle += c.Runs[0] + ", with its 95 % interval"
	f.series = []series{{name: "real", colour: 4}, {name: "not shown", colour: len(colours) - 1}}
	for _, d := range c.in(ch) {
		if d.Ratio == nil {
			continue
		}
		at := &f.series[1]
		if d.Verdict == real {
			at = &f.series[0]
		}
		ratio, interval := d.words()
		at.points = append(at.points, point{
			x: f.place(c.nameOf(d, ch.labels())), y: *d.Ratio, low: *d.Low, high: *d.High, interval: true,
			text: fmt.Sprintf("%s (%s), %s", ratio, interval, d.Verdict),
		})
	}
	f.series = slices.DeleteFunc(f.series, func(s series) bool { return len(s.points) == 0 })
	f.all = f.series
	return f
}

// table has a row for each difference of a chart's quantities.
func (c *Comparison) table(ch *chart) table {
	t := table{Head: []string{"quantity", withUnit(c.Runs[0], ch.scale), "then", "ratio", "95 % interval", "verdict"}, Numbers: 1}
	if len(c.Runs) == 2 {
		t.Head[2] = withUnit(c.Runs[1], ch.scale)
	}
	for _, d := range c.in(ch) {
		ratio, interval := d.words()
		a, _ := ch.scale.words(result.Estimate{Value: d.First, N: 1})
		b, _ := ch.scale.words(result.Estimate{Value: d.Second, N: 1})
		t.Rows = append(t.Rows, []string{c.nameOf(d, ch.labels()), a, b, ratio, interval, d.Verdict})
	}
	return t
}

// sentences are the differences that are real, in words, and how many there are
// of how many.
func (c *Comparison) sentences(charts []*chart) []string {
	count := 0
	var list []string
	for _, ch := range charts {
		for _, d := range c.in(ch) {
			if d.Verdict == real {
				count++
				ratio, interval := d.words()
				list = append(list, fmt.Sprintf("%s: %s: %s times %s (%s)", ch.Title, c.nameOf(d, ch.labels()), ratio, c.Runs[0], interval))
			}
		}
	}
	head := fmt.Sprintf("%d of %d differences are real. Of two runs of the same thing 95 in 100 such comparisons would call none so.", count, len(c.Differences))
	if count == 0 {
		head = fmt.Sprintf("None of %d differences can be told from chance.", len(c.Differences))
	}
	return append([]string{head}, list...)
}

// raw is the table for programs.
func (c *Comparison) raw(ch *chart) table {
	keys := ch.labels()
	t := table{Head: append(append([]string{"run", "metric"}, keys...), "unit", "first", "second", "ratio", "low", "high", "p", "verdict")}
	for _, d := range c.in(ch) {
		cells := []string{d.Run, d.Metric}
		for _, k := range keys {
			cells = append(cells, d.Labels[k])
		}
		ratio, low, high := "", "", ""
		if d.Ratio != nil {
			ratio, low, high = raw(*d.Ratio), raw(*d.Low), raw(*d.High)
		}
		t.Rows = append(t.Rows, append(cells, d.Unit, raw(d.First), raw(d.Second), ratio, low, high, raw(d.P), d.Verdict))
	}
	return t
}
