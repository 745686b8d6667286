package cli

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// sender has policies whose counters have grown at each reading.
type sender struct {
	*apitest.Agent
	octets atomic.Uint64
}

func (h *sender) Policies() ([]agent.PolicyStatus, error) {
	policy := func(name, endpoint string, octets uint64) agent.PolicyStatus {
		s := agent.PolicyStatus{Policy: srpolicy.Policy{Name: name, Color: 46}, Counter: agent.Counter{Bytes: octets}}
		if endpoint != "" {
			s.Endpoint = netip.MustParseAddr(endpoint)
		}
		return s
	}
	n := h.octets.Add(1e6)
	return []agent.PolicyStatus{
		policy("busy", "fc00:8::d46", n), policy("more", "fc00:8::d6", 1e6+n), policy("idle", "fc00:7::1", 5),
		policy("bound", "", n), policy("elsewhere", "2001:db8::1", n), policy("home", "fc00:1::1", n),
	}, nil
}

func sending(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "r1.sock")
	serve(t, &sender{Agent: apitest.New(&config.Config{})}, socket)
	return socket
}

func TestDemands(t *testing.T) {
	t.Parallel()
	r := command(t.Context(), "", "te", "demands", network8, "--node", "r1="+sending(t), "--every", "1s", "--for", "1s", "-o", "json")
	var m measured
	if err := json.Unmarshal([]byte(r.stdout), &m); err != nil || r.code != cmdline.ExitOK || r.stderr != "" {
		t.Fatalf("exit %d: %s%s: %v", r.code, r.stdout, r.stderr, err)
	}
	if len(m.Demands) != 2 || m.Demands[0].Endpoint != "r8" || m.Demands[0].Color != 46 || m.Demands[0].Rate <= 0 || m.Demands[1].Endpoint != "r7" || m.Demands[1].Rate != 0 {
		t.Errorf("demands: %+v", m.Demands)
	}
	want := []string{
		"policy bound of r1 is left out: it has no endpoint", "policy elsewhere of r1 is left out: no node has 2001:db8::1 as its SID, or in its locator",
		"policy home of r1 is left out: its endpoint is the headend",
	}
	if !slices.Equal(m.LeftOut, want) {
		t.Errorf("left out: %q", m.LeftOut)
	}
}

// A headend that is away leaves the others' demands readable.
func TestDemandsMissing(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone.sock")
	r := command(t.Context(), "", "te", "demands", network8, "--node", "r1="+sending(t), "--node", "r2="+gone, "--every", "1s", "--for", "1s")
	if r.code != cmdline.ExitCheckFailed || !strings.Contains(r.stdout, "no answer") || !strings.Contains(r.stdout, "r1:r8:46") || !strings.Contains(r.stderr, "1 of 2 headends did not answer the last reading") {
		t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	for args, want := range map[string]string{
		"":                                 "no node has an address: give nodes their api in the file, or --node",
		"--node r9=/x":                     `--node: no node is called "r9"`,
		"--node r1=x":                      "node r1:",
		"--node r1=/x --every 0s":          "--every: give more than 0",
		"--node r1=/x --every 2s --for 1s": "--for: give 2s or more",
	} {
		if r := command(t.Context(), "", strings.Fields("te demands "+network8+" "+args)...); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: exit %d: %s, want %q", args, r.code, r.stderr, want)
		}
	}
	if r := command(t.Context(), "", "__complete", "te", "demands", network8, "--node", ""); !strings.Contains(r.stdout, "r1=") {
		t.Errorf("completion of nodes: %q", r.stdout)
	}
}
