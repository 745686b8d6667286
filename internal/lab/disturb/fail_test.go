package disturb

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const twoRouters = `name: m
summary: s
nodes:
  - {name: x, kind: frr, frr: {}, routes: ["fc00:9::/48 via fd00::2", "10.9.0.0/16 via 10.0.0.2"]}
  - {name: far, kind: host}
links:
  - ends: [{node: x, name: far, addresses: ["fd00::1/64", 10.0.0.1/24]}, {node: far, name: x, addresses: ["fd00::2/64", 10.0.0.2/24]}]
`

// routers builds them.
func routers(t *testing.T) *Runner {
	t.Helper()
	in := open(t, parse(t, twoRouters), unique("fail"))
	if err := in.Begin(); err != nil {
		t.Fatal(err)
	}
	for _, n := range in.Nodes {
		if err := network.MakeNamespace(in, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := network.MakeLinks(in, in.Links); err != nil {
		t.Fatal(err)
	}
	if err := network.Configure(in, in.Node("x")); err != nil {
		t.Fatal(err)
	}
	return &Runner{Instance: in}
}

// shown is what ip shows of addresses and routes of a router.
func shown(t *testing.T, r *Runner) (text string) {
	t.Helper()
	for _, what := range [][]string{{"address", "show", "dev", "far"}, {"route"}, {"-6", "route"}} {
		out, err := r.Namespace(r.Node("x")).Output("ip", what...)
		if err != nil {
			t.Fatal(err)
		}
		text += string(out)
	}
	return text
}

var ofRouter = []string{"inet6 fd00::1/64", "inet 10.0.0.1/24", "fc00:9::/48 via fd00::2", "10.9.0.0/16 via 10.0.0.2"}

// A link that was down has its addresses again.
func TestLinkReturns(t *testing.T) {
	r := routers(t)
	for _, e := range []string{"link_down", "link_up", "link_up"} {
		if err := do(t, r, topology.Event{Do: e, Node: "x", Device: "far"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := shown(t, r); !strings.Contains(got, ofRouter[0]) || !strings.Contains(got, ofRouter[1]) {
		t.Errorf("after link_up:\n%s", got)
	}
}

// A node that fails has no process and no link any more, and is as before when it is started.
func TestNodeFails(t *testing.T) {
	if _, err := os.Stat("/usr/lib/frr/zebra"); err != nil {
		t.Skip("needs FRR: install the package frr")
	}
	r := routers(t)
	x := r.Node("x")
	if err := daemon.StartFRR(t.Context(), r.Instance, x); err != nil {
		t.Fatal(err)
	}
	first, _ := r.Process(x, "zebra")
	if err := do(t, r, topology.Event{Do: "node_down", Node: "x"}); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, r); first.Alive() || !strings.Contains(got, "state DOWN") || strings.Contains(got, "fc00:9::") {
		t.Errorf("zebra runs: %v\n%s", first.Alive(), got)
	}
	if err := do(t, r, topology.Event{Do: "node_up", Node: "x"}); err != nil {
		t.Fatal(err)
	}
	if again, _ := r.Process(x, "zebra"); !again.Alive() || again == first {
		t.Errorf("zebra %+v, was %+v", again, first)
	}
	for _, want := range ofRouter {
		if got := shown(t, r); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// What an engine changed before the event does not count.
func TestEngineActs(t *testing.T) {
	r := routers(t)
	x := r.Node("x")
	event := topology.Event{Do: "engine_acts", Node: "x", For: topology.Duration(50 * time.Millisecond)}
	if err := do(t, r, event); err == nil {
		t.Error("no engine, and it acts")
	}
	var changes, asked atomic.Int64
	changes.Store(3)
	var l net.Listener
	err := r.Namespace(x).Do(func() (err error) {
		l, err = net.Listen("tcp", engineListen)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprintf(w, `{"counts": {"changes": %d}}`, changes.Load())
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	if err := do(t, r, event); err == nil || !strings.Contains(err.Error(), "has changed no lists") {
		t.Errorf("it changes nothing: %v", err)
	}
	asked.Store(0)
	go func() {
		instance.WaitFor(10*time.Second, func() bool { return asked.Load() > 0 })
		changes.Add(1)
	}()
	event.For = topology.Duration(10 * time.Second)
	if err := do(t, r, event); err != nil {
		t.Error(err)
	}
}
