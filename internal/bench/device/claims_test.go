package device

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Culvert and Linux are compared where the rates are theirs, and not those of the interfaces in front
// of them; and never by one round.
func TestClaims(t *testing.T) {
	run := func(rounds int, pair float64) *result.Run {
		rate := func(metric, device string, value float64, more ...string) result.Measurement {
			labels := result.Labels{"device": device, "function": "end_dt6", "size": "64", "what": device + " end_dt6"}
			return result.Measurement{Metric: metric, Labels: labels.With(more...), Samples: slices.Repeat([]float64{value}, rounds)}
		}
		return &result.Run{Measurements: []result.Measurement{
			rate("pdr", CulvertDevice, 3e6), rate("pdr", KernelDevice, 1e6),
			rate(metricVethLoss, CulvertDevice, pair, "goal", "PDR"), rate(metricVethLoss, KernelDevice, 0, "goal", "PDR"),
			rate(metricVethLoss, CulvertDevice, 0.3, "goal", "NDR"),
		}}
	}
	d := &Experiment{Loss: 0.005}
	if claims := d.Claims(run(3, 0.001)); len(claims) != 1 || !strings.Contains(claims[0], "3.00 times (3.00 to 3.00)") {
		t.Errorf("three rounds: %q", claims)
	}
	for name, r := range map[string]*result.Run{"the pair loses too": run(3, 0.01), "one round": run(1, 0), "two rounds": run(2, 0)} {
		if claims := d.Claims(r); len(claims) != 0 {
			t.Errorf("%s: %q", name, claims)
		}
	}
}

// A device whose pair loses by itself is in no figure.
func TestDoubts(t *testing.T) {
	at := result.Labels{"device": "kernel", "size": "64"}
	ndr := result.Measurement{Metric: "ndr", Labels: at, Samples: []float64{1, 2, 3}}
	r := &result.Run{Measurements: []result.Measurement{ndr, {Metric: metricVethLoss, Labels: at.With("goal", "NDR"), Samples: []float64{0, 0.002, 0.001}}}}
	for goal, want := range map[string]bool{"NDR": true, "PDR": false} {
		if got := r.Doubts(ndr, pairLoses(goal, 0)); got != want {
			t.Errorf("%s: %v", goal, got)
		}
	}
	if r.Doubts(ndr, pairLoses("NDR", 0.005)) {
		t.Error("a loss that the goal allows is a doubt")
	}
}
