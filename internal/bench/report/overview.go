package report

import (
	"slices"

	"github.com/culvert-net/culvert/internal/bench/stats"
)

// overview has a row for each value of X that the summary names and that was
// measured, and for each series how many times the baseline it is, and how much more.
func (c *chart) overview(glossary map[string]string) table {
	plain := c.plainScale()
	t := table{Head: []string{c.X, "what it does"}, Numbers: 2}
	for _, s := range c.series {
		name := ""
		if s.name != "" {
			name = s.name + ": "
		}
		t.Head = append(t.Head, name+"times", intervalName(c.rows), name+withUnit("more", plain))
	}
	for _, x := range c.Summary.Rows {
		rows := slices.DeleteFunc(slices.Clone(c.rows), func(r row) bool { return r.measurement.Labels[c.X] != x || !r.estimate.Measured() })
		if len(rows) == 0 {
			continue
		}
		cells := []string{x, glossary[x]}
		for _, s := range c.series {
			at := slices.IndexFunc(rows, func(r row) bool { return r.name == s.name })
			if at < 0 {
				cells = append(cells, "–", "–", "–")
				continue
			}
			value, interval := ratioScale.words(rows[at].estimate)
			var more []float64 // what samples have above their baseline
			for i, v := range rows[at].measurement.Samples {
				more = append(more, v-rows[at].measurement.Baseline[i])
			}
			cells = append(cells, value, interval, fixed(stats.Median(more)/plain.by, 0))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}
