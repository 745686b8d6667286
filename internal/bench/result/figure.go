package result

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is how a figure shows its measurements.
type Kind string

// The kinds of figures.
const (
	// Bars: one group of bars for each value of X, a bar for each series, with
	// the 95 % interval.
	Bars Kind = "bars"
	// Lines: X is a number; a line for each series, with the 95 % interval as a
	// band.
	Lines Kind = "lines"
	// Density: the histograms' share of packets by value.
	Density Kind = "density"
	// Percentiles: the histograms' value by percentile, up to P99.9 and the
	// maximum.
	Percentiles Kind = "percentiles"
	// Table: a row for each measurement, a column for each label and figure; no
	// picture.
	Table Kind = "table"
)

// Value is what is taken of a measurement.
type Value string

// The values of a measurement.
const (
	// Plain is the median of the samples.
	Plain Value = "plain"
	// ToBaseline is the median of samples by what stood beside each.
	ToBaseline Value = "to_baseline"
	// OfBaseline is its inverse: 1 is as good as the baseline, 0.5 costs twice.
	OfBaseline Value = "of_baseline"
)

// Better is which of two values is the better one.
type Better string

// What is better.
const (
	BetterLess Better = "less"
	BetterMore Better = "more"
	Neither    Better = "neither"
)

// Figure says how measurements are shown.
type Figure struct {
	ID    string `json:"id"` // "fig5": names the files
	Title string `json:"title"`
	Kind  Kind   `json:"kind"`
	// Caption says how to read it, and what follows from it, in one or two
	// sentences.
	Caption string `json:"caption"`
	// Metric and Where select the measurements.
	Metric string `json:"metric"`
	Where  Labels `json:"where,omitempty"`
	// X is the label along the horizontal axis (Bars, Lines), Series the one that
	// tells bars or lines apart; empty: there is one.
	X string `json:"x,omitempty"`
	// Only are the values of X that are shown; empty: all.
	Only   []string `json:"only,omitempty"`
	Series string   `json:"series,omitempty"`
	Value  Value    `json:"value,omitempty"` // default Plain
	// Better is which values are, where the unit does not say (BetterOf).
	Better Better `json:"better,omitempty"`
	// Of Density: the median of each is its zero, so that deviations are shown.
	Centered bool `json:"centered,omitempty"`
	// Titles of the axes are without units of values: those are added, with the
	// multiple that fits.
	XTitle string `json:"x_title,omitempty"`
	YTitle string `json:"y_title,omitempty"`
	LogX   bool   `json:"log_x,omitempty"`
	LogY   bool   `json:"log_y,omitempty"`
	// Headline puts the figure on the first page of a report of many experiments,
	// and finishes the sentence "H.Encaps.Red: 1.14 (1.10 to 1.19)": "times the
	// CPU time of L2 forwarding". Of Bars and Lines, whose values become words.
	Headline string `json:"headline,omitempty"`
	// Summary makes a table of it on top of the report. Of Bars with ToBaseline.
	Summary *Summary `json:"summary,omitempty"`
	// Doubt leaves rows out, of the picture and of the table; a sentence names them.
	Doubt *Doubt `json:"doubt,omitempty"`
	// Anchors are others' figures: shown beside ours, labelled, never mixed in.
	Anchors []Anchor `json:"anchors,omitempty"`
}

// Of are the measurements that a figure is of.
func (r *Run) Of(f Figure) []Measurement {
	return slices.DeleteFunc(r.Select(f.Metric, f.Where), func(m Measurement) bool {
		return len(f.Only) > 0 && !slices.Contains(f.Only, m.Labels[f.X])
	})
}

// Doubt is of rows beside which another quantity is too large: a measurement of a metric with all
// labels of the row, and with those in Where.
type Doubt struct {
	Metric string  `json:"metric"`
	Where  Labels  `json:"where,omitempty"`
	Above  float64 `json:"above"`
	Why    string  `json:"why"` // finishes "Left out: kernel vxlan, 64: "
}

// Summary is a table with what a reader wants to know first: how many times as
// much as the baseline something takes, and how much more.
type Summary struct {
	Title   string   `json:"title"`
	Caption string   `json:"caption"`
	Rows    []string `json:"rows"` // values of X, in order
}

// Anchor is a figure that somebody else published.
type Anchor struct {
	Label  string  `json:"label"`  // "paper 001, Tofino"
	Source string  `json:"source"` // where it stands
	X      string  `json:"x,omitempty"`
	Y      float64 `json:"y"`
	Unit   string  `json:"unit,omitempty"`
	Note   string  `json:"note,omitempty"` // what differs: hardware, frame size
}

func (f Figure) check() error {
	switch f.Kind {
	case Bars, Lines:
		if f.X == "" {
			return fmt.Errorf("kind %q wants x", f.Kind)
		}
	case Density, Percentiles, Table:
	default:
		return fmt.Errorf("kind %q: there are bars, lines, density, percentiles, table", f.Kind)
	}
	switch f.Value {
	case "", Plain, ToBaseline, OfBaseline:
	default:
		return fmt.Errorf("value %q: there are plain, to_baseline, of_baseline", f.Value)
	}
	if strings.Trim(f.ID, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return fmt.Errorf("id %q: it names files: give small letters, digits, _ and -", f.ID)
	}
	if len(f.Only) > 0 && f.X == "" {
		return fmt.Errorf("only: it is of the values of x, which is not given")
	}
	if f.Summary != nil && (f.Kind != Bars || f.Value != ToBaseline) {
		return fmt.Errorf("summary: it is of %q with value %q", Bars, ToBaseline)
	}
	if f.ID == "" || f.Metric == "" {
		return fmt.Errorf("id %q, metric %q: both are needed", f.ID, f.Metric)
	}
	return nil
}

// BetterOf is which value of a measurement is better: as the figure says, or by its unit. Times, memory
// and losses are better if there is less of them, rates and what is delivered if there is more.
func (f Figure) BetterOf(m Measurement) Better {
	if f.Better != "" {
		return f.Better
	}
	less := slices.Contains([]string{"ns", "us", "µs", "ms", "s", "octets", "B", "MB", "MiB", "cores", "W"}, m.Unit) || strings.Contains(m.Metric, "loss") || strings.Contains(m.Metric, "lost")
	more := strings.HasSuffix(m.Unit, "/s") || strings.HasPrefix(m.Metric, "delivery")
	if f.Value == OfBaseline {
		less, more = more, less
	}
	switch {
	case less:
		return BetterLess
	case more:
		return BetterMore
	}
	return Neither
}
