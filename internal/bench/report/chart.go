package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// forest is how a comparison is shown: ratios with their intervals, below each
// other.
const forest result.Kind = "forest"

// source is a run among those of a report.
type source struct {
	run   *result.Run
	dir   string // its folder
	label string // tells it from the others; empty where it is alone
}

// says names the source of a text, where there are others.
func (s source) says(text string) string {
	if s.label == "" {
		return text
	}
	return s.label + ": " + text
}

// chart is a figure with what it shows. Page, picture and table are all made of
// it, so that none says what another does not.
type chart struct {
	result.Figure
	prefix     string // of its files' names, in a report of many experiments
	sources    []source
	scale      scale    // of values
	xScale     scale    // of Density's horizontal axis
	categories []string // of the horizontal axis; nil: it has numbers
	series     []series
	all        []series // of all the charts that a figure is split into: they share their axes
	whole      *chart   // which this is a piece of; nil: it is not split
	piece      int      // of whole, from 0
	anchors    []anchor
	rows       []row
	Notes      []string
}

// series are the points of one colour.
type series struct {
	name     string
	quantity string // the name without the run's
	colour   int    // in the palette
	variant  int    // which run: tells apart what has the same colour
	points   []point
}

// point is one that is drawn; x is a number or the place among the categories.
type point struct {
	x, y, low, high float64
	interval        bool
	text            string // all of it in words
}

// row is a measurement, as the table below the figure has it.
type row struct {
	source
	measurement result.Measurement
	estimate    result.Estimate
	name        string // of its series
}

// chartsOf are what a figure shows of some runs: one chart, or several if it has too many lines.
func chartsOf(f result.Figure, sources []source, p palette) ([]*chart, error) {
	whole, err := wholeChart(f, sources)
	if err != nil {
		return nil, err
	}
	list := whole.split()
	for _, c := range list {
		p.paint(c)
	}
	return list, nil
}

// mostLines are as many as can be told apart in one chart.
const mostLines = 7

// split shares a chart's lines out to as few charts as hold mostLines each. Runs of one quantity stay
// together.
func (c *chart) split() (list []*chart) {
	var quantities []string
	for _, s := range c.series {
		if !slices.Contains(quantities, s.quantity) {
			quantities = append(quantities, s.quantity)
		}
	}
	most := max(1, mostLines/len(c.sources))
	charts := (len(quantities) + most - 1) / most
	if c.flat() || c.Kind == result.Table || charts < 2 {
		return []*chart{c}
	}
	each := (len(quantities) + charts - 1) / charts
	for these := range slices.Chunk(quantities, each) {
		piece := *c
		piece.all, piece.whole, piece.piece = c.series, c, len(list)
		piece.series = slices.DeleteFunc(slices.Clone(c.series), func(s series) bool { return !slices.Contains(these, s.quantity) })
		piece.rows = slices.DeleteFunc(slices.Clone(c.rows), func(r row) bool { return !slices.Contains(these, r.name) })
		list = append(list, &piece)
	}
	for i, piece := range list {
		piece.Title = fmt.Sprintf("%s (%d of %d)", c.Title, i+1, len(list))
		if i > 0 {
			piece.ID = fmt.Sprintf("%s-%d", c.ID, i+1)
		}
	}
	return list
}

// wholeChart finds what a figure shows, however many lines that are.
func wholeChart(f result.Figure, sources []source) (*chart, error) {
	c := &chart{Figure: f, sources: sources}
	err := c.selectRows()
	if err == nil {
		err = c.setScale()
	}
	if err != nil {
		return nil, fmt.Errorf("figure %q: %w", f.ID, err)
	}
	c.nameSeries()
	switch f.Kind {
	case result.Bars, result.Lines:
		c.placePoints()
	case result.Density:
		c.placeDensity()
	case result.Percentiles:
		c.placePercentiles()
	}
	c.all = c.series
	c.placeAnchors()
	if len(c.series) == 1 && c.series[0].name == "" && len(c.anchorLabels()) > 0 {
		c.series[0].name = "measured here"
	}
	return c, nil
}

// selectRows takes the measurements. A run that was stopped may have none yet; of
// one that is whole that is a mistake in the figure.
func (c *chart) selectRows() error {
	for _, s := range c.sources {
		list := s.run.Of(c.Figure)
		if len(list) == 0 && s.run.Complete {
			var metrics []string
			for _, m := range s.run.Measurements {
				if !slices.Contains(metrics, m.Metric) {
					metrics = append(metrics, m.Metric)
				}
			}
			return fmt.Errorf("nothing measured is called %q%s: the run has %s", c.Metric, inWords(c.Where), strings.Join(metrics, ", "))
		}
		if len(list) == 0 {
			c.note(s, "The run ended before anything of this figure was measured.")
		}
		var out []string // what is left out
		for _, m := range list {
			if s.run.Doubts(m, c.Doubt) {
				out = append(out, nameIn(c.Figure, m))
				continue
			}
			r := row{source: s, measurement: m, estimate: m.Estimate(c.Value)}
			if m.Histogram == nil && !r.estimate.Measured() {
				c.note(s, "Not measured: "+strings.TrimPrefix(inWords(m.Labels), " with ")+".")
			}
			c.rows = append(c.rows, r)
		}
		if len(out) > 0 {
			c.note(s, "Left out: "+strings.Join(out, "; ")+": "+c.Doubt.Why+".")
		}
	}
	return nil
}

