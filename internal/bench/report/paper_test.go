package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// madeUp are two papers: the test data has one of them.
var madeUp = []result.Paper{
	{Number: "1", Title: "Tunnels", Question: "What do they cost?", Command: "culvert bench functions", Figure: "tunnels", Findings: []result.Finding{
		{Says: "End.M.GTP4.E costs more than End.DT4", Theirs: "twice", Ratio: "CPU time", Metric: "cost",
			A: result.Labels{"function": "End.M.GTP4.E", "size": "short"}, B: result.Labels{"function": "End.DT4", "size": "short"}, Expect: result.More},
	}},
	{Number: "2", Title: "Pods", Question: "What do they get?", Command: "culvert bench overlay", Findings: []result.Finding{{Metric: "nothing"}}},
}

// The first page has a box for each paper: with figures and verdicts where the run has them, and
// with the command where it has not. A run alone has the boxes of what it measured.
func TestPapers(t *testing.T) {
	draw := func(dirs ...string) string {
		out := t.TempDir()
		if _, err := Draw(dirs, Options{Out: out, Formats: []string{"html", "md"}, Papers: madeUp}); err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, name := range []string{"report.html", "summary.md"} {
			b, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			text += string(b)
		}
		return text
	}
	suite := draw("testdata/suite")
	for says, times := range map[string]int{
		"Paper 1: Tunnels": 3, "End.M.GTP4.E costs more than End.DT4": 2, "Paper 2: Pods": 2, "culvert bench overlay": 2,
		"which this report does not have": 2, result.Criterion: 1, // the page has its apostrophe otherwise
	} {
		if got := strings.Count(suite, says); got != times {
			t.Errorf("the report of a suite says %q %d times, want %d", says, got, times)
		}
	}
	if !strings.Contains(suite, `<span class="verdict agrees">agrees in 1 of 1</span>`) {
		t.Error("the first paper has no verdict")
	}
	if alone := draw("testdata/suite/functions"); !strings.Contains(alone, "Paper 1") || strings.Contains(alone, "Paper 2") {
		t.Error("a run alone has other boxes than its own")
	}
	if compared := draw("testdata/suite", "testdata/later"); strings.Contains(compared, "Paper 1") {
		t.Error("a comparison has boxes")
	}
}

// The first page has three warnings at most, whatever the experiments warn of.
func TestPlainWarnings(t *testing.T) {
	bad := func(name string) part {
		r := oneBar(1)
		r.Complete, r.NoiseLimit, r.Environment.Noise = false, 0.1, 0.25
		r.Warnings = []string{"a", "b", "c", "d"}
		return part{name: name, sources: []source{{run: r}}}
	}
	got := report{Parts: []part{bad("slices"), bad("device")}}.Warnings()
	want := []string{
		"Stopped before the end, so that something is missing: slices, device.",
		"Too noisy to claim anything: slices (others took 25 % of a CPU's time, 10 % is the limit), device (others took 25 % of a CPU's time, 10 % is the limit).",
		"Some points have remarks, which stand with their experiments: slices (4), device (4).",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}
	fine := part{name: "fine", sources: []source{{run: oneBar(1)}}}
	if got := (report{Parts: []part{fine, fine}}).Warnings(); len(got) != 0 {
		t.Errorf("nothing is wrong, and it says %q", got)
	}
}
