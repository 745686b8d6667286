//go:build e2e

package n9

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/lab"
	"github.com/culvert-net/culvert/internal/testutil/labtest"
)

// The laboratory runs this program as its GTP-U endpoint: here, that is the test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "smf" { // the laboratory starts this program as culvert-lab
		err := unix.Exec(os.Getenv(labProgram), append([]string{"culvert-lab"}, os.Args[1:]...), os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		cmd := lab.Command()
		cmd.SetArgs(os.Args[2:])
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if built != "" {
		code = max(code, failed(os.RemoveAll(built)))
	}
	os.Exit(code)
}

func failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// built is the directory with the program that is measured.
var built string

// build builds it, once for all tests.
var build = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "culvert-bench-n9-"); err != nil {
		return "", err
	}
	binary := filepath.Join(built, "culvert")
	out, err := exec.Command("go", "build", "-o", filepath.Dir(binary)+"/", "github.com/culvert-net/culvert/cmd/culvert", "github.com/culvert-net/culvert/cmd/culvert-lab").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, os.Setenv(labProgram, filepath.Join(built, "culvert-lab"))
})

// labProgram is the variable that names culvert-lab to the tests' own children.
const labProgram = "CULVERT_BENCH_TEST_LAB"

// setting is that of a run here.
func setting(t *testing.T) experiment.Setting {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, _, err := chooseCPUs(-1); err != nil {
		t.Skip(err)
	}
	binary, err := build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return experiment.Setting{Culvert: binary, CPU: -1, Seed: 1, Warn: func(format string, args ...any) { t.Logf("warning: "+format, args...) }}
}

// name is an instance that no other test run has.
func name(suffix string) string { return fmt.Sprintf("bench-t%d-%s", os.Getpid(), suffix) }

