package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/designs"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// Each design forwards to its sessions' UEs, and answers handovers; nothing of them stays.
func TestDesigns(t *testing.T) {
	needTwoCPUs(t)
	soft := filepath.Join(filepath.Dir(culvert), "culvert-soft")
	_, err := execute(t.Context(), t.TempDir(), "designs", "--quick", "--rounds", "1", "--designs", "soft", "--requests", "0s")
	if err == nil || !strings.Contains(err.Error(), "make soft") {
		t.Errorf("without culvert-soft: %v, want an error that says how to build it", err)
	}
	if out, err := exec.Command("../../bpf/soft/build.sh", soft).CombinedOutput(); err != nil {
		t.Fatalf("build culvert-soft: %v\n%s", err, out)
	}
	defer os.Remove(soft)
	r, err := execute(t.Context(), t.TempDir(), "designs", "--quick", "--rounds", "1", "--events", "") // TestDesignEvents has them
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range designs.Names() {
		for metric, more := range map[string]result.Labels{
			"cpu_ns": {"size": "64"}, "p50_us": {"size": "64", "load": "50 %"}, "p99_us": {"size": "64", "load": "50 %"}, "n4_per_s": {"offered": "0"}, "n4_p99_us": {"offered": "0"},
		} {
			labels := result.Labels{"design": name}
			for k, v := range more {
				labels[k] = v
			}
			if m := r.Select(metric, labels); len(m) != 1 || len(m[0].Samples) != 1 || m[0].Samples[0] <= 0 {
				t.Errorf("%s of %s: %v", metric, name, m)
			}
		}
		// Beside packets the daemon may have had no time to answer any.
		if m := r.Select("n4_per_s", result.Labels{"design": name, "offered": "0.5"}); len(m) != 1 || len(m[0].Samples) != 1 {
			t.Errorf("n4_per_s of %s beside packets: %v", name, m)
		}
		nothingOf(t, name)
	}
	if cpus, err := proc.Allowed(); err != nil || len(cpus) < 2 {
		t.Errorf("afterwards this process may run on CPUs %v (%v): the tests behind this one are left out", cpus, err)
	}
}

// What happens under load is measured of a design: the load doubles, a core comes and goes,
// one UE sends most. A design that cannot rescale says so.
func TestDesignEvents(t *testing.T) {
	needTwoCPUs(t)
	r, err := execute(t.Context(), t.TempDir(), "designs", "--rounds", "1", "--designs", "dp,steer", "--sizes", "64", "--sessions", "64", "--trial", "50ms", "--requests", "0s")
	if err != nil {
		t.Fatal(err)
	}
	for event, designs := range map[string][]string{"doubled": {"dp", "steer"}, "at 40 %": {"dp", "steer"}, "at 80 %": {"dp", "steer"}, "rescale": {"steer"}, "no rescale": {"steer"}} {
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
			if slices.Sort(of); !slices.Equal(of, designs) {
				t.Errorf("%s, %s: of %q, want %q", metric, event, of, designs)
			}
		}
	}
	for _, design := range []string{"dp", "steer"} {
		for _, ue := range []string{"heavy", "others"} {
			m := r.Select("p99_us", result.Labels{"design": design, "event": "heavy", "ue": ue})
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
