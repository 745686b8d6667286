//go:build e2e

package bench

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
	r, err := execute(t.Context(), t.TempDir(), "designs", "--quick", "--rounds", "1", "--events", "") // TestDesignEvents has them, in make soak
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range designs.Names() {
		if name == "ideal" {
			continue
		}
		for metric, more := range map[string]result.Labels{
			"cpu_ns": {"size": "64"}, "p50_us": {"size": "64", "load": "50 %"}, "p99_us": {"size": "64", "load": "50 %"}, "n4_per_s": {"offered": "0"}, "n4_p99_us": {"offered": "0"},
		} {
			labels := designs.Labels(name)
			maps.Copy(labels, more)
			if m := r.Select(metric, labels); len(m) != 1 || len(m[0].Samples) != 1 || m[0].Samples[0] <= 0 {
				t.Errorf("%s of %s: %v", metric, name, m)
			}
		}
		m := r.Select("n4_flooded_per_s", designs.Labels(name))
		if len(m) == 0 || len(m[0].Samples) != 1 || m[0].Samples[0] <= 0 && (name == "cp" || name == "both") {
			t.Errorf("n4_flooded_per_s of %s: %v", name, m)
		}
		// Beside packets the daemon may have had no time to answer any.
		if m := r.Select("n4_per_s", designs.Labels(name).With("offered", "0.5")); len(m) != 1 || len(m[0].Samples) != 1 {
			t.Errorf("n4_per_s of %s beside packets: %v", name, m)
		}
		nothingOf(t, name)
	}
	for _, cores := range []string{"1", "2"} {
		m := r.Select("pps_of_ideal", designs.Labels("ideal").With("cores", cores))
		if len(m) != 1 || len(m[0].Samples) != 1 || m[0].Samples[0] <= 0 {
			t.Errorf("packets of an ideal card on %s cores: %v", cores, m)
		}
	}
	nothingOf(t, "ideal")
	if cpus, err := proc.Allowed(); err != nil || len(cpus) < 2 {
		t.Errorf("afterwards this process may run on CPUs %v (%v): the tests behind this one are left out", cpus, err)
	}
}
