package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent"
)

func TestCNI(t *testing.T) {
	dir := t.TempDir()
	plugin := filepath.Join(dir, "plugin")
	if err := os.WriteFile(plugin, []byte("the program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"bin", "net.d"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	folders := []string{"--bin-dir", filepath.Join(dir, "bin"), "--conf-dir", filepath.Join(dir, "net.d")}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{append([]string{"cni", "install", "--plugin", plugin}, folders...), "wrote DIR/bin/culvert-cni\nwrote DIR/net.d/10-culvert.conflist\n"},
		{append([]string{"cni", "install", "--plugin", plugin}, folders...), ""},
		{append([]string{"cni", "uninstall"}, folders...), "removed DIR/net.d/10-culvert.conflist\nremoved DIR/bin/culvert-cni\n"},
	} {
		r := command(t.Context(), "", tt.args...)
		if got := strings.ReplaceAll(r.stdout, dir, "DIR"); r.code != ExitOK || got != tt.want {
			t.Errorf("%v: exit %d, %q, %s", tt.args, r.code, got, r.stderr)
		}
	}
	if r := command(t.Context(), "", append([]string{"cni", "install", "--plugin", dir + "/none"}, folders...)...); r.code != ExitError || !strings.Contains(r.stderr, "none") {
		t.Errorf("without a plugin: exit %d, %s", r.code, r.stderr)
	}
}

func TestCNIReady(t *testing.T) {
	f := start(t, "edge.yaml")
	f.Agent.Readiness = agent.PodReadiness{Reason: "no uplink"}
	if r := f.run(t, "cni", "ready"); r.code != ExitError || !strings.Contains(r.stderr, "not ready: no uplink") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
	f.Agent.Readiness = agent.PodReadiness{Ready: true}
	if got := f.ok(t, "cni", "ready"); got != "ready\n" {
		t.Errorf("printed %q", got)
	}
}
