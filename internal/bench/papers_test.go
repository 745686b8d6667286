package bench

import (
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Each paper is defined: what is measured of it is in an experiment of the suite, and its picture is
// one of that experiment's.
func TestPapers(t *testing.T) {
	l := library()
	numbers := map[string]bool{}
	for _, p := range papers() {
		if numbers[p.Number] || p.Question == "" || p.Source == "" || p.Command == "" || len(p.Findings) < 2 {
			t.Errorf("paper %s is not whole: %+v", p.Number, p)
		}
		numbers[p.Number] = true
		found := false
		for _, name := range l.Suite {
			f, err := l.Builtin(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || measures(f.With.Figures(), p)
		}
		if !found {
			t.Errorf("no experiment of the suite has the figure and the metrics of paper %s", p.Number)
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

// measures says whether an experiment has a paper's picture and most of its metrics: those of its
// figures.
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
