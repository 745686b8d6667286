package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// table is what stands below a figure: for people, and for programs.
type table struct {
	head    []string
	numbers int // from which column on there are numbers
	rows    [][]string
}

// labels are the columns that tell a chart's rows apart, the figure's own first.
// One with the same value everywhere is in the caption's place already.
func (c *chart) labels() (keys []string) {
	values := map[string]map[string]bool{}
	for _, r := range c.rows {
		for k, v := range r.measurement.Labels {
			if values[k] == nil {
				values[k] = map[string]bool{}
			}
			values[k][v] = true
		}
	}
	for _, k := range []string{c.X, c.Series} {
		if values[k] != nil && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(keys, k) && (len(values[k]) > 1 || c.missing(k)) {
			keys = append(keys, k)
		}
	}
	return keys
}

// missing says whether a row is without a label that others have.
func (c *chart) missing(label string) bool {
	return slices.ContainsFunc(c.rows, func(r row) bool { _, ok := r.measurement.Labels[label]; return !ok })
}

// has says what the chart's rows hold.
func (c *chart) has() (samples, ratios, packets bool) {
	for _, r := range c.rows {
		samples = samples || len(r.measurement.Samples) > 0
		packets = packets || r.measurement.Histogram != nil
	}
	return samples, c.isRatio(), packets
}

// readable is the table for people: units in its head, few digits.
func (c *chart) readable() table {
	keys := c.labels()
	var t table
	if len(c.sources) > 1 {
		t.head = append(t.head, "run")
	}
	for _, k := range keys {
		t.head = append(t.head, strings.ReplaceAll(k, "_", " "))
	}
	t.numbers = len(t.head)
	samples, ratios, packets := c.has()
	plain, latency := c.plainScale(), c.latencyScale()
	if samples {
		t.head = append(t.head, withUnit("median", plain))
		if ratios {
			t.head = append(t.head, c.ratioName())
		}
		t.head = append(t.head, "95 % interval", "n")
	}
	if packets {
		t.head = append(t.head, "packets")
		for _, q := range quantiles {
			t.head = append(t.head, withUnit(q.name, latency))
		}
	}
	for _, r := range c.rows {
		var cells []string
		if len(c.sources) > 1 {
			cells = append(cells, r.label)
		}
		for _, k := range keys {
			cells = append(cells, labelText(r.measurement.Labels[k]))
		}
		if samples {
			cells = append(cells, c.sampleCells(r, plain, ratios)...)
		}
		if packets {
			cells = append(cells, packetCells(r.measurement.Histogram, latency)...)
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

func (c *chart) ratioName() string {
	if c.Value == result.ToBaseline {
		return "by baseline"
	}
	return "baseline by it"
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

func (c *chart) sampleCells(r row, plain scale, ratios bool) []string {
	median := r.measurement.Estimate(result.Plain)
	value, interval := plain.told(median)
	cells := []string{value}
	if ratios {
		value, interval = ratioScale.told(r.estimate)
		cells = append(cells, value)
	}
	return append(cells, interval, fixed(float64(median.N), 0))
}

func packetCells(h *result.Histogram, s scale) []string {
	if h == nil || h.Total() == 0 {
		cells := []string{"0"}
		for range quantiles {
			cells = append(cells, "–")
		}
		return cells
	}
	cells := []string{fixed(float64(h.Total()), 0)}
	for _, q := range quantiles {
		cells = append(cells, number(h.Quantile(q.q)/s.by))
	}
	return cells
}

// plainScale is that of the medians, latencyScale that of the percentiles.
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

func (c *chart) latencyScale() scale {
	unit, largest := "", 0.0
	for _, r := range c.rows {
		if h := r.measurement.Histogram; h != nil {
			unit, largest = h.Unit, max(largest, h.Quantile(0.5))
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

// raw is the table for programs: base units, every digit that counts.
func (c *chart) raw() table {
	keys := c.labels()
	samples, ratios, packets := c.has()
	t := table{head: append([]string{"metric"}, keys...)}
	if len(c.sources) > 1 {
		t.head = append([]string{"run"}, t.head...)
	}
	if samples {
		t.head = append(t.head, "unit", "median")
		if ratios {
			t.head = append(t.head, string(c.Value))
		}
		t.head = append(t.head, "low", "high", "n")
	}
	if packets {
		t.head = append(t.head, "latency_unit", "packets")
		for _, q := range quantiles {
			t.head = append(t.head, strings.ToLower(q.name))
		}
	}
	for _, r := range c.rows {
		t.rows = append(t.rows, c.rawCells(r, keys))
	}
	return t
}

func (c *chart) rawCells(r row, keys []string) []string {
	samples, ratios, packets := c.has()
	var cells []string
	if len(c.sources) > 1 {
		cells = append(cells, r.label)
	}
	cells = append(cells, r.measurement.Metric)
	for _, k := range keys {
		cells = append(cells, r.measurement.Labels[k])
	}
	if samples {
		cells = append(cells, r.measurement.Unit, raw(r.measurement.Estimate(result.Plain).Value))
		if ratios {
			cells = append(cells, raw(r.estimate.Value))
		}
		low, high := "", ""
		if r.estimate.HasInterval() {
			low, high = raw(r.estimate.Low), raw(r.estimate.High)
		}
		cells = append(cells, low, high, fmt.Sprint(r.estimate.N))
	}
	if packets {
		cells = append(cells, rawPackets(r.measurement.Histogram)...)
	}
	return cells
}

func rawPackets(h *result.Histogram) []string {
	if h == nil || h.Total() == 0 {
		return append([]string{"", "0"}, make([]string, len(quantiles))...)
	}
	cells := []string{h.Unit, fmt.Sprint(h.Total())}
	for _, q := range quantiles {
		cells = append(cells, raw(h.Quantile(q.q)))
	}
	return cells
}

// markdown is the table as GitHub shows it.
func (t table) markdown() []byte {
	var b bytes.Buffer
	line := func(cells []string) {
		for _, cell := range cells {
			fmt.Fprintf(&b, "| %s ", strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell))
		}
		b.WriteString("|\n")
	}
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---"
		if i >= t.numbers {
			rule[i] = "---:"
		}
	}
	line(rule)
	for _, r := range t.rows {
		line(r)
	}
	return b.Bytes()
}

func (t table) csv() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.WriteAll(append([][]string{t.head}, t.rows...)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
