//go:build e2e

package sourcesink

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/testutil/labtest"
)

// All that is sent arrives by each encapsulation, in as many packets, and both ends take some of
// a CPU for it.
func TestEncapsulations(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir+"/", "github.com/culvert-net/culvert/cmd/culvert").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	p := params()
	p.Time = experiment.Duration(leastTime)
	instance := fmt.Sprintf("bench-t%d-sink", os.Getpid())
	lost := ""
	set := experiment.Setting{Culvert: filepath.Join(dir, "culvert"), CPU: -1, Warn: func(format string, args ...any) { lost = fmt.Sprintf(format, args...) }}
	r, err := p.open(t.Context(), set, instance)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range encapsulations {
		before, err := r.network.Counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		u, err := r.measure(t.Context(), e)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		after, err := r.network.Counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// 13 times two datagrams of 50,000 octets, each in 37 fragments of at most 1400 octets.
		sends := uint64(time.Duration(p.Time)/p.interval()) + 1
		if fragments := 2 * 37 * sends; lost != "" || u.packets < fragments || u.packets > fragments+4 || u.source <= 0 || u.sink <= 0 {
			t.Errorf("%s: %+v, want %d packets; %s", e.name, u, fragments, lost)
		}
		if n := after[sink].Outcomes["forwarded"] - before[sink].Outcomes["forwarded"]; n < u.packets {
			t.Errorf("%s: the sink forwarded %d packets of %d", e.name, n, u.packets)
		}
		for at, sid := range map[string]string{"r1": "fc00:3:e::/48", "r2": "fc00:4:e::/48"} {
			got := after[at].SIDs[sid] > before[at].SIDs[sid]
			if want := e.name == "enhanced-3" || e.name == "enhanced" && at == "r1"; got != want {
				t.Errorf("%s: SID %s of %s counts: %t, want %t", e.name, sid, at, got, want)
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
