package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// A node's first process is this program.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "init" {
		if err := Init(context.Background(), os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it does not come to that", what)
		}
	}
}

// of is a node whose programs are scripts, which say what they see.
func of(t *testing.T) Spec {
	t.Helper()
	dir := t.TempDir()
	s := Spec{
		Name: "node-x", Root: filepath.Join(dir, "root"), Cgroup: "x", Programs: filepath.Join(dir, "programs"), Images: filepath.Join(dir, "images"),
		Containerd: Bin, ConfigVersion: 3, Pause: "pause:1", ProxyMode: "nftables", PodCIDRs: "10.244.0.0/16",
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")},
	}
	for name, text := range map[string]string{
		"containerd": "#!/bin/sh\nmkdir -p /run/containerd\necho >/run/containerd/containerd.sock\nexec sleep 1000\n",
		"ctr":        "#!/bin/sh\necho \"$@\" >>/var/seen-images\n",
		"kubelet":    "#!/bin/sh\n(sleep 0.1 &)\nhostname >>/var/seen-starts\ncat /proc/sys/kernel/panic >/var/seen-panic\ntouch /usr/seen 2>/var/usr; mv /var/usr /var/seen-usr\nexec sleep 1001\n",
		"kube-proxy": "#!/bin/sh\nls / >/var/seen-root\nexec sleep 1002\n",
		"loopback":   "", "portmap": "", "bandwidth": "",
	} {
		write(t, filepath.Join(s.Programs, "bin", name), text)
	}
	write(t, filepath.Join(s.Images, "one.tar"), "")
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	return s
}

// A node sees a root file system and settings of its own, starts what ends again,
// and ends whole.
func TestNode(t *testing.T) {
	s := of(t)
	panicBefore := text(t, "/proc/sys/kernel/panic")
	cmd, err := s.Command(filepath.Join(t.TempDir(), "node.json"), os.Args[0], "init")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test failed
	seen := func(name string) string { return filepath.Join(s.Root, "var/seen-"+name) }
	wait(t, "programs start", func() bool { _, err := os.Stat(seen("root")); return err == nil })
	wait(t, "the kubelet sees", func() bool { _, err := os.Stat(seen("usr")); return err == nil })

	if got := text(t, seen("panic")); got != "10" {
		t.Errorf("kernel.panic is %s in the node", got)
	}
	if got := text(t, seen("usr")); !strings.Contains(got, "Read-only") {
		t.Errorf("/usr of the machine: %q", got)
	}
	if got := text(t, seen("images")); got != "--address "+Socket+" --namespace k8s.io images import /opt/images/one.tar" {
		t.Errorf("ctr was asked for %q", got)
	}
	root := strings.Fields(text(t, seen("root")))
	for _, name := range root {
		if name == "home" || name == "root" || name == "boot" {
			t.Errorf("the node has %q of the machine's", name)
		}
	}

	kubelet := pidOf(t, "sleep\x001001\x00")
	if err := unix.Kill(kubelet, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, "the kubelet starts again", func() bool { return strings.Count(text(t, seen("starts")), s.Name) == 2 })
	if after := text(t, "/proc/sys/kernel/panic"); after != panicBefore {
		t.Errorf("kernel.panic of the machine was %s, and is %s", panicBefore, after)
	}

	proxy := pidOf(t, "sleep\x001002\x00")
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, log.String())
	}
	if err := unix.Kill(proxy, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a program outlived its node: %v", err)
	}
}

// pidOf is the process that was started with these words.
func pidOf(t *testing.T, words string) (pid int) {
	t.Helper()
	wait(t, words, func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && string(text) == words {
				_, err = fmt.Sscanf(f, "/proc/%d/", &pid)
				return err == nil
			}
		}
		return false
	})
	return pid
}

func TestInitElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.json")
	write(t, file, "{}")
	out, err := exec.Command(os.Args[0], "init", file).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "first process") {
		t.Errorf("%v: %s: it must not take the machine for a node", err, out)
	}
}

func TestConfigurations(t *testing.T) {
	s := of(t)
	for version, want := range map[int]string{2: `sandbox_image = "pause:1"`, 3: `sandbox = "pause:1"`} {
		s.ConfigVersion = version
		text := s.containerdConfig()
		if !strings.Contains(text, want) || !strings.HasPrefix(text, fmt.Sprintf("version = %d\n", version)) || strings.Contains(text, "%!") {
			t.Errorf("version %d:\n%s", version, text)
		}
	}
	for text, want := range map[string]map[string]any{
		s.kubeletConfig(): {"cgroupRoot": "/x", "containerRuntimeEndpoint": "unix://" + Socket},
		s.proxyConfig():   {"mode": "nftables", "clusterCIDR": "10.244.0.0/16", "hostnameOverride": "node-x"},
	} {
		var got map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s is %v, want %v", key, got[key], value)
			}
		}
	}
	kubelet := s.services(s.Root)[1]
	for _, own := range []string{"10.0.0.1,2001:db8::1", "10.0.0.1,2001:db8::11"} {
		args, err := kubelet.args()
		if words := strings.Join(args, " "); err != nil || !strings.Contains(words, "--node-ip "+own+" ") {
			t.Errorf("kubelet %s, %v, want %s", words, err, own)
		}
		if err := s.SetAddresses([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::11")}); err != nil {
			t.Fatal(err)
		}
	}
}

// In each hierarchy of version 1 a node's cgroup has what a cpuset needs; of
// version 2 it has all controllers.
func TestMakeCgroup(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	write(t, filepath.Join(one, "cpuset/cpuset.cpus"), "0-1")
	write(t, filepath.Join(one, "cpuset/cpuset.mems"), "0")
	write(t, filepath.Join(one, "pids/tasks"), "")
	write(t, filepath.Join(two, "cgroup.controllers"), "cpu memory")
	for _, dir := range []string{one, two} {
		if err := makeCgroup(dir, "n"); err != nil {
			t.Fatal(err)
		}
	}
	if got := text(t, filepath.Join(one, "cpuset/n/cpuset.cpus")); got != "0-1" {
		t.Errorf("cpuset.cpus %q", got)
	}
	if _, err := os.Stat(filepath.Join(one, "pids/n")); err != nil {
		t.Error(err)
	}
	if got := text(t, filepath.Join(two, "cgroup.subtree_control")); got != "+memory" { // the last that was written
		t.Errorf("version 2: %q", got)
	}
	if _, err := os.Stat(filepath.Join(two, "n")); err != nil {
		t.Error(err)
	}
	if err := makeCgroup(t.TempDir(), "n"); err == nil {
		t.Error("no cgroups are mounted, and nothing was said")
	}
}

// The machine's own cgroups, with one below ours.
func TestCgroup(t *testing.T) {
	name := fmt.Sprintf("culvert-test-%d", os.Getpid())
	if err := MakeCgroup(name); err != nil {
		t.Fatal(err)
	}
	hierarchies, err := hierarchiesOf(cgroupDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(hierarchies[0], name, "below"), 0o755); err != nil {
		t.Error(err)
	}
	for range 2 { // what is gone is no error
		if err := RemoveCgroup(name); err != nil {
			t.Error(err)
		}
	}
	for _, h := range hierarchies {
		if _, err := os.Stat(filepath.Join(h, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", h, err)
		}
	}
}
