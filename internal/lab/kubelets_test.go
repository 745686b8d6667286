package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/dist/kubernetes"
	"github.com/culvert-net/culvert/internal/image"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Kubernetes gives its parts their rights by who they are.
func TestUsers(t *testing.T) {
	real := &instance.Instance{Topology: parse(t, kubeletsOfOne)}
	for _, want := range []string{`lab,lab,lab,"system:masters"`, `system:node:x,system:node:x,system:node:x,"system:nodes"`, "system:kube-scheduler,"} {
		if !strings.Contains(users(real), want) {
			t.Errorf("no %s among\n%s", want, users(real))
		}
	}
	if got := users(inCluster(t)); strings.Count(got, "\n") != 1 {
		t.Errorf("without kubelets there is the administrator alone, not\n%s", got)
	}
}

func TestObjectsOfPods(t *testing.T) {
	in := &instance.Instance{Topology: parse(t, kubeletsOfOne)}
	text := func(object map[string]any) string {
		out, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	pod := text(podObject(in, in.Node("q")))
	for _, want := range []string{`"kubernetes.io/hostname":"x"`, `"hostPort":8080`, `"protocol":"UDP"`, `"service-web":"true"`} {
		if !strings.Contains(pod, want) {
			t.Errorf("no %s in %s", want, pod)
		}
	}
	if other := text(podObject(in, in.Node("p"))); strings.Contains(other, "service-web") {
		t.Errorf("p is not of the Service: %s", other)
	}
	if s := text(serviceOf(in, in.Services[0])); !strings.Contains(s, `"selector":{"service-web":"true"}`) || !strings.Contains(s, `"nodePort":30080`) {
		t.Errorf("Service %s", s)
	}
}

// In a mode that is called like a family the cluster knows nothing of the other.
func TestOneFamily(t *testing.T) {
	for mode, want := range map[string]struct{ pods, services, node, service string }{
		"containerd-2": {"10.244.0.0/16,fd00:10:244::/48", "10.96.0.0/16,fd00:10:96::/112", "[10.0.0.1 2001:db8::1]", `"clusterIPs":["10.96.0.100","fd00:10:96::100"]`},
		topology.IPv4:  {"10.244.0.0/16", "10.96.0.0/16", "[10.0.0.1]", `"clusterIPs":["10.96.0.100"]`},
		topology.IPv6:  {"fd00:10:244::/48", "fd00:10:96::/112", "[2001:db8::1]", `"clusterIPs":["fd00:10:96::100"]`},
	} {
		in := &instance.Instance{Topology: parse(t, kubeletsOfOne), State: instance.State{Variant: mode}}
		service, err := json.Marshal(serviceOf(in, in.Services[0]))
		if err != nil {
			t.Fatal(err)
		}
		if pods, services, node := ranges(in, podRanges), ranges(in, serviceRanges), fmt.Sprint(known(in, in.Node("x"))); pods != want.pods ||
			services != want.services || node != want.node || !strings.Contains(string(service), want.service) {
			t.Errorf("%s: pods %s, Services %s, node %s, Service %s", mode, pods, services, node, service)
		}
	}
	both := parse(t, strings.Replace(clusterOfOne, "[static, kube]", "[static, kube, ipv6]", 1))
	for _, p := range both.Plan([]string{topology.IPv6}, nil) {
		if p.Family == topology.IPv4 {
			t.Errorf("%s is made in %s", p.Title(), topology.IPv6)
		}
	}
}

// What the nodes get is what the Containerfile says, and what the manifest wants.
func TestCulvertImage(t *testing.T) {
	want, err := image.Read("../../dist/kubernetes/Containerfile", "/build")
	if err != nil {
		t.Fatal(err)
	}
	want.Name = "n:1"
	got := culvertOf("/build/bin/culvert", "/build/bin", "n:1")
	if !slices.Equal(got.Files, want.Files) || !slices.Equal(got.Entrypoint, want.Entrypoint) || !slices.Equal(got.Env, want.Env) {
		t.Errorf("%+v, and the Containerfile makes %+v", got, want)
	}
	if strings.Count(kubernetes.Manifest, shippedImage) != strings.Count(kubernetes.Manifest, "image: ") {
		t.Errorf("the manifest has other images than %s", shippedImage)
	}
}

func TestInventory(t *testing.T) {
	before := inventory{"x: routes": {"a", "b"}, "x: pods": {"p"}}
	if err := before.compare(inventory{"x: routes": {"a", "c"}, "x: pods": {"p"}}); err != nil {
		t.Errorf("as many, with other names: %v", err)
	}
	wantError(t, before.compare(inventory{"x: routes": {"a", "b", "c"}, "x: pods": {"p"}}), "x: routes", "2 before, 3 after", `came ["c"]`)
	wantError(t, before.compare(inventory{"x: routes": {"a", "b"}}), "x: pods", `went ["p"]`)
	if err := (inventory)(nil).compare(before); err != nil {
		t.Error(err)
	}
}

func TestFilesBelow(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a/b/c"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := filesBelow(dir)
	if err != nil || !slices.Equal(got, []string{"/a/b/c"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := filesBelow(filepath.Join(dir, "none")); len(got) > 0 || err != nil {
		t.Errorf("a folder that is not there: %q, %v", got, err)
	}
}

// A process is found below the one that it descends from, by what it was started with.
func TestProcesses(t *testing.T) {
	cmd := exec.Command("sh", "-c", "/bin/sleep 1234 & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	in := &instance.Instance{Topology: parse(t, kubeletsOfOne), State: instance.State{Processes: []instance.Process{{Node: "x", Name: instance.NodeProcess, PID: cmd.Process.Pid}}}}
	var found []int
	instance.WaitFor(instance.ReadyTime, func() bool {
		found, _ = processes(in, in.Node("x"), func(pid int) bool { return runs(pid, "sleep", "1234") })
		return len(found) == 1
	})
	if len(found) != 1 || instance.ParentOf(found[0]) != cmd.Process.Pid {
		t.Fatalf("found %v", found)
	}
	if err := (instance.Process{PID: found[0]}).Stop(9, instance.ReadyTime); err != nil {
		t.Error(err)
	}
	if none, err := processes(in, in.Node("x"), func(pid int) bool { return runs(pid, "sleep", "1235") }); len(none) > 0 || err != nil {
		t.Errorf("found %v, %v", none, err)
	}
}

// A switch is one link for all that are on it.
func TestSwitch(t *testing.T) {
	l := parse(t, `name: s
summary: three hosts on one link
nodes: [{name: a, kind: host}, {name: b, kind: host}, {name: c, kind: host}, {name: link, kind: switch}]
links:
  - ends: [{node: a, name: eth0, addresses: ["2001:db8::1/64"]}, {node: link, name: a}]
  - ends: [{node: b, name: eth0, addresses: ["2001:db8::2/64"]}, {node: link, name: b}]
  - ends: [{node: c, name: eth0, addresses: ["2001:db8::3/64"]}, {node: link, name: c}]
checks:
  - {name: to b, kind: ping, from: a, to: "2001:db8::2", count: 3, within: 10s}
  - {name: to c, kind: ping, from: a, to: "2001:db8::3", count: 3, within: 10s}
`)
	in := open(t, l, unique("switch"))
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	got, err := (&runner{Instance: in, progress: quiet}).run(t.Context(), []string{""})
	if err != nil || !got.Pass {
		t.Errorf("%v, %+v", err, got)
	}
}

// A command is run in a node of a lab that is up, whoever else works on the lab.
func TestExec(t *testing.T) {
	name := unique("exec")
	if _, _, err := execute(t, "exec", "kernel", "--as", name, "ue", "true"); err == nil {
		t.Error("the lab is not up, and nothing was said")
	}
	l, err := topology.Load("kernel")
	if err != nil {
		t.Fatal(err)
	}
	in := open(t, l, name)
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	node := l.Nodes[0]
	out, _, err := execute(t, "exec", "--as", name, "kernel", node.Name, "ip", "-br", "link", "show", "dev", l.Devices(node)[0])
	if err != nil || !strings.HasPrefix(out, l.Devices(node)[0]) {
		t.Errorf("%q, %v", out, err)
	}
	_, _, err = execute(t, "exec", "--as", name, "kernel", "nobody", "true")
	wantError(t, err, "nobody")
	for script, want := range map[string]int{"exit 3": 3, "kill -TERM $$": 143} {
		_, _, err = execute(t, "exec", "--as", name, "kernel", node.Name, "sh", "-c", script)
		if e, ok := errors.AsType[ended](err); !ok || e.ExitStatus() != want || e.Error() != "" {
			t.Errorf("%s: %v, want status %d and nothing said", script, err, want)
		}
	}
	// Who interrupts us means the command, which may have something to tidy up.
	out, _, err = execute(t, "exec", "--as", name, "kernel", node.Name, "sh", "-c", "trap 'echo tidied; exit 4' TERM; kill -TERM $PPID; while :; do sleep .1; done")
	if e, ok := errors.AsType[ended](err); !ok || e.ExitStatus() != 4 || out != "tidied\n" {
		t.Errorf("after a SIGTERM: %q, %v", out, err)
	}
}
