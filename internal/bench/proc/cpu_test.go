package proc

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Bind binds all threads of a process, and nobody else's.
func TestBind(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another process's CPUs are root's")
	}
	own, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	if err := Bind(other.Process.Pid, own[0]); err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(other.Process.Pid, &set); err != nil || set.Count() != 1 || !set.IsSet(own[0]) {
		t.Errorf("it may run on %v (%v), want CPU %d", set, err, own[0])
	}
	if now, err := Allowed(); err != nil || !slices.Equal(now, own) {
		t.Errorf("this process may run on %v (%v), want %v as before", now, err, own)
	}
	if err := Bind(os.Getpid(), 100000); err == nil {
		t.Error("no error for a CPU that is not there")
	}
}

// While CPUs are kept awake, the kernel has the request, and afterwards it has not.
func TestAwake(t *testing.T) {
	const device = "/dev/cpu_dma_latency"
	if os.Geteuid() != 0 {
		t.Skip(device + " is root's")
	}
	latency := func() (us [4]byte) {
		f, err := os.Open(device)
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("this kernel has no " + device)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Read(us[:]); err != nil {
			t.Fatal(err)
		}
		return us
	}
	usual := latency()
	back, err := Awake()
	if err != nil {
		t.Fatal(err)
	}
	if got := latency(); got != [4]byte{} {
		t.Errorf("the kernel may take %v to wake up, want 0", got)
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
	if got := latency(); got != usual {
		t.Errorf("afterwards %v, want %v as before", got, usual)
	}
}
