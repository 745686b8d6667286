//go:build e2e

package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/testutil/labtest"
)

// The benchmark runs this program as its BGP speaker: here, that is the test.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "bench" {
		c := SpeakerCommand()
		c.SetArgs(os.Args[3:])
		if err := c.ExecuteContext(context.Background()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if built != "" {
		if err := os.RemoveAll(built); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// built is the directory with the programs that are measured.
var built string

// build builds them, once for all tests.
var build = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "culvert-bench-overlay-"); err != nil {
		return "", err
	}
	const module = "github.com/culvert-net/culvert/cmd/"
	out, err := exec.Command("go", "build", "-o", built+"/", module+"culvert", module+"culvert-cni", module+"culvert-lab").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(built, "culvert"), nil
})

// setting is that of a run here.
func setting(t *testing.T) experiment.Setting {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	binary, err := build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return experiment.Setting{Culvert: binary, BPFFS: "/sys/fs/bpf", CPU: -1, Seed: 1, Warn: func(format string, args ...any) { t.Logf("warning: "+format, args...) }}
}

// newRun is one of short trials, with all that there is.
func newRun(t *testing.T) (*Params, *rig) {
	t.Helper()
	set := setting(t)
	p := params()
	p.Trial, p.Pods, p.Changes, p.Nodes = experiment.Duration(leastTrial), 4, 4, []int{5}
	p.Services, p.Connections = []int{0, 2}, 2
	p.Rules, p.Flows, p.Packets = []int{1, 20}, 40, 4096
	name := fmt.Sprintf("bench-t%d", os.Getpid())
	r, err := p.open(t.Context(), set, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		labtest.WantNothingOf(t, name)
	})
	return p, r
}

// measure takes one round of all points.
func measure(t *testing.T, p *Params, r *rig) *result.Run {
	t.Helper()
	plan, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	run := &result.Run{}
	for _, point := range plan.Points {
		samples, err := r.Measure(t.Context(), point, 0)
		if err != nil {
			t.Fatalf("%s: %v", point.ID, err)
		}
		for _, s := range samples {
			m := result.Measurement{Metric: s.Metric, Labels: s.Labels, Unit: s.Unit, Samples: []float64{s.Value}}
			if s.Baseline != nil {
				m.Baseline = []float64{*s.Baseline}
			}
			run.Measurements = append(run.Measurements, m)
		}
	}
	return run
}

// A whole run of short trials: each variant goes its way, every row is there, the
// agent knows its nodes, and nothing is left. Figures are for longer runs to tell.
func TestRun(t *testing.T) {
	p, r := newRun(t)
	run := measure(t, p, r)
	for _, f := range p.Figures() {
		if len(run.Select(f.Metric, f.Where)) == 0 {
			t.Errorf("figure %s shows %q, of which nothing was measured", f.ID, f.Metric)
		}
	}
	var out bytes.Buffer
	if err := PrintJSON(&out, nil, run); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, x := range got.Rows {
		rows = append(rows, fmt.Sprintf("%s %s %s %v %d", x.Name, x.Family, x.Protocol, x.GSO, x.Services))
		if !(x.Gbit > 0) || !(x.Ratio > 0) || !(x.PacketNS > 0) || !(x.PacketRatio > 0) || x.Name == x.Baseline && x.Ratio != 1 {
			t.Errorf("%+v", x)
		}
	}
	for _, v := range variants {
		for _, family := range Families() {
			for _, kind := range []string{"tcp true 0", "tcp false 0", "udp false 2", "tcp-flows true 2"} {
				if want := fmt.Sprintf("%s %s %s", v.name, family, kind); !slices.Contains(rows, want) {
					t.Errorf("no row %s", want)
				}
			}
		}
	}
	if len(rows) != 4*2*2*len(variants) {
		t.Errorf("%d rows", len(rows))
	}
	var agent []string
	for _, x := range got.Agent {
		agent = append(agent, x.Name+" "+x.By)
		if x.Nodes != 5 && x.By != "plugin, policies" || x.Name != metricMemory && (!(x.P50 > 0) || x.P99 < x.P50 || !(x.CPU > 0) && !strings.HasPrefix(x.By, "plugin")) || x.Name == metricMemory && !(x.MiB > 10) {
			t.Errorf("%+v", x)
		}
	}
	if want := []string{"pod_add agent", "pod_add plugin", "policy_change api", "policy_change bgp", "agent_memory ", "pod_add plugin, policies"}; !slices.Equal(agent, want) {
		t.Errorf("%q, want %q", agent, want)
	}
	if want := 2*5 + 4 + 3; len(got.Verdicts) != want {
		t.Errorf("%d verdicts, want %d: %v", len(got.Verdicts), want, got.Verdicts)
	}
	checkExchanges(t, got)
	checkWays(t, p, r)
	checkNodes(t, r)
}

