package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/printer"
)

// fakeAgents answer by the name of their pod.
type fakeAgents struct {
	nodes   []connectivity.Node
	answers map[string]string
}

func (f fakeAgents) Agents(context.Context) ([]connectivity.Node, error) { return f.nodes, nil }

func (f fakeAgents) Exec(_ context.Context, in connectivity.Container, _ io.Reader, command ...string) ([]byte, error) {
	text, there := f.answers[in.Pod]
	if there && strings.Contains(text, `"problem`) { // culvert status ends with 3
		return []byte(text), errors.New("culvert: not as they should be: 2 of these")
	}
	if !there || strings.Join(command, " ") != "/usr/bin/culvert status -o json" {
		return nil, errors.New("container not found")
	}
	return []byte(text), nil
}

func TestClusterStatus(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	status := func(o *agent.OverlayStatus) string {
		text, err := json.Marshal(agent.Status{Version: "v1", Started: now.Add(-time.Minute), Overlay: o,
			Resources: map[desired.Kind]int{desired.KindSID: 2, desired.KindPolicy: 4},
			Outcomes:  []agent.Outcome{{Reason: "no_route", Drop: true, Counter: agent.Counter{Packets: 7}}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	in := func(pod string) connectivity.Container { return connectivity.Container{Pod: pod} }
	f := fakeAgents{
		nodes: []connectivity.Node{{Name: "n4", Agent: in("d")}, {Name: "n1", Agent: in("a")}, {Name: "n2", Agent: in("b")},
			{Name: "n3", Problem: "there is no pod of the DaemonSet culvert on it"}},
		answers: map[string]string{
			"a": status(&agent.OverlayStatus{Self: overlay.Node{Address: netip.MustParseAddr("2001:db8::1"), Locator: netip.MustParsePrefix("fc00:0:1::/48")},
				Nodes: 3, Pods: 5, MTU: 1460, BGPSessions: 3, BGPEstablished: 2, NetworkPolicy: "not enforced"}),
			"b": status(&agent.OverlayStatus{Nodes: 3, MTU: 1460, Problems: []string{"eth1 is down", "no uplink"}, NetworkPolicy: "not enforced"}),
		},
	}
	members, err := askMembers(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if err := verdictOn(members, nil); cmdline.Code(err) != cmdline.ExitCheckFailed || err.Error() != "not as they should be: 3 of 4 nodes" {
		t.Errorf("exit %d: %v", cmdline.Code(err), err)
	}
	if err := verdictOn(members[:1], nil); err != nil {
		t.Errorf("n1 is ready: %v", err)
	}
	a, out := &app{now: func() time.Time { return now }}, &strings.Builder{}
	if err := printer.WriteTable(out, func(g *printer.Grid) { a.membersTable(g, members) }); err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		strings.Fields("NODE ADDRESS LOCATOR VERSION UP NODES PODS MTU SIDS POLICIES BGP DROPPED STATE"),
		strings.Fields("n1 2001:db8::1 fc00:0:1::/48 v1 1m0s 3 5 1460 2 4 2/3 7 ready"),
		strings.Fields("n2 - - v1 1m0s 3 0 1460 2 4 - 7 eth1 is down; no uplink"),
		strings.Fields("n3 - - - - - - - - - - - there is no pod of the DaemonSet culvert on it"),
		strings.Fields("n4 - - - - - - - - - - - container not found"),
		nil,
		strings.Fields("NetworkPolicy is not enforced."),
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("printed\n%s", out)
	}
	for i, line := range lines {
		if got := strings.Join(strings.Fields(line), " "); got != strings.Join(want[i], " ") {
			t.Errorf("line %d is %q, want %q", i, got, want[i])
		}
	}
}
