package report

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// overview is the table on top of the report: of one figure what a reader wants to
// know first.
type overview struct {
	Title, Caption string
	Table          tableView
}

// overviews are those of a report of single runs; of several runs, how they differ
// stands there.
func (r report) overviews() (list []overview) {
	for _, p := range r.parts {
		for _, c := range p.charts {
			if c.Summary == nil || p.comparison != nil || !c.hasPicture() {
				continue
			}
			t := c.summary(p.firstOf().Glossary)
			list = append(list, overview{c.Summary.Title, c.Summary.Caption, tableView{Name: c.Summary.Title, Head: t.head, Numbers: t.numbers, Rows: t.rows}})
		}
	}
	return list
}

// summary has a row for each value of X that was asked for and measured, and for
// each series how many times the baseline it is, and how much more.
func (c *chart) summary(glossary map[string]string) table {
	t := table{head: []string{c.X, "what it does"}, numbers: 2}
	for _, s := range c.series {
		name := ""
		if s.name != "" {
			name = s.name + ": "
		}
		t.head = append(t.head, name+"times", "95 % interval", name+withUnit("more", c.plainScale()))
	}
	for _, x := range c.Summary.Rows {
		cells := []string{x, glossary[x]}
		for _, s := range c.series {
			cells = append(cells, c.summaryCells(x, s.name)...)
		}
		if slices.ContainsFunc(c.rows, func(r row) bool { return r.measurement.Labels[c.X] == x && r.estimate.Measured() }) {
			t.rows = append(t.rows, cells)
		}
	}
	return t
}

func (c *chart) summaryCells(x, series string) []string {
	for _, r := range c.rows {
		if r.measurement.Labels[c.X] != x || r.name != series || !r.estimate.Measured() {
			continue
		}
		value, interval := ratioScale.told(r.estimate)
		return []string{value, interval, fixed(more(r.measurement)/c.plainScale().by, 0)}
	}
	return []string{"–", "–", "–"}
}

// more is the median of what samples have above their baseline.
func more(m result.Measurement) float64 {
	var list []float64
	for i, v := range m.Samples {
		list = append(list, v-m.Baseline[i])
	}
	return stats.Median(list)
}

// markdown is the overview as text.
func (o overview) markdown(b *bytes.Buffer) {
	t := table{head: o.Table.Head, numbers: o.Table.Numbers, rows: o.Table.Rows}
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n%s", o.Title, o.Caption, t.markdown())
}