// nameIn names a measurement by a figure's labels.
func nameIn(f result.Figure, m result.Measurement) string {
	words := []string{m.Labels[f.Series], m.Labels[f.X]}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}

func (c *chart) note(s source, text string) {
	if text = s.says(text); !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

// inWords says which labels something has: " with packet short, rate 100".
func inWords(labels result.Labels) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+" "+labels[k])
	}
	if len(words) == 0 {
		return ""
	}
	return " with " + strings.Join(words, ", ")
}

// nameSeries names each row's series: by the figure's label, and where two
// measurements have the same place and the same of that label, by the labels that
// differ between them.
func (c *chart) nameSeries() {
	var besides []string
	first := map[[3]string]result.Labels{}
	for _, r := range c.rows {
		l := r.measurement.Labels
		place := [3]string{r.label, "", l[c.Series]}
		if c.hasX() {
			place[1] = l[c.X]
		}
		known, ok := first[place]
		if !ok {
			first[place] = l
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(l)) {
			if k != c.Series && (k != c.X || !c.hasX()) && l[k] != known[k] && !slices.Contains(besides, k) {
				besides = append(besides, k)
			}
		}
	}
	for i := range c.rows {
		r := &c.rows[i]
		var words []string
		if name := r.measurement.Labels[c.Series]; c.Series != "" && name != "" {
			words = append(words, name)
		}
		for _, k := range besides {
			if v := r.measurement.Labels[k]; v != "" {
				words = append(words, k+" "+v)
			}
		}
		r.name = strings.Join(words, ", ")
	}
}

func (c *chart) hasX() bool { return c.Kind == result.Bars || c.Kind == result.Lines }

// HasPicture says whether there is one: a table has none, nor has what was not measured.
func (c *chart) HasPicture() bool {
	return slices.ContainsFunc(c.series, func(s series) bool { return len(s.points) > 0 })
}

// setScale finds the multiple of the unit for all values.
func (c *chart) setScale() error {
	unit, largest := "", 0.0
	for i, r := range c.rows {
		of := c.unitOf(r.measurement)
		if i > 0 && of != unit {
			return fmt.Errorf("it has measurements in %q and in %q: there is one axis", unit, of)
		}
		unit = of
		if r.estimate.Measured() {
			largest = max(largest, math.Abs(r.estimate.Value))
		}
	}
	c.scale = scaleOf(unit, largest)
	if c.isRatio() {
		c.scale = ratioScale
	}
	return nil
}

func (c *chart) unitOf(m result.Measurement) string {
	if c.isRatio() {
		return ""
	}
	return m.Unit
}

// placePoints places the points of Bars and Lines.
func (c *chart) placePoints() {
	noNumber := func(r row) bool {
		_, err := strconv.ParseFloat(r.measurement.Labels[c.X], 64)
		return err != nil
	}
	if c.Kind == result.Bars || slices.ContainsFunc(c.rows, noNumber) {
		c.categories = []string{}
	}
	for _, r := range c.rows {
		if !r.estimate.Measured() {
			continue
		}
		e, s := r.estimate, c.seriesOf(r)
		s.points = append(s.points, point{
			x: c.place(r.measurement.Labels[c.X]), y: e.Value / c.scale.by, low: e.Low / c.scale.by, high: e.High / c.scale.by,
			interval: e.HasInterval(), text: fmt.Sprintf("%s, n = %d", c.scale.sentence(e), e.N),
		})
	}
	if c.categories == nil {
		for _, s := range c.series {
			slices.SortStableFunc(s.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		}
	}
	c.checkLogarithms()
}

// checkLogarithms: nothing at or below zero has a place on such an axis, and around a
// single value it would begin there.
func (c *chart) checkLogarithms() {
	first, last := math.Inf(1), 0.0
	for _, s := range c.series {
		for _, p := range s.points {
			c.LogY = c.LogY && p.y > 0 && (!p.interval || p.low > 0)
			c.LogX = c.LogX && p.x > 0
			first, last = min(first, p.x), max(last, p.x)
		}
	}
	c.LogX = c.LogX && c.categories == nil && first < last
}

// place is where a value of X stands: itself, or among the categories.
func (c *chart) place(x string) float64 {
	if c.categories == nil {
		v, _ := strconv.ParseFloat(x, 64) // placePoints has checked it
		return v
	}
	if i := slices.Index(c.categories, x); i >= 0 {
		return float64(i)
	}
	c.categories = append(c.categories, x)
	return float64(len(c.categories) - 1)
}

// seriesOf is the series of a row, made at the row that is the first of it: beside
// the other runs' series of its quantity.
func (c *chart) seriesOf(r row) *series {
	name := r.name
	if r.label != "" {
		name = strings.TrimPrefix(name+", "+r.label, ", ")
	}
	if name == "" && !c.hasX() {
		name = c.Metric
	}
	at := len(c.series)
	for i, s := range c.series {
		if s.name == name {
			return &c.series[i]
		}
		if s.quantity == r.name {
			at = i + 1
		}
	}
	variant := slices.IndexFunc(c.sources, func(s source) bool { return s.label == r.label })
	c.series = slices.Insert(c.series, at, series{name: name, quantity: r.name, variant: variant})
	return &c.series[at]
}

// ownX is where our points are.
func (c *chart) ownX() (first, last float64) {
	first, last = math.Inf(1), math.Inf(-1)
	for _, s := range c.all {
		for _, p := range s.points {
			first, last = min(first, p.x), max(last, p.x)
		}
	}
	return first, last
}

// ownValues are from where to where ours reach, with their intervals.
func (c *chart) ownValues() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range c.all {
		for _, p := range s.points {
			low, high = min(low, p.y), max(high, p.y)
			if p.interval {
				low, high = min(low, p.low), max(high, p.high)
			}
		}
	}
	return low, high
}

