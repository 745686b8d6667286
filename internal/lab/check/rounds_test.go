package check

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// The median decides, after three rounds at least; a round that fails by itself decides at once.
func TestRounds(t *testing.T) {
	for name, tt := range map[string]struct {
		lost []float64 // of each round; below 0: it fails
		made int
		pass bool
		says string
	}{
		"all within":                {[]float64{20, 30, 40}, 3, true, "packets were lost for 30 ms, the median of 20, 30, 40"},
		"one round of a busy host":  {[]float64{30, 900, 20}, 3, true, "30 ms, the median of 30, 900, 20"},
		"two of them take more":     {[]float64{900, 900, 20, 30, 25}, 5, true, "30 ms, the median of 900, 900, 20, 30, 25"},
		"an even number":            {[]float64{20, 60, 60, 30, 70}, 5, false, "60 ms, the median of 20, 60, 60, 30, 70: want 50 ms"},
		"it always takes long":      {[]float64{70, 70, 70, 70, 70}, 5, false, "want 50 ms"},
		"a round fails":             {[]float64{20, -1, 30}, 2, false, "broken"},
		"fractions are not rounded": {[]float64{50.4, 50.3, 50.2, 50.1, 50.1}, 5, false, "want 50 ms"},
	} {
		made := 0
		run := func(context.Context, topology.Planned) report.Result {
			lost := tt.lost[made]
			made++
			if lost < 0 {
				return report.Result{Detail: "broken"}
			}
			return report.Result{Pass: true, Detail: "more", Measured: report.Measured{LossFor: lost}}
		}
		p := topology.Planned{Check: &topology.Check{Rounds: 5, Expect: topology.Expect{LossFor: topology.Duration(50 * time.Millisecond)}}}
		if got := rounds(t.Context(), p, run); got.Pass != tt.pass || made != tt.made || !strings.Contains(got.Detail, tt.says) {
			t.Errorf("%s: %+v after %d rounds, want %v after %d, %q", name, got, made, tt.pass, tt.made, tt.says)
		}
	}
}

func TestActsWithin(t *testing.T) {
	c := &topology.Check{Expect: topology.Expect{ActsWithin: topology.Duration(2 * time.Second)}}
	for after, want := range map[float64]string{0: "no event says when", 1999: "", 2001: "answered after 2001 ms: want 2000 ms"} {
		o := report.Outcome{Measured: report.Measured{ActedAfter: after}}
		wantActed(c, &o)
		if got := strings.Join(o.Problems, "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
}