// Every transport delivers every packet of both slices as it was sent, in both
// Directions(), and none of them to the other slice.
func TestEveryTransport(t *testing.T) {
	set := setting(t)
	p := params()
	p.N9, p.Trial = Transports(), experiment.Duration(100*time.Millisecond)
	r, err := newRig(t.Context(), p, set, name("all"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { labtest.WantNothingOf(t, name("all")) })
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, d := range Directions() {
		for _, n := range Transports() {
			t.Run(n+" "+d, func(t *testing.T) {
				if err := r.goTo(t.Context(), n, d); err != nil {
					t.Fatal(err)
				}
				deliversAll(t, r)
				staysInItsSlice(t, r)
				losesInFront(t, r)
			})
		}
	}
}

func deliversAll(t *testing.T, r *rig) {
	t.Helper()
	var o outcome
	for try := 0; try == 0 || try < 5 && (o.lost() > 0 || o.short()); try++ { // others may keep the core for longer than a queue lasts
		var err error
		if o, err = r.load.send(t.Context(), 4000, 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.check(); err != nil {
		t.Error(err)
	}
	for i, s := range o.slices {
		if s.Sent < 150 && !s.AtLimit || s.Received != s.Sent || s.Reordered != 0 || s.Checked == 0 {
			t.Errorf("slice %s: %+v", bySessions[i].name, s)
		}
	}
	if h := o.latency(); h.Total() != o.received() || h.Quantile(0.5) <= 0 {
		t.Errorf("latency of %d packets of %d, median %v", h.Total(), o.received(), h.Quantile(0.5))
	}
}

// staysInItsSlice sends packets of one slice only: what receives the other's sees
// none.
func staysInItsSlice(t *testing.T, r *rig) {
	t.Helper()
	before, err := r.network.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.load.pairs[0].Run(t.Context(), traffic.Trial{Template: r.load.lanes[0].send, Rate: 2000, Duration: 50 * time.Millisecond})
	if err != nil || o.Received != o.Sent || o.Corrupt+o.Unexpected != 0 {
		t.Fatalf("slice A alone: %+v, %v", o, err)
	}
	after, err := r.network.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"upf3", "func2", "func4"} {
		if n := after[node].Outcomes["forwarded"] - before[node].Outcomes["forwarded"]; n != 0 {
			t.Errorf("%s, of slice B, forwarded %d packets of slice A", node, n)
		}
	}
	for _, node := range []string{"upf1", "upf2"} {
		if n := after[node].Outcomes["forwarded"] - before[node].Outcomes["forwarded"]; n != o.Sent {
			t.Errorf("%s forwarded %d packets of %d", node, n, o.Sent)
		}
	}
}

// losesInFront offers more than a core can do: what is lost is lost in the queue
// in front of the first node, and the core has done what it could.
func losesInFront(t *testing.T, r *rig) {
	t.Helper()
	before, err := r.network.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var o outcome
	received := uint64(0)
	for try := 0; try < 10 && o.lost() == 0; try++ { // while others use the machine the generator may be too slow
		if o, err = r.once(t.Context(), 0); err != nil { // as fast as the generator can
			t.Fatal(err)
		}
		received += o.received()
	}
	after, err := r.network.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.lost() == 0 || o.cpu <= 0 {
		t.Errorf("of %d packets none were lost, and the core worked for %v", o.sent(), o.cpu)
	}
	forwarded := func(nodes ...string) (n uint64) {
		for _, node := range nodes {
			n += after[node].Outcomes["forwarded"] - before[node].Outcomes["forwarded"]
		}
		return n
	}
	if first, second := forwarded("upf1"), forwarded("upf2", "upf3"); first != received || second != received {
		t.Errorf("UPF1 forwarded %d packets, the slices' UPFs %d, and %d came out: some were lost on the way", first, second, received)
	}
}

// A run killed in the middle leaves a laboratory behind, which the next takes
// away.
func TestAfterAKill(t *testing.T) {
	set := setting(t)
	cmd := exec.Command(set.Culvert, "lab", "up", topology, "--as", name("kill"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := params()
	p.Direction = []string{uplink}
	r, err := newRig(t.Context(), p, set, name("kill"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newRig(t.Context(), p, set, name("kill")); err == nil || !strings.Contains(err.Error(), "another `culvert bench slices` is running") {
		t.Errorf("a second run at the same time: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	labtest.WantNothingOf(t, name("kill"))
}

// TestQuick is a whole run of a few points: every figure has what it shows.
func TestQuick(t *testing.T) {
	set := setting(t)
	p := params()
	p.Quick()
	p.Rates = []float64{20, 40}
	bench, err := p.open(t.Context(), set, name("quick"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { labtest.WantNothingOf(t, name("quick")) })
	t.Cleanup(func() {
		if err := bench.Close(); err != nil {
			t.Error(err)
		}
	})
	if e, err := bench.Environment(t.Context()); err != nil || e.DataPath == "" || e.GeneratorLimit <= 0 {
		t.Errorf("environment %+v, %v", e, err)
	}
	plan, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, point := range plan.Points {
		samples, err := bench.Measure(t.Context(), point, 0)
		if err != nil {
			t.Fatalf("%s: %v", point.ID, err)
		}
		for _, s := range samples {
			seen[s.Metric]++
			wantPlausible(t, s)
		}
	}
	for _, f := range p.Figures() {
		if seen[f.Metric] == 0 {
			t.Errorf("figure %s shows %q, of which nothing was measured", f.ID, f.Metric)
		}
	}
}

func wantPlausible(t *testing.T, s experiment.Sample) {
	t.Helper()
	most := map[string]float64{metricDelivery: 1, metricSlice: 1, metricCost: 100_000, metricDelay: 1e9, metricDelayRate: 1e6, metricBusy: 1, metricMemory: 1e4}
	if !(s.Value > 0) || s.Value > most[s.Metric] {
		t.Errorf("%+v: want a value above 0, up to %v", s, most[s.Metric])
	}
	if s.Metric == metricCost && (s.Baseline == nil || *s.Baseline <= 0) {
		t.Errorf("%+v: GTP-U is not beside it", s)
	}
	if s.Metric == metricDelay && s.Histogram.Total() == 0 {
		t.Errorf("%+v: nothing is in its histogram", s.Labels)
	}
	if s.Metric != metricMemory && !slices.ContainsFunc(transports, func(x transport) bool { return x.label == s.Labels["transport"] }) {
		t.Errorf("%+v: no transport", s.Labels)
	}
}
