//go:build apiserver

package kube_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apiserve"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// headend is an agent that takes SRv6Policies from the API server, and sends 6 Mbit/s by each policy.
type headend struct {
	*apitest.Agent
	cluster *kube.Audited
	since   time.Time
}

func (h headend) Policies() ([]agent.PolicyStatus, error) {
	all, err := h.Agent.Policies()
	if err != nil {
		return nil, err
	}
	paths, _, err := h.cluster.Paths("a")
	for i := range all {
		p := &all[i]
		p.Counter.Bytes = uint64(6e6 / 8 * time.Since(h.since).Seconds())
		var others []srpolicy.Candidate
		for name, c := range paths {
			if c.Color == p.Color {
				others = append(others, srpolicy.Candidate{CandidatePath: srpolicy.CandidatePath{
					Name: observed.KubePathName("srv6policy:" + name), Policy: p.Name, Preference: c.Preference, SegmentLists: c.SegmentLists, DelayConstraint: c.DelayConstraint}})
			}
		}
		p.Policy, p.Paths = srpolicy.Choose(p.Policy, others, "", func(srpolicy.SegmentList) error { return nil }, nil)
	}
	return all, err
}

// answers has an agent answer on a socket until the test ends.
func answers(t *testing.T, service agent.Service) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "a.sock")
	apiserve.Serve(t, config.API{Socket: socket}, api.NewHandler(service, nil))
	return socket
}

// program is an engine of the chart's Deployment that runs outside of the cluster.
type program struct {
	binary, file, listen string
	process              *exec.Cmd
}

