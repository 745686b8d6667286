//go:build e2e

package ambr

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/testutil/labtest"
)

// labProgram is the variable that names culvert-lab to the tests' own children.
const labProgram = "CULVERT_BENCH_TEST_LAB"

// The laboratory starts this program as its GTP-U endpoint and as its SMF: here that is
// the test, which goes on as culvert-lab.
func TestMain(m *testing.M) {
	if program := os.Getenv(labProgram); program != "" && len(os.Args) > 1 && (os.Args[1] == "smf" || os.Args[1] == "lab") {
		err := unix.Exec(program, append([]string{"culvert-lab"}, os.Args[1:]...), os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Traffic of each kind goes through the session, and is counted behind its meter.
func TestTraffic(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	dir := t.TempDir()
	const module = "github.com/culvert-net/culvert/cmd/"
	if out, err := exec.Command("go", "build", "-o", dir+"/", module+"culvert", module+"culvert-lab").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	t.Setenv(labProgram, filepath.Join(dir, "culvert-lab"))
	p := params()
	p.AMBR, p.RTT, p.Time = []int{5}, []experiment.Duration{experiment.Duration(2 * time.Millisecond)}, experiment.Duration(leastTime)
	instance := fmt.Sprintf("bench-t%d-ambr", os.Getpid())
	r, err := p.open(t.Context(), experiment.Setting{Culvert: filepath.Join(dir, "culvert"), CPU: -1}, instance)
	if err != nil {
		t.Fatal(err)
	}
	for id, metrics := range map[string]int{
		"tcp uplink, 5 Mbit/s, RTT 2ms": 6, "tcp-4 downlink, 5 Mbit/s, RTT 2ms": 6, "tcp-short downlink, 5 Mbit/s, RTT 2ms": 6,
		"tcp-short uplink, 5 Mbit/s, RTT 2ms": 6, "udp downlink, 5 Mbit/s, RTT 2ms": 5,
	} {
		samples, err := r.Measure(t.Context(), experiment.Point{ID: id}, 0)
		if err != nil || len(samples) != metrics {
			t.Errorf("%s: %d metrics, want %d: %v", id, len(samples), metrics, err)
		}
		for _, s := range samples {
			if s.Value <= 0 && s.Metric != metricRetransmits && s.Metric != metricRefused && s.Metric != metricAgain {
				t.Errorf("%s: %s is %v", id, s.Metric, s.Value)
			}
		}
	}
	if _, err := r.Measure(t.Context(), experiment.Point{ID: "nothing"}, 0); err == nil {
		t.Error("a point that is not there was measured")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	labtest.WantNothingOf(t, instance)
}
