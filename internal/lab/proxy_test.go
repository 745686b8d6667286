package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// A Service is told with both of its protocols, and what only kube-proxy does.
func TestServiceObjects(t *testing.T) {
	in := inCluster(t)
	s := &in.Services[0]
	s.Also, s.Local, s.Affinity = []string{"p"}, true, true
	text, err := json.Marshal([]any{object(s), endpoints(in, s, topology.IPv4), endpoints(in, s, topology.IPv6)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"clusterIPs":["10.96.0.1"]`, `"ipFamilies":["IPv4"]`, `"type":"NodePort"`, `"externalTrafficPolicy":"Local"`, `"sessionAffinity":"ClientIP"`,
		`"name":"udp","nodePort":30080,"port":80,"protocol":"UDP","targetPort":8080`,
		`"addressType":"IPv4"`, `"addresses":["10.244.1.3"],"conditions":{"ready":true},"nodeName":"x"`, `"addresses":["10.244.1.2"]`,
		`"name":"tcp","port":8080,"protocol":"TCP"`, `"kubernetes.io/service-name":"web"`, `"addresses":["fd00:10:244:1::2"]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if rules := translation(in); strings.Contains(rules, "10.96.0.1") {
		t.Errorf("it is translated without kube-proxy, too:\n%s", rules)
	}
}

const standInPod = `nodes:
  - {name: x, kind: cluster, pod_cidrs: [10.244.1.0/24], config: {}}
  - {name: p, kind: pod, host: x}
`

func TestPodMTU(t *testing.T) {
	in := open(t, parse(t, "name: m\nsummary: s\n"+standInPod), unique("mtu"))
	p := in.Node("p")
	if err := in.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := in.MakeNamespace(p); err != nil {
		t.Fatal(err)
	}
	r := &runner{Instance: in, progress: quiet}
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
	if err := r.setRoute(t.Context(), &route, nil); err != nil {
		t.Fatal(err)
	}
	if err := ns.Batch([]string{"route add default dev eth0 mtu 1300"}, "-6"); err != nil {
		t.Fatal(err)
	}
	if got, err := podMTU(r.Instance, p); err != nil || len(got) != 2 || got[0] != 1400 || got[1] != 1300 {
		t.Errorf("MTU %v, %v", got, err)
	}
	route.Do = "no_route"
	if err := r.setRoute(t.Context(), &route, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := podMTU(r.Instance, p); err != nil || len(got) != 1 || got[0] != 1300 {
		t.Errorf("MTU %v, %v", got, err)
	}
}

// Events find kube-apiserver by the process that the lab started.
func TestSignalAPIServer(t *testing.T) {
	in := open(t, parse(t, "name: m\nsummary: s\nnodes: [{name: api, kind: apiserver}]\n"), unique("api"))
	n := in.Node("api")
	if err := in.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := in.MakeNamespace(n); err != nil {
		t.Fatal(err)
	}
	r := &runner{Instance: in, progress: quiet}
	for do, event := range map[string]func() error{
		"pause": func() error { return r.signalAPIServer(t.Context(), &topology.Event{Do: "pause", Node: "api"}, nil) },
		"stop":  func() error { return r.stop(t.Context(), &topology.Event{Do: "stop", Node: "api"}, nil) },
	} {
		if err := event(); err == nil || !strings.Contains(err.Error(), "does not run") {
			t.Errorf("%s without one: %v", do, err)
		}
	}
	if err := in.Start(n, topology.ApiServerProcess, "sleep", "60"); err != nil {
		t.Fatal(err)
	}
	p, _ := in.Process(n, topology.ApiServerProcess)
	for _, tt := range []struct {
		do      string
		stopped bool
	}{{"pause", true}, {"resume", false}} {
		if err := r.signalAPIServer(t.Context(), &topology.Event{Do: tt.do, Node: "api"}, nil); err != nil {
			t.Fatal(err)
		}
		if !instance.WaitFor(5*time.Second, func() bool { return stopped(t, p) == tt.stopped }) {
			t.Errorf("%s does not do it", tt.do)
		}
	}
	if err := r.stop(t.Context(), &topology.Event{Do: "stop", Node: "api"}, nil); err != nil || p.Alive() {
		t.Errorf("stop: %v", err)
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
