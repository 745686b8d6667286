//go:build soak

package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/designs"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// What happens under load is measured of a design: the load doubles, a core comes and goes,
// one UE sends most. A design that cannot rescale says so.
func TestDesignEvents(t *testing.T) {
	needTwoCPUs(t)
	r, err := execute(t.Context(), t.TempDir(), "designs", "--rounds", "1", "--designs", "dp,steer", "--sizes", "64", "--sessions", "64", "--trial", "50ms", "--requests", "0s")
	if err != nil {
		t.Fatal(err)
	}
	dp, steer := designs.Labels("dp")["design"], designs.Labels("steer")["design"]
	for event, want := range map[string][]string{"doubled": {dp, steer}, "at 40 %": {dp, steer}, "at 80 %": {dp, steer}, "rescale": {steer}, "no rescale": {steer}} {
		for _, metric := range []string{"lost", "reordered", "gap_ms"} {
			var of []string
			for _, m := range r.Select(metric, result.Labels{"event": event}) {
				of = append(of, m.Labels["design"])
				if len(m.Samples) != 1 || metric == "gap_ms" && m.Samples[0] <= 0 {
					t.Errorf("%s of %s, %s: %v", metric, of, event, m.Samples)
				}
				if metric == "reordered" && m.Samples[0] > 0 {
					t.Errorf("%s of %s: %v packets of a UE were overtaken", event, of, m.Samples)
				}
			}
			if slices.Sort(of); !slices.Equal(of, want) {
				t.Errorf("%s, %s: of %q, want %q", metric, event, of, want)
			}
		}
	}
	for _, design := range []string{"dp", "steer"} {
		for _, ue := range []string{"heavy", "others"} {
			m := r.Select("p99_us", designs.Labels(design).With("event", "heavy", "ue", ue))
			if len(m) != 1 || len(m[0].Samples) != 1 || m[0].Samples[0] <= 0 {
				t.Errorf("P99 of %s UEs, %s: %v", ue, design, m)
			}
		}
		nothingOf(t, design)
	}
	if slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "came out") }) {
		t.Errorf("warnings %q: other packets came out than were sent", r.Warnings)
	}
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, "dp cannot rescale") }) {
		t.Errorf("warnings %q, want one that dp cannot rescale", r.Warnings)
	}
}
