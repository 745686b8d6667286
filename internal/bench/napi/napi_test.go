package napi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
)

// pair is a namespace with two veths, one the other's peer.
func pair(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	name := fmt.Sprintf("culvert-bench-%d-napi", os.Getpid())
	run := func(args ...string) {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	run("netns", "add", name)
	t.Cleanup(func() { run("netns", "delete", name) })
	run("-netns", name, "link", "add", "a0", "type", "veth", "peer", "name", "b0")
	run("-netns", name, "address", "add", "192.0.2.1/24", "dev", "a0")
	run("-netns", name, "link", "set", "a0", "up")
	run("-netns", name, "link", "set", "b0", "up")
	path := filepath.Join("/run/netns", name)
	// A veth receives by NAPI where that is of use: what comes was not segmented.
	for _, feature := range [][]string{{"b0", "gro", "on"}, {"a0", "tso", "off"}} {
		args := append([]string{"--net=" + path, "ethtool", "-K"}, feature...)
		if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	return path
}

// The packets that the peer sends are received by the thread, on its CPU.
func TestThreads(t *testing.T) {
	path := pair(t)
	threads, err := Start(path, "b0", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(threads.PIDs) == 0 {
		t.Fatal("no thread")
	}
	for _, pid := range threads.PIDs {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil || set.Count() != 1 || !set.IsSet(0) {
			t.Errorf("thread %d may run on %v (%v), want CPU 0", pid, set, err)
		}
		if attr, err := unix.SchedGetAttr(pid, 0); err != nil || attr.Policy != unix.SCHED_FIFO || attr.Priority != proc.Realtime {
			t.Errorf("thread %d is scheduled by %+v (%v)", pid, attr, err)
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || !strings.HasPrefix(string(name), "napi/b0-") {
			t.Errorf("thread %d is %q (%v)", pid, name, err)
		}
	}
	before, err := proc.Time(threads.PIDs...)
	if err != nil {
		t.Fatal(err)
	}
	send(t, path)
	if after, err := proc.Time(threads.PIDs...); err != nil || after <= before {
		t.Errorf("ran for %v before packets came and %v after (%v)", before, after, err)
	}
	if err := threads.Stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := proc.Time(threads.PIDs[0]); err == nil {
		t.Errorf("thread %d is still there, with %v", threads.PIDs[0], left)
	}
}

// send makes a0 say something to b0.
func send(t *testing.T, path string) {
	t.Helper()
	// Asking for an address that nobody has sends requests for its neighbour.
	c := exec.Command("nsenter", "--net="+path, "ping", "-c", "3", "-i", "0.01", "-W", "1", "-I", "a0", "192.0.2.2")
	if out, err := c.CombinedOutput(); err == nil {
		t.Fatalf("somebody answered: %s", out)
	}
}

func TestErrors(t *testing.T) {
	path := pair(t)
	for _, tt := range []struct {
		namespace, device string
		cpu               int
		want              string
	}{
		{path, "c0", 0, "c0"},
		{path + "-not", "b0", 0, "no such file"},
		{path, "b0", 900, "bind thread"},
	} {
		if _, err := Start(tt.namespace, tt.device, tt.cpu); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Start(%q, %q, %d): %v, want %q", tt.namespace, tt.device, tt.cpu, err, tt.want)
		}
	}
}

// Packets interrupt a program that polls only after they waited for too long.
func TestDefer(t *testing.T) {
	path := pair(t)
	if err := Defer(path, "b0"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nsenter", "--net="+path, "unshare", "--mount", "sh", "-c",
		"mount -t sysfs none /sys && cat /sys/class/net/b0/napi_defer_hard_irqs /sys/class/net/b0/gro_flush_timeout").CombinedOutput()
	if err != nil || string(out) != "10\n20000\n" {
		t.Errorf("%q (%v)", out, err)
	}
	if err := Defer(path, "gone0"); err == nil {
		t.Error("no error where there is no interface")
	}
}

// What a device receives is handled on the CPU that it is steered to.
func TestSteer(t *testing.T) {
	path := pair(t)
	cpus, err := proc.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	for _, cpu := range cpus {
		if err := Steer(path, "b0", cpu); err != nil {
			t.Fatal(err)
		}
		const show = "mount -t sysfs none /mnt && cat /mnt/class/net/b0/queues/rx-0/rps_cpus"
		out, err := exec.Command("nsenter", "--net="+path, "unshare", "-m", "sh", "-c", show).CombinedOutput()
		words := strings.Split(strings.TrimSpace(string(out)), ",")
		slices.Reverse(words) // the least significant first
		if want := fmt.Sprintf("%08x", uint32(1)<<(cpu%32)); err != nil || len(words) <= cpu/32 || fmt.Sprintf("%08s", words[cpu/32]) != want {
			t.Errorf("CPU %d: rps_cpus %q, %v", cpu, out, err)
		}
	}
	if err := Steer(path, "nowhere0", 0); err == nil {
		t.Error("an interface that is not there is steered")
	}
}
