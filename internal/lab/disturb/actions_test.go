package disturb

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const standInPod = `nodes:
  - {name: x, kind: cluster, pod_cidrs: [10.244.1.0/24], config: {}}
  - {name: p, kind: pod, host: x}
`

// do does one event.
func do(t *testing.T, r *Runner, e topology.Event) error {
	t.Helper()
	return Do(t.Context(), r, []topology.Event{e}, new(report.Outcome))
}

func TestPodMTU(t *testing.T) {
	in := open(t, parse(t, "name: m\nsummary: s\n"+standInPod), unique("mtu"))
	p := in.Node("p")
	if err := in.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := network.MakeNamespace(in, p); err != nil {
		t.Fatal(err)
	}
	r := &Runner{Instance: in}
	if _, err := podMTU(r.Instance, p); err == nil {
		t.Error("a pod without an interface has an MTU")
	}
	ns := in.Namespace(p)
	if err := ns.Batch([]string{"link add eth0 mtu 1400 type veth peer name other", "link set dev other up", "link set dev eth0 up"}); err != nil {
		t.Fatal(err)
	}
	if _, err := podMTU(r.Instance, p); err == nil || !strings.Contains(err.Error(), "no default route") {
		t.Errorf("without a route: %v", err)
	}
	route := topology.Event{Do: "route", Node: "p", Route: "default dev eth0"}
	if err := do(t, r, route); err != nil {
		t.Fatal(err)
	}
	if err := ns.Batch([]string{"route add default dev eth0 mtu 1300"}, "-6"); err != nil {
		t.Fatal(err)
	}
	if got, err := podMTU(r.Instance, p); err != nil || len(got) != 2 || got[0] != 1400 || got[1] != 1300 {
		t.Errorf("MTU %v, %v", got, err)
	}
	route.Do = "no_route"
	if err := do(t, r, route); err != nil {
		t.Fatal(err)
	}
	if got, err := podMTU(r.Instance, p); err != nil || len(got) != 1 || got[0] != 1300 {
		t.Errorf("MTU %v, %v", got, err)
	}
}

// Events find kube-apiserver, and culvert, by the process that the lab started.
func TestSignalDaemon(t *testing.T) {
	in := open(t, parse(t, "name: m\nsummary: s\nnodes: [{name: api, kind: apiserver}, {name: upf, kind: culvert, config: {}}]\n"), unique("api"))
	if err := in.Begin(); err != nil {
		t.Fatal(err)
	}
	r := &Runner{Instance: in}
	for node, name := range map[string]string{"api": cluster.APIServerProcess, "upf": daemon.CulvertProcess} {
		if err := network.MakeNamespace(in, in.Node(node)); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"pause", "stop"} {
			if err := do(t, r, topology.Event{Do: kind, Node: node}); err == nil || !strings.Contains(err.Error(), name+" does not run") {
				t.Errorf("%s without %s: %v", kind, name, err)
			}
		}
		if err := in.Start(in.Node(node), name, "sleep", "60"); err != nil {
			t.Fatal(err)
		}
		p, _ := in.Process(in.Node(node), name)
		for _, tt := range []struct {
			do      string
			stopped bool
		}{{"pause", true}, {"resume", false}} {
			if err := do(t, r, topology.Event{Do: tt.do, Node: node}); err != nil {
				t.Fatal(err)
			}
			if !instance.WaitFor(5*time.Second, func() bool { return stopped(t, p) == tt.stopped }) {
				t.Errorf("%s of %s does not do it", tt.do, name)
			}
		}
		if err := do(t, r, topology.Event{Do: "stop", Node: node}); err != nil || p.Alive() {
			t.Errorf("stop of %s: %v", name, err)
		}
	}
}

// stopped says whether a process stands still (proc_pid_stat(5): T).
func stopped(t *testing.T, p instance.Process) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "T")
}
