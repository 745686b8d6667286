package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/loop"
)

// Nobody can carry what these demands ask for: e has no link, no list is as quick as red asks,
// and each link has what green excludes or lacks what it asks for.
const impossible = `
nodes:
  - {name: a, sid: "fc00:a::1", locator: "fc00:a::/32", api: "SOCKET"}
  - {name: b, sid: "fc00:b::1", locator: "fc00:b::/32"}
  - {name: c, sid: "fc00:c::1", locator: "fc00:c::/32"}
  - {name: d, sid: "fc00:d::1", locator: "fc00:d::/32"}
  - {name: e, sid: "fc00:e::1", locator: "fc00:e::/32"}
links:
  - {from: a, to: b, capacity: 10Mbit, delay: 2ms, affinity: [0]}
  - {from: b, to: d, capacity: 10Mbit, delay: 2ms, affinity: [0]}
  - {from: a, to: c, metric: 20, capacity: 10Mbit, delay: 3ms}
  - {from: c, to: d, metric: 20, capacity: 10Mbit, delay: 3ms}
classes:
  - {color: 1, name: red, max_delay: 1ms}
  - {color: 3, name: green, exclude: [0], include_any: [5]}
demands:
  - {headend: a, endpoint: e, rate: 1Mbit}
  - {headend: a, endpoint: d, color: 3, rate: 1Mbit}
engine: {apply: true, every: 1s, listen: "LISTEN"}
`

// What cannot be carried, and why: `te plan` says it, and these demands follow the IGP.
func TestImpossibleDemands(t *testing.T) {
	file := strings.NewReplacer("SOCKET", "/a.sock", "LISTEN", "off", "demands:", "demands:\n  - {headend: a, endpoint: d, color: 1, rate: 1Mbit}").Replace(impossible)
	var all strings.Builder
	for _, args := range []string{"plan -", "explain - a:e", "explain - a:d:1", "explain - a:d:3"} {
		r := command(t.Context(), file, strings.Fields("te "+args)...)
		if r.code != cmdline.ExitOK {
			t.Errorf("te %s: exit %d: %s", args, r.code, r.stderr)
		}
		all.WriteString("$ culvert te " + args + "\n" + r.stdout + "\n")
	}
	golden(t, "te_bad", all.String())
	for classes, want := range map[string]string{
		"{color: 1, exclude: [3], include_any: [3]}": "classes[0].include_any: asks only for what exclude forbids: no link suits (fix: remove the bits from one of them)",
		"{color: 1}, {color: 1}":                     "classes[1]: class of color 1 is also classes[0] (fix: keep one)",
	} {
		r := command(t.Context(), "classes: ["+classes+"]", "te", "plan", "-")
		if r.code == cmdline.ExitOK || !strings.Contains(r.stderr, want) {
			t.Errorf("classes %s: exit %d: %s", classes, r.code, r.stderr)
		}
	}
}

// restarting sends 3 Mbit/s by each policy, counted since a time that may change.
type restarting struct {
	*apitest.Agent
	since *atomic.Int64
}

func (r restarting) Policies() ([]agent.PolicyStatus, error) {
	all, err := r.Agent.Policies()
	for i := range all {
		all[i].Counter.Bytes = uint64(3e6 / 8 * time.Since(time.Unix(0, r.since.Load())).Seconds())
	}
	return all, err
}

// Demands that nobody can carry, counters that jump back, a link that comes and goes, and a file
// that is missing for a while: `te status` says it, and no headend changes.
func TestEngineOnBadInput(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(squarePolicies))
	if err != nil {
		t.Fatal(err)
	}
	dir, listen := t.TempDir(), freePort(t)
	socket, file := filepath.Join(dir, "a.sock"), filepath.Join(dir, "network.yaml")
	var since atomic.Int64
	since.Store(time.Now().UnixNano())
	serve(t, restarting{apitest.New(c), &since}, socket)
	whole := strings.NewReplacer("SOCKET", socket, "LISTEN", listen).Replace(impossible)
	write := func(text string) {
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(whole)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan result, 1)
	go func() { ended <- command(ctx, "", "te", "run", file) }()
	rounds := uint64(0)
	measured := func(s loop.State) bool { // in a later round; nobody measures what is in the file
		return s.Counts.Rounds > rounds && len(s.Demands) == 4 && len(s.Unknown) == 0 && s.Plan != nil && len(s.Plan.Problems) == 2
	}
	waitForState(t, listen, func(s loop.State) bool { defer func() { rounds = s.Counts.Rounds }(); return measured(s) })
	status := command(t.Context(), "", "te", "status", "--engine", listen).stdout
	for _, want := range []string{"a:e: no path leads there", "a:d:1: the quickest list takes 4ms, more than max_delay: 1ms; it goes by the IGP"} {
		if !strings.Contains(status, want) {
			t.Errorf("status does not say %q: %s", want, status)
		}
	}
	since.Store(time.Now().UnixNano()) // the headend's daemon has lost its counters
	rounds += 3
	waitForState(t, listen, func(s loop.State) bool {
		for _, d := range s.Demands {
			if d.Rate > 4e6 {
				t.Fatalf("a counter that fell is a rate: %+v", d)
			}
		}
		return measured(s)
	})
	_, without, _ := strings.Cut(whole, "links:")
	_, without, _ = strings.Cut(without, "\n  - {from: b")
	without = strings.Replace(whole, "  - {from: b"+without[:strings.Index(without, "\n")+1], "", 1)
	for range 3 { // a link comes and goes
		write(without)
		waitForState(t, listen, func(s loop.State) bool { return s.Plan != nil && len(s.Plan.Links) == 6 })
		write(whole)
		waitForState(t, listen, func(s loop.State) bool {
			return s.Plan != nil && len(s.Plan.Links) == 8 && strings.Contains(s.Word, "a link has returned: the network settles until")
		})
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	waitForState(t, listen, func(s loop.State) bool { return s.Problem != "" })
	if r := command(t.Context(), "", "te", "status", "--engine", listen); r.code != cmdline.ExitCheckFailed || !strings.Contains(r.stdout, "nothing changes, because the network is unknown") || !strings.Contains(r.stderr, "network.yaml") {
		t.Errorf("status without a file: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	write(whole)
	waitForState(t, listen, func(s loop.State) bool { return s.Problem == "" && s.Counts.Changes == 0 })
	end()
	if r := <-ended; r.code != cmdline.ExitOK {
		t.Errorf("the engine: exit %d: %s", r.code, r.stderr)
	}
	if r := command(t.Context(), "", "candidate-path", "--socket", socket); strings.Contains(r.stdout, "te:") {
		t.Errorf("a headend has changed: %s", r.stdout)
	}
}
