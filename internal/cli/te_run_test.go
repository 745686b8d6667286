package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/loop"
)

// Two policies from a to d, whose 12 Mbit/s fill a link of 10 on the IGP's way.
const (
	squareNetwork = `
nodes:
  - {name: a, sid: "fc00:a::1", locator: "fc00:a::/32", api: "SOCKET"}
  - {name: b, sid: "fc00:b::1", locator: "fc00:b::/32"}
  - {name: c, sid: "fc00:c::1", locator: "fc00:c::/32"}
  - {name: d, sid: "fc00:d::1", locator: "fc00:d::/32"}
links:
  - {from: a, to: b, capacity: 10Mbit}
  - {from: b, to: d, capacity: 10Mbit}
  - {from: a, to: c, metric: 20, capacity: 10Mbit}
  - {from: c, to: d, metric: 20, capacity: 10Mbit}
engine: {apply: APPLY, every: 1s, listen: "LISTEN"}
`
	squarePolicies = `
encapsulation: {source: "fc00:a::1"}
policies:
  - {name: red, color: 1, endpoint: "fc00:d::d1", segment_lists: [{segments: ["fc00:d::d1"]}]}
  - {name: blue, color: 2, endpoint: "fc00:d::d1", segment_lists: [{segments: ["fc00:d::d1"]}]}
`
)

// busy sends 6 Mbit/s by each policy.
type busy struct {
	*apitest.Agent
	since time.Time
}

func (b busy) Policies() ([]agent.PolicyStatus, error) {
	all, err := b.Agent.Policies()
	for i := range all {
		all[i].Counter.Bytes = uint64(6e6 / 8 * time.Since(b.since).Seconds())
	}
	return all, err
}

func TestEngineRuns(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(squarePolicies))
	if err != nil {
		t.Fatal(err)
	}
	socket, file := filepath.Join(t.TempDir(), "a.sock"), filepath.Join(t.TempDir(), "network.yaml")
	serve(t, busy{apitest.New(c), time.Now()}, socket)
	listen := freePort(t)
	write := func(apply string) {
		text := strings.NewReplacer("SOCKET", socket, "APPLY", apply, "LISTEN", listen).Replace(squareNetwork)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("false")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan result, 1)
	go func() { ended <- command(ctx, "", "te", "run", file) }()
	waitForState(t, listen, func(s loop.State) bool { return strings.Contains(s.Word, "engine.apply is false") })
	if r := command(t.Context(), "", "te", "status", "--engine", listen); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "changes nothing: engine.apply is false") || !strings.Contains(r.stdout, "a-b") {
		t.Errorf("status: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	write("true, repair: true") // the file is read anew
	waitForState(t, listen, func(s loop.State) bool { return s.Counts.Changes > 0 })
	var paths result
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !strings.Contains(paths.stdout, "te:repair:"); time.Sleep(50 * time.Millisecond) {
		paths = command(t.Context(), "", "candidate-path", "--socket", socket)
	}
	// The demand that has changed has lists by two links, the other one the policy's own.
	if !strings.Contains(paths.stdout, " 99 ") || !strings.Contains(paths.stdout, "valid, held ready") {
		t.Errorf("candidate paths lack a repair list:\n%s%s", paths.stdout, paths.stderr)
	}
	write("true") // without repair lists
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && strings.Contains(paths.stdout, "te:repair:"); time.Sleep(50 * time.Millisecond) {
		paths = command(t.Context(), "", "candidate-path", "--socket", socket)
	}
	if strings.Contains(paths.stdout, "te:repair:") {
		t.Errorf("repair lists are not removed:\n%s", paths.stdout)
	}
	metrics := get(t, listen, "/metrics")
	for _, want := range []string{"culvert_te_changes_total ", `culvert_te_utilisation_ratio{when="now"}`, `culvert_te_link_utilisation_ratio{link="a-b"}`, `culvert_te_demand_bits_per_second{color="1",endpoint="d",headend="a"}`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	if page := get(t, listen, "/"); !strings.Contains(page, "<h1>Traffic engineering</h1>") || !strings.Contains(page, "demand a:d:") || !strings.Contains(page, "changes headends") {
		t.Errorf("the page does not say what the engine did: %.2000s", page)
	}
	end()
	if r := <-ended; r.code != cmdline.ExitOK || !strings.Contains(r.stderr, "demand changed") || !strings.Contains(r.stderr, "lists stay") {
		t.Errorf("the engine: exit %d: %s", r.code, r.stderr)
	}
	// Its paths stay until they are withdrawn.
	if r := command(t.Context(), "", "candidate-path", "--socket", socket); !strings.Contains(r.stdout, "te:") || !strings.Contains(r.stdout, "150") {
		t.Errorf("candidate paths: %s%s", r.stdout, r.stderr)
	}
	if r := command(t.Context(), "", "te", "withdraw", file); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "a: ") || strings.Contains(r.stdout, "a: 0") {
		t.Errorf("withdraw: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := command(t.Context(), "", "te", "withdraw", file); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "a: 0 candidate paths removed") {
		t.Errorf("withdraw again: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestEngineErrors(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"te run " + network8:                                "no node has an address",
		"te run none.yaml":                                  "none.yaml",
		"te withdraw " + network8:                           "no node has an address",
		"te status --engine 127.0.0.1:1":                    "no engine at 127.0.0.1:1",
		"te withdraw " + network8 + " --node r1=/none.sock": "1 of 1 headends have kept their paths",
	} {
		if r := command(t.Context(), "", strings.Fields(args)...); r.code == cmdline.ExitOK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s, want %q", args, r.code, r.stderr, want)
		}
	}
}

// freePort is an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, address, path string) string {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://%s%s", address, path))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %v", path, answer.Status, err)
	}
	return string(text)
}

// waitForState asks the engine for its state until it is as wanted.
func waitForState(t *testing.T, listen string, wanted func(loop.State) bool) {
	t.Helper()
	var last string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		r := command(t.Context(), "", "te", "status", "--engine", listen, "-o", "json")
		last = r.stdout + r.stderr
		var s loop.State
		if err := json.Unmarshal([]byte(r.stdout), &s); err == nil && wanted(s) {
			return
		}
	}
	t.Fatalf("the last state is %s", last)
}