// axisUnit is the unit of the value axis, if the axis has one and values of ours.
func (c *chart) axisUnit() (unit string, ours bool) {
	for _, r := range c.rows {
		h := r.measurement.Histogram
		switch {
		case c.hasX() && r.estimate.Measured():
			return c.unitOf(r.measurement), true
		case c.Kind == result.Percentiles && h != nil && h.Total() > 0:
			return h.Unit, true
		}
	}
	return "", false
}

// hasReference says whether a line at 1 helps the eye: ratios are about 1.
func (c *chart) hasReference() bool { return c.Kind == forest || c.isRatio() }

// isRatio says whether values are such to a baseline, either way round.
func (c *chart) isRatio() bool {
	return c.Value == result.ToBaseline || c.Value == result.OfBaseline
}

// flat says whether values run to the right, and categories down: names of
// functions are long.
func (c *chart) flat() bool { return c.Kind == result.Bars || c.Kind == forest }

// valueRange is that of the value axis. Bars begin at 0, or where the axis is
// logarithmic at the decade below; lines at 0 too, unless all of them are far
// from it.
func (c *chart) valueRange() (low, high float64) {
	low, high = c.ownValues()
	for _, a := range c.anchors {
		if a.inside && a.beyond == "" {
			low, high = min(low, a.y), max(high, a.y)
		}
	}
	if c.hasReference() {
		low, high = min(low, 1), max(high, 1)
	}
	switch {
	case math.IsInf(low, 1):
		return 0, 1
	case c.LogY && !c.flat():
		low /= 1.15
	case c.LogY:
		low = math.Pow(10, math.Floor(math.Log10(low)))
	case !c.LogY && low > 0 && (c.Kind == result.Bars || low < 0.6*high):
		low = 0
	}
	if high <= low {
		high = low + 1
	}
	if c.flat() && slices.ContainsFunc(c.anchors, func(a anchor) bool { return a.beyond == right }) {
		// a quarter more, as room for what stands there
		if c.LogY {
			high *= math.Pow(high/low, 0.25)
		} else {
			high += (high - low) / 4
		}
	}
	if c.LogY {
		return low, 1.15 * high
	}
	step := step(low, high)
	return math.Floor(low/step+1e-9) * step, math.Ceil(high/step-1e-9) * step
}

// step is how far the numbers of a linear value axis are apart.
func step(low, high float64) float64 { return niceAbove((high - low) / 6) }

// valueTitle and xTitle name the axes, with units.
func (c *chart) valueTitle() string {
	title := cmp.Or(c.YTitle, strings.ReplaceAll(c.Metric, "_", " "))
	if unit, _ := c.axisUnit(); title == unit {
		return c.scale.unit
	}
	return withUnit(title, c.scale)
}

func (c *chart) xTitle() string {
	title := strings.ReplaceAll(c.X, "_", " ")
	switch {
	case c.Kind == result.Percentiles:
		return withUnit("share of packets that are no later", c.xScale)
	case c.Kind == result.Density && c.Centered:
		title = "distance from the median"
	case c.Kind == result.Density:
		title = strings.ReplaceAll(c.Metric, "_", " ")
	}
	return withUnit(cmp.Or(c.XTitle, title), c.xScale)
}

// tickText is a number below an axis.
func tickText(v float64) string {
	if math.Abs(v) < 1e-12 {
		return "0" // what is left of adding steps
	}
	s := scale{by: 1}
	if math.Abs(v) >= 1e4 {
		s = fitting(multiple, v)
	}
	text := strings.Replace(strconv.FormatFloat(v/s.by, 'g', 4, 64), "-", "−", 1)
	if s.unit != "" {
		text += "\u202f" + s.unit
	}
	return text
}
