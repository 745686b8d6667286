package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/testutil/labtest"
)

// TestClusterWithoutAPI runs a cluster in the modes that need no Kubernetes API, with an API
// server among its nodes that does not run.
func TestClusterWithoutAPI(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-o", bin, "../../cmd/culvert", "../../cmd/culvert-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build` compiles them
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := fixture("cluster-of-one")
	text = text[:strings.Index(text, "  - {name: one,")] // the others need kube-proxy, or a plugin
	for old, with := range map[string]string{
		"[static, kube]": "[static, bgp, kube]",
		", host_ports: [{host: 8080, pod: 80, protocol: tcp}]": "",
		"config: {overlay: {uplinks: [eth0]}}":                 `config: {overlay: {uplinks: [eth0], address: "2001:db8::1", locator: "fc00:0:1::/48"}}`,
		"modes: {static: {overlay: {mode: static}}, ":          `modes: {static: {overlay: {mode: static, nodes: [{name: z, address: "2001:db8::9", locator: "fc00:0:9::/48", prefixes: [10.244.9.0/24]}]}}, bgp: {overlay: {mode: bgp}, bgp: {asn: 65000, router_id: 192.0.2.1, listen: ["2001:db8::1"], peers: [{address: "2001:db8::9", asn: 65000, source: "2001:db8::1"}]}}, `,
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not there", old)
		}
		text = strings.Replace(text, old, with, 1)
	}
	name := unique("cluster")
	in, err := instance.Open(parse(t, text), name, filepath.Join(bin, "culvert"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Down(quiet); err != nil {
			t.Error(err)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		labtest.WantNothingOf(t, name)
	}()
	if err := up(t.Context(), in, "static", quiet); err != nil {
		t.Fatal(err)
	}
	got, err := runChecks(t.Context(), &disturb.Runner{Instance: in}, []string{"static", "bgp"}, nil, quiet)
	if err != nil || !got.Pass || len(got.Checks) != 4 {
		t.Errorf("error %v, report %+v", err, got)
	}
}
