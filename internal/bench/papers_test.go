package bench

import (
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Each paper is defined: what is measured of it, and its picture, are in experiments of the suite.
func TestPapers(t *testing.T) {
	l := library()
	var figures []result.Figure
	for _, name := range l.Suite {
		f, err := l.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		figures = append(figures, f.With.Figures()...)
	}
	numbers := map[string]bool{}
	for _, p := range papers() {
		if numbers[p.Number] || p.Question == "" || p.Source == "" || p.Command == "" || len(p.Findings) < 2 {
			t.Errorf("paper %s is not whole: %+v", p.Number, p)
		}
		numbers[p.Number] = true
		if !measures(figures, p) {
			t.Errorf("the suite has not the figure and the metrics of paper %s", p.Number)
		}
		for _, f := range p.Findings {
			if f.Says == "" || f.Theirs == "" || f.Ratio == "" || f.Expect == "" || len(f.A) == 0 {
				t.Errorf("paper %s: %+v is not whole", p.Number, f)
			}
		}
	}
	if len(numbers) != 4 {
		t.Errorf("%d papers", len(numbers))
	}
}

// measures says whether figures have a paper's picture and most of its metrics.
func measures(figures []result.Figure, p result.Paper) bool {
	picture := slices.ContainsFunc(figures, func(f result.Figure) bool { return f.ID == p.Figure })
	metrics := 0
	for _, finding := range p.Findings {
		if slices.ContainsFunc(figures, func(f result.Figure) bool { return f.Metric == finding.Metric }) {
			metrics++
		}
	}
	return picture && metrics > len(p.Findings)/2
}
