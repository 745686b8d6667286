package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/cni/install"
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
		if got := strings.ReplaceAll(r.stdout, dir, "DIR"); r.code != cmdline.ExitOK || got != tt.want {
			t.Errorf("%v: exit %d, %q, %s", tt.args, r.code, got, r.stderr)
		}
	}
	if r := command(t.Context(), "", append([]string{"cni", "install", "--plugin", dir + "/none"}, folders...)...); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "none") {
		t.Errorf("without a plugin: exit %d, %s", r.code, r.stderr)
	}
}

// A UPF's chart finds the daemon that connects a node's pods by the configuration, and by the plugin
// while that is not written yet.
func TestCNIAbsent(t *testing.T) {
	dir := t.TempDir()
	folders := []string{"--bin-dir", filepath.Join(dir, "bin"), "--conf-dir", filepath.Join(dir, "net.d")}
	absent := func(code int, words string) {
		t.Helper()
		if code == cmdline.ExitError { // nor is anything detached
			r := command(t.Context(), "", append([]string{"unpin", "--spare-pods", "--pin-path", "/proc/none"}, folders...)...)
			if r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "nothing is detached") {
				t.Errorf("unpin: exit %d, %s%s", r.code, r.stdout, r.stderr)
			}
		}
		r := command(t.Context(), "", append([]string{"cni", "absent"}, folders...)...)
		if r.code != code || !strings.Contains(r.stderr, words) {
			t.Errorf("exit %d, %s, want %d and %q", r.code, r.stderr, code, words)
		}
	}
	absent(cmdline.ExitOK, "") // nor are there the folders
	for _, file := range []string{"bin/bridge", "net.d/05-other.conflist"} {
		put(t, filepath.Join(dir, file))
	}
	absent(cmdline.ExitOK, "")
	put(t, filepath.Join(dir, "bin/culvert-cni"))
	absent(cmdline.ExitError, "bin/culvert-cni): a UPF here would take its pins")
	put(t, filepath.Join(dir, "net.d/10-culvert.conflist"))
	absent(cmdline.ExitError, "10-culvert.conflist, ")
	if err := os.Remove(filepath.Join(dir, "bin/culvert-cni")); err != nil {
		t.Fatal(err)
	}
	absent(cmdline.ExitError, "10-culvert.conflist): ")
}

func put(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A runtime hears of the network when pods can be added, and not before.
func TestAnnounce(t *testing.T) {
	dir := t.TempDir()
	f := install.Files{ConfDir: dir, Version: "1.0.0"}
	asked, answers := make(chan struct{}), make(chan pods.Readiness)
	readiness := func() (pods.Readiness, error) {
		asked <- struct{}{}
		return <-answers, nil
	}
	ended := make(chan error, 1)
	go func() { ended <- announce(t.Context(), f, readiness, slog.New(slog.DiscardHandler)) }()
	<-asked
	answers <- pods.Readiness{Reason: "no uplink"}
	<-asked
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("before pods can be added: %v, %v", list, err)
	}
	answers <- pods.Readiness{Ready: true}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "10-culvert.conflist")); err != nil {
		t.Error(err)
	}

	ready := func() (pods.Readiness, error) { return pods.Readiness{Ready: true}, nil }
	f.ConfDir = filepath.Join(dir, "none")
	if err := announce(t.Context(), f, ready, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--cni-conf-dir: ") {
		t.Errorf("without the folder: %v", err)
	}
}

func TestCNIReady(t *testing.T) {
	f := start(t, "edge.yaml")
	f.Agent.Readiness = pods.Readiness{Reason: "no uplink"}
	if r := f.run(t, "cni", "ready"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "not ready: no uplink") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
	f.Agent.Readiness = pods.Readiness{Ready: true}
	if got := f.ok(t, "cni", "ready"); got != "ready\n" {
		t.Errorf("printed %q", got)
	}
}