// checkExchanges: there are requests of each kind, and pods with and without policies.
func checkExchanges(t *testing.T, got Report) {
	t.Helper()
	for _, x := range got.Exchanges {
		if !(x.CPUNS > 0) || !(x.P50 > 0) || x.P99 < x.P50 || !(x.Ratio > 0) {
			t.Errorf("%+v", x)
		}
	}
	if want := 3 * 2 * 2 * len(variants); len(got.Exchanges) != want {
		t.Errorf("%d rows of requests, want %d", len(got.Exchanges), want)
	}
	var names []string
	for _, x := range got.Policies {
		names = append(names, x.Direction+" "+x.Rules)
		if !(x.PacketNS > 0) || !(x.L2NS > 0) {
			t.Errorf("%+v", x)
		}
	}
	if want := []string{"ingress off", "ingress none", "ingress first", "ingress others", "ingress 1", "ingress 20", "ingress many",
		"egress off", "egress none", "egress first", "egress others", "egress 1", "egress 20",
		"forwarded off", "forwarded none", "forwarded first", "forwarded others", "forwarded 1", "forwarded 20"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// checkWays: a packet of another variant's way is reported.
func checkWays(t *testing.T, p *Params, r *rig) {
	t.Helper()
	v := variantOf(vxlan)
	v.way.outer = "IPv6"
	if err := r.proveWay(t.Context(), v, ipv6); err == nil || !strings.Contains(err.Error(), "packets have IPv4, UDP, VXLAN, Ethernet around") {
		t.Errorf("VXLAN taken for SRv6: %v", err)
	}
	// With GSO off a pod's own packets are as large as its MTU.
	for _, value := range []string{on, off} {
		if err := r.setGSO(value); err != nil {
			t.Fatal(err)
		}
		if large := largestFrame(t, r); large > 2000 != (value == on) {
			t.Errorf("GSO %s: the largest frame has %d octets", value, large)
		}
	}
}

// largestFrame of TCP, as it comes to the second node of flat routing.
func largestFrame(t *testing.T, r *rig) (most int) {
	t.Helper()
	v, fd := variantOf(flat), -1
	err := r.network.Do(v.node(2), func() (err error) {
		fd, err = watch(uplink)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.openFlow(v, point{tcpGSO, ipv4, 0})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.core.serve(f, leastTrial); err != nil {
		t.Error(err)
	}
	for {
		n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_TRUNC|unix.MSG_DONTWAIT)
		if err != nil {
			break // no more
		}
		most = max(most, n)
	}
	if err := errors.Join(f.close(), unix.Close(fd)); err != nil {
		t.Error(err)
	}
	return most
}

// checkNodes: the agent goes back to fewer nodes, too.
func checkNodes(t *testing.T, r *rig) {
	t.Helper()
	if err := r.cluster.become(t.Context(), 3); err != nil {
		t.Error(err)
	}
	if active, err := r.cluster.active(t.Context(), otherNode(2).policy(ipv6)); err != nil || active != preferenceOfAll {
		t.Errorf("the path to the third of three nodes has preference %d, %v", active, err)
	}
	if active, err := r.cluster.active(t.Context(), otherNode(3).policy(ipv6)); err == nil {
		t.Errorf("there is a policy to the fourth of three nodes, of preference %d", active)
	}
}

// Each of knb's cases comes through, to the Service too, and each host has its share of a CPU.
func TestKNBHosts(t *testing.T) {
	set := setting(t)
	k := knb()
	k.Time, k.Variants = experiment.Duration(leastKNB), []string{ours, ipInIP}
	r, err := k.open(t.Context(), set, fmt.Sprintf("bench-t%d-knb", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, p := range k.points() {
		for _, v := range k.measured(p.of) {
			h, err := r.hosts(t.Context(), v, p)
			if err != nil {
				t.Fatalf("%s, %s: %v", p.of, v.name, err)
			}
			if p.of != caseIdle && h.bits <= 0 || h.lost < 0 || h.lost > 1 || h.used <= 0 {
				t.Errorf("%s, %s: %+v", p.of, v.name, h)
			}
			for i, host := range knbHosts {
				if total := h.cpu[i].Shares()["total"]; total < 0 || total > 100 || total == 0 && (p.of != caseIdle || h.cpu[i].Idle <= 0) {
					t.Errorf("%s, %s: %v %% of the CPU of the %s's host", p.of, v.name, total, host)
				}
				if has := h.agents[i] > 0; has != (v.name == ours) {
					t.Errorf("%s, %s: the agent of the %s's node has %v MB", p.of, v.name, host, h.agents[i])
				}
			}
		}
	}
	if _, err := r.Measure(t.Context(), experiment.Point{ID: "nothing"}, 0); err == nil {
		t.Error("a point that is not there was measured")
	}
}
