package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// table is what stands below a figure: for people, and for programs.
type table struct {
	Head    []string
	Numbers int // from which column on there are numbers
	Rows    [][]string
}

// add adds a column, with a cell of each row.
func (t *table) add(head string, rows []row, cell func(row) string) {
	t.Head = append(t.Head, head)
	for i, r := range rows {
		t.Rows[i] = append(t.Rows[i], cell(r))
	}
}

// labels are the columns that distinguish a chart's rows, the figure's own first.
// The caption has a label that is the same everywhere.
func (c *chart) labels() (keys []string) {
	all := result.Labels{}
	for _, r := range c.rows {
		maps.Copy(all, r.measurement.Labels)
	}
	for _, k := range append([]string{c.X, c.Series}, slices.Sorted(maps.Keys(all))...) {
		one, known := all[k]
		varies := slices.ContainsFunc(c.rows, func(r row) bool {
			v, ok := r.measurement.Labels[k]
			return !ok || v != one
		})
		if known && !slices.Contains(keys, k) && (varies || k == c.X || k == c.Series) {
			keys = append(keys, k)
		}
	}
	return keys
}

// tables are a chart's: for people with units in the head and few digits, for
// programs in base units with every digit that counts.
func (c *chart) tables() (people, programs table) {
	people.Rows, programs.Rows = make([][]string, len(c.rows)), make([][]string, len(c.rows))
	if len(c.sources) > 1 {
		run := func(r row) string { return r.label }
		people.add("run", c.rows, run)
		programs.add("run", c.rows, run)
	}
	programs.add("metric", c.rows, func(r row) string { return r.measurement.Metric })
	for _, k := range c.labels() {
		people.add(strings.ReplaceAll(k, "_", " "), c.rows, func(r row) string { return labelText(r.measurement.Labels[k]) })
		programs.add(k, c.rows, func(r row) string { return r.measurement.Labels[k] })
	}
	people.Numbers = len(people.Head)
	if slices.ContainsFunc(c.rows, func(r row) bool { return len(r.measurement.Samples) > 0 }) {
		c.addSamples(&people, &programs)
	}
	if slices.ContainsFunc(c.rows, func(r row) bool { return r.measurement.Histogram != nil }) {
		c.addPackets(&people, &programs)
	}
	return people, programs
}

// addSamples adds the medians of the rows' samples, and if the figure shows ratios
// these too.
func (c *chart) addSamples(people, programs *table) {
	shown := c.plainScale()
	median := func(r row) result.Estimate { return r.measurement.Estimate(result.Plain) }
	people.add(withUnit("median", shown), c.rows, func(r row) string {
		value, _ := shown.words(median(r))
		return value
	})
	programs.add("unit", c.rows, func(r row) string { return r.measurement.Unit })
	programs.add("median", c.rows, func(r row) string { return raw(median(r).Value) })
	interval := shown
	if c.isRatio() {
		interval = ratioScale
		name := "baseline by it"
		if c.Value == result.ToBaseline {
			name = "by baseline"
		}
		people.add(name, c.rows, func(r row) string {
			value, _ := ratioScale.words(r.estimate)
			return value
		})
		programs.add(string(c.Value), c.rows, func(r row) string { return raw(r.estimate.Value) })
	}
	people.add(intervalName(c.rows), c.rows, func(r row) string {
		_, words := interval.words(r.estimate)
		return words
	})
	people.add("n", c.rows, func(r row) string { return fixed(float64(r.estimate.N), 0) })
	end := func(of func(row) float64) func(row) string {
		return func(r row) string {
			if !r.estimate.HasInterval() {
				return ""
			}
			return raw(of(r))
		}
	}
	programs.add("low", c.rows, end(func(r row) float64 { return r.estimate.Low }))
	programs.add("high", c.rows, end(func(r row) float64 { return r.estimate.High }))
	programs.add("n", c.rows, func(r row) string { return strconv.Itoa(r.estimate.N) })
}

// intervalName says what the intervals of rows are: so few samples have none of 95 %.
func intervalName(rows []row) string {
	few := func(r row) bool { return r.estimate.HasInterval() && r.estimate.N < stats.Fewest }
	enough := func(r row) bool { return r.estimate.N >= stats.Fewest }
	switch {
	case !slices.ContainsFunc(rows, few):
		return "95 % interval"
	case slices.ContainsFunc(rows, enough):
		return fmt.Sprintf("95 %% interval; n below %d: range", stats.Fewest)
	}
	return "range"
}

// addPackets adds the quantiles of the rows' histograms.
func (c *chart) addPackets(people, programs *table) {
	// of is a cell of a row that has packets; the other rows have `none`.
	of := func(none string, cell func(*result.Histogram) string) func(row) string {
		return func(r row) string {
			if h := r.measurement.Histogram; h != nil && h.Total() > 0 {
				return cell(h)
			}
			return none
		}
	}
	people.add("packets", c.rows, of("0", func(h *result.Histogram) string { return fixed(float64(h.Total()), 0) }))
	programs.add("latency_unit", c.rows, of("", func(h *result.Histogram) string { return h.Unit }))
	programs.add("packets", c.rows, of("0", func(h *result.Histogram) string { return fmt.Sprint(h.Total()) }))
	unit, largest := "", 0.0
	for _, r := range c.rows {
		if h := r.measurement.Histogram; h != nil {
			unit, largest = h.Unit, max(largest, h.Quantile(0.5))
		}
	}
	latency := scaleOf(unit, largest)
	for _, q := range quantiles {
		people.add(withUnit(q.name, latency), c.rows, of("–", func(h *result.Histogram) string { return number(h.Quantile(q.q) / latency.by) }))
		programs.add(strings.ToLower(q.name), c.rows, of("", func(h *result.Histogram) string { return raw(h.Quantile(q.q)) }))
	}
}

// labelText sets thousands of large whole numbers apart.
func labelText(s string) string {
	if strings.Trim(s, "0123456789") == "" && s != "" && s[0] != '0' {
		var v float64
		if _, err := fmt.Sscan(s, &v); err == nil {
			return fixed(v, 0)
		}
	}
	return s
}

// plainScale is that of the medians.
func (c *chart) plainScale() scale {
	unit, largest := "", 0.0
	for _, r := range c.rows {
		unit = r.measurement.Unit
		if e := r.measurement.Estimate(result.Plain); e.Measured() {
			largest = max(largest, e.Value)
		}
	}
	return scaleOf(unit, largest)
}

func withUnit(name string, s scale) string {
	if s.unit == "" {
		return name
	}
	return name + " (" + s.unit + ")"
}

// Markdown is the table as GitHub shows it.
func (t table) Markdown() string {
	var b bytes.Buffer
	line := func(cells []string) {
		for _, cell := range cells {
			fmt.Fprintf(&b, "| %s ", strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell))
		}
		b.WriteString("|\n")
	}
	line(t.Head)
	line(append(slices.Repeat([]string{"---"}, t.Numbers), slices.Repeat([]string{"---:"}, len(t.Head)-t.Numbers)...))
	for _, r := range t.Rows {
		line(r)
	}
	return b.String()
}
