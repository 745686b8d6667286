//go:build e2e

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/designs"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// foreignCommand runs Culvert as an operator starts any other UPF: by a file of its own. Its
// pins are at the default place, in a bpffs that is its own.
func foreignCommand(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	c := catalog.Configuration(nil, 1)
	signalling.Configure(c, 64, false)
	c.API.Socket, c.Metrics.Listen = filepath.Join(dir, "culvert.sock"), "off"
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "culvert.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("exec %s run --config %s --state %s", culvert, file, filepath.Join(dir, "state.db"))
}

// A UPF that is known by N4 only has all rows that ours have, and nothing of it stays.
func TestDesignsAgainst(t *testing.T) {
	needTwoCPUs(t)
	against := func(command string) []string {
		return []string{"designs", "--quick", "--rounds", "1", "--designs", "dp", "--events", "", "--against", "other=" + command}
	}
	_, err := execute(t.Context(), t.TempDir(), against("echo no such file; exit 3")...)
	if err == nil || !strings.Contains(err.Error(), "--against other: the command ended before it answered PFCP at 192.168.4.1:8805 (exit status 3); it wrote: no such file") {
		t.Errorf("a command that fails: %v", err)
	}
	r, err := execute(t.Context(), t.TempDir(), against(foreignCommand(t))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"cpu_ns", "p99_us", "n4_per_s", "n4_p99_us"} {
		ours, theirs := r.Select(metric, designs.Labels("dp")), r.Select(metric, designs.Labels("other"))
		if len(ours) == 0 || len(theirs) != len(ours) || len(theirs[0].Samples) != 1 || theirs[0].Samples[0] <= 0 {
			t.Errorf("%s: %v of ours, %v of the other UPF", metric, ours, theirs)
		}
	}
	if lost := r.Select("n4_unanswered", designs.Labels("other").With("offered", "0")); len(lost) != 1 || lost[0].Samples[0] != 0 {
		t.Errorf("unanswered handovers: %v", lost)
	}
	nothingOf(t, "other")
}
