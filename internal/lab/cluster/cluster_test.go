package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/dist/kubernetes"
	"github.com/culvert-net/culvert/internal/config"
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
	pod := text(PodObject(in, in.Node("q")))
	for _, want := range []string{`"kubernetes.io/hostname":"x"`, `"hostPort":8080`, `"protocol":"UDP"`, `"service-web":"true"`} {
		if !strings.Contains(pod, want) {
			t.Errorf("no %s in %s", want, pod)
		}
	}
	if other := text(PodObject(in, in.Node("p"))); strings.Contains(other, "service-web") {
		t.Errorf("p is not of the Service: %s", other)
	}
	if s := text(serviceOf(in, in.Services[0])); !strings.Contains(s, `"selector":{"service-web":"true"}`) || !strings.Contains(s, `"nodePort":30080`) {
		t.Errorf("Service %s", s)
	}
}

// Pods without a kubelet are in the Kubernetes API where the mode has one: in others the API
// server need not run.
func TestPodsInTheAPI(t *testing.T) {
	in := inCluster(t)
	for mode, want := range map[string]bool{"static": false, "bgp": false, topology.KubeMode: true} {
		in.State.Variant = mode
		if got := inAPI(in, in.Node("p")); got != want {
			t.Errorf("%s: %v", mode, got)
		}
		if err := AnnouncePods(t.Context(), in); (err != nil) != want { // it does not run here
			t.Errorf("%s: %v", mode, err)
		}
	}
	real := &instance.Instance{Topology: parse(t, kubeletsOfOne), State: instance.State{Variant: topology.KubeMode}}
	if inAPI(real, real.Node("p")) {
		t.Error("a kubelet's pod")
	}
}

// What the shipped manifest configures is valid in each mode of a cluster of kubelets; nodes of
// which Kubernetes knows IPv4 addresses only accept each other's of IPv6.
func TestManifest(t *testing.T) {
	for mode, accepted := range map[string]int{"containerd-2": 0, topology.IPv4: 1, topology.IPv6: 0} {
		in := &instance.Instance{Topology: parse(t, kubeletsOfOne), State: instance.State{Variant: mode}}
		_, text, _ := strings.Cut(manifest(in), "  culvert.yaml: |\n")
		text, _, _ = strings.Cut(text, "---\n")
		c, err := config.Decode([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v in\n%s", mode, err, text)
		}
		c.SetDefaults()
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if list := c.Overlay.Accept.Addresses; len(list) != accepted || accepted > 0 && !list[0].Contains(in.Addresses(in.Node("x"))[1]) {
			t.Errorf("%s: accepts %v", mode, list)
		}
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
	want, err := image.Read("../../../dist/kubernetes/Containerfile", "/build")
	if err != nil {
		t.Fatal(err)
	}
	want.Name = "n:1"
	got := CulvertImage("/build/bin/culvert", "/build/bin", "n:1")
	if !slices.Equal(got.Files, want.Files) || !slices.Equal(got.Entrypoint, want.Entrypoint) || !slices.Equal(got.Env, want.Env) {
		t.Errorf("%+v, and the Containerfile makes %+v", got, want)
	}
	if strings.Count(kubernetes.Manifest, shippedImage) != strings.Count(kubernetes.Manifest, "image: ") {
		t.Errorf("the manifest has other images than %s", shippedImage)
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
		found, _ = Processes(in, in.Node("x"), func(pid int) bool { return Runs(pid, "sleep", "1234") })
		return len(found) == 1
	})
	if len(found) != 1 || parentOf(t, found[0]) != cmd.Process.Pid {
		t.Fatalf("found %v", found)
	}
	if err := (instance.Process{PID: found[0]}).Stop(9, instance.ReadyTime); err != nil {
		t.Error(err)
	}
	if none, err := Processes(in, in.Node("x"), func(pid int) bool { return Runs(pid, "sleep", "1235") }); len(none) > 0 || err != nil {
		t.Errorf("found %v, %v", none, err)
	}
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.PPID
}

// A kubelet takes kube-apiserver for a client that its authority signed.
func TestCertificates(t *testing.T) {
	n := &topology.Node{Name: "api"}
	in := &instance.Instance{Name: unique("pki")}
	if err := os.MkdirAll(in.File(n, ""), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(in.Dir()); err != nil {
			t.Error(err)
		}
	})
	if err := writeCertificates(in, n); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(in.File(n, "kubelet-client.crt"), in.File(n, "kubelet-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(in.File(n, "kubelet-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if got := pair.Leaf.Subject.String(); got != "CN=kube-apiserver,O=system:masters" {
		t.Errorf("the client is %s", got)
	}
}
