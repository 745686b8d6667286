package cluster

import (
	"os/exec"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Of each repository the newest counts, and what the lab does not make counts nowhere.
func TestNewest(t *testing.T) {
	got := newest([]string{"r.io/e2e/agnhost:2.55", "r.io/e2e/agnhost:2.63.0", "r.io/e2e/agnhost:2.6", "r.io/pause:3.10.2", "r.io/e2e/busybox:1.36.1-1", "r.io/e2e/busybox:1.37.0-1", "r.io/e2e/nginx:1.27-0", "r.io/e2e/pause:"})
	want := map[string]string{"agnhost": "r.io/e2e/agnhost:2.63.0", "pause": "r.io/pause:3.10.2", "busybox": "r.io/e2e/busybox:1.37.0-1"}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for repository, name := range want {
		if got[repository] != name {
			t.Errorf("%s is %q, want %s", repository, got[repository], name)
		}
	}
}

// A program's libraries come with the loader, which finds them at the same place.
func TestLibraries(t *testing.T) {
	program, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	list, err := librariesOf(program)
	if err != nil || !slices.ContainsFunc(list, func(s string) bool { return len(s) > 0 && s[0] == '/' }) || len(list) < 2 {
		t.Errorf("%q, %v", list, err)
	}
}

// A mode that is called like one of kube-proxy's is that of all nodes.
func TestProxyMode(t *testing.T) {
	in := &instance.Instance{Topology: parse(t, kubeletsOfOne)}
	for variant, want := range map[string]string{"containerd-2": "nftables", "iptables": "iptables", topology.IPv4: "nftables"} {
		in.State.Variant = variant
		if got := proxyMode(in, in.Node("x")); got != want {
			t.Errorf("%s: %s, want %s", variant, got, want)
		}
	}
}

// The DNS of a cluster are objects of Kubernetes.
func TestDNSObjects(t *testing.T) {
	var objects []map[string]any
	if err := yaml.Unmarshal([]byte(dnsObjects), &objects); err != nil || len(objects) != 6 {
		t.Errorf("%d objects, %v", len(objects), err)
	}
}