// write has the engine read a network.
func (p *program) write(t *testing.T, network string) {
	t.Helper()
	err := os.WriteFile(p.file+".new", []byte(strings.Replace(network, "listen: :9474", "listen: "+p.listen, 1)), 0o600)
	if err == nil {
		err = os.Rename(p.file+".new", p.file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// runs starts an engine with the chart's command and account.
func runs(t *testing.T, c *kube.Audited, binary, network string) *program {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{binary: binary, file: filepath.Join(t.TempDir(), "network.yaml"), listen: l.Addr().String()}
	_ = l.Close()
	p.write(t, network)
	token := p.file + ".token"
	if err := os.WriteFile(token, []byte(strings.Repeat("secret", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := c.Command(t)
	for i, inPod := range args {
		args[i] = strings.NewReplacer("/etc/culvert-te/network.yaml", p.file, "/run/culvert-te/token", token, "/run/culvert-te/ca.crt", c.Authority()).Replace(inPod)
	}
	p.process = exec.Command(binary, append(args[1:], "--kubeconfig", c.Kubeconfig(t))...)
	p.process.Stderr = os.Stderr
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *program) kill() {
	_ = p.process.Process.Kill() // it has ended where this fails
	_ = p.process.Wait()
}

// is returns an error unless the engine's state is as wanted.
func (p *program) is(wanted func(loop.State) bool) func() error {
	return func() error {
		out, err := exec.Command(p.binary, "te", "status", "--engine", p.listen, "--output", "json").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var s loop.State
		if err := json.Unmarshal(out, &s); err != nil || !wanted(s) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

const sentBy = `
encapsulation: {source: "2001:db8::a"}
policies:
  - {name: red, color: 1, endpoint: "2001:db8::d", segment_lists: [{segments: ["fc00:d:0:6::"]}]}
  - {name: blue, color: 2, endpoint: "2001:db8::d", segment_lists: [{segments: ["fc00:d:0:6::"]}]}
`

// Two engines run as the chart has them, with the rights of its account: none writes before apply is
// true; one holds the Lease, and when it is killed the other one takes over what is there, without a
// write. All that they ask for is allowed, and they ask for all that is.
func TestEnginesRunOnAPIServer(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "culvert")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/culvert").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conf, err := config.Parse([]byte(sentBy))
	if err != nil {
		t.Fatal(err)
	}
	h := &headend{Agent: apitest.New(conf), since: time.Now()}
	node := func(name string) overlay.Node {
		return overlay.Complete(overlay.Node{Name: name, Address: netip.MustParseAddr("2001:db8::" + name),
			Locator: netip.MustParsePrefix("fc00:" + name + "::/48"), Prefixes: []netip.Prefix{netip.MustParsePrefix("fd00:" + name + "::/64")}}, false)
	}
	router := func(name string) map[string]any {
		return map[string]any{"name": name, "sid": "fc00:" + name + "::1", "locator": "fc00:" + name + "::/32"}
	}
	link := func(from, to string, metric int) map[string]any {
		return map[string]any{"from": from, "to": to, "metric": metric, "capacity": "10Mbit"}
	}
	cluster := kube.NewAudited(t, map[string]any{
		"config": map[string]any{"overlay": map[string]any{"accept": map[string]any{"addresses": []any{"2001:db8::/64"}, "pod_prefixes": []any{"fd00::/16"}, "sids": []any{"fc00::/16"}}}},
		"te": map[string]any{"enabled": true, "network": map[string]any{
			"nodes":  []any{map[string]any{"name": "a", "api": answers(t, h)}, map[string]any{"name": "d", "api": answers(t, apitest.New(&config.Config{}))}, router("b"), router("c")},
			"links":  []any{link("a", "b", 10), link("b", "d", 10), link("a", "c", 20), link("c", "d", 20)},
			"engine": map[string]any{"every": "1s", "hold": "5s"},
		}},
	}, node("a"), node("d"))
	h.cluster = cluster
	paths := func() map[string]kube.Path {
		t.Helper()
		all, _, err := cluster.Paths("a")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}

	dry := cluster.Network()
	first := runs(t, cluster, binary, dry)
	cluster.Waits(t, "the first engine would move packets", first.is(func(s loop.State) bool {
		return !s.Apply && s.Lease != nil && s.Lease.Held && s.Plan != nil && len(s.Plan.Moves) > 0
	}))
	if all := paths(); len(all) != 0 || slices.ContainsFunc(cluster.Asked(t), func(s string) bool { return strings.HasSuffix(s, "srv6policies") }) {
		t.Errorf("a dry run wrote %v, and asked for %q", all, cluster.Asked(t))
	}
	network := strings.Replace(dry, "apply: false", "apply: true", 1)
	first.write(t, network)
	cluster.Waits(t, "it has moved them", first.is(func(s loop.State) bool { return s.Counts.Changes > 0 && len(paths()) > 0 }))
	for name, p := range paths() {
		if !strings.HasPrefix(name, "a.te-") || p.Preference != 150 || len(p.SegmentLists) == 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	second := runs(t, cluster, binary, network)
	cluster.Waits(t, "the second one stands by", second.is(func(s loop.State) bool {
		return s.Lease != nil && !s.Lease.Held && s.Lease.Holder != "" && s.Plan != nil && len(s.Unknown) == 0
	}))

	hasRepair := func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(paths())), func(name string) bool { return strings.HasSuffix(name, "-repair") })
	}
	change := func(text string, what string, done func() bool) {
		t.Helper()
		for _, p := range []*program{first, second} {
			p.write(t, text)
		}
		cluster.Waits(t, what, func() error {
			if !done() {
				return fmt.Errorf("there are %v", paths())
			}
			return nil
		})
	}
	change(strings.Replace(network, "engine:", "engine:\n  repair: true", 1), "there are repair lists", hasRepair)
	change(network, "there are no repair lists", func() bool { return !hasRepair() })
	bounded := network + "\nclasses: [{color: 1, delay_bound: 20ms}, {color: 2, delay_bound: 20ms}]\n"
	change(bounded, "paths have a bound", func() bool {
		for _, p := range paths() {
			if p.DelayBound == 0 {
				return false
			}
		}
		return true
	})

	_, before, err := cluster.Paths("a")
	if err != nil {
		t.Fatal(err)
	}
	first.kill()
	killed := time.Now()
	cluster.Waits(t, "the second one takes over", second.is(func(s loop.State) bool {
		return s.Lease.Held && s.At.After(s.Lease.Since.Add(2*time.Second)) && s.Problem == "" && len(s.Held) == 0
	}))
	t.Logf("the second engine had done rounds with the lease %s after the first was killed", time.Since(killed).Round(time.Second))
	if _, after, err := cluster.Paths("a"); err != nil || !maps.Equal(before, after) {
		t.Errorf("it has written: %v, %v, %v", before, after, err)
	}
	if rights, asked := cluster.Rights(t), cluster.Asked(t); !slices.Equal(rights, asked) {
		t.Errorf("it may\n%q, and asks for\n%q", rights, asked)
	}
}
