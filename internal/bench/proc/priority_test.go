package proc

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGoAhead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("going before others is root's")
	}
	child := func() string {
		t.Helper()
		out, err := exec.Command("nice").Output() // of the thread that starts it
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	usual := child()
	back, err := GoAhead()
	if err != nil {
		t.Fatal(err)
	}
	if got := child(); got != "-10" {
		t.Errorf("what is started goes at nice %s, want -10", got)
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
	if got := child(); got != usual {
		t.Errorf("afterwards at nice %s, want %s as before", got, usual)
	}
}

// All threads of a program go at once, and no others.
func TestAllRealtime(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("going before others is root's")
	}
	other := exec.CommandContext(t.Context(), "sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = other.Wait() // it was killed
	}()
	if err := AllRealtime(other.Process.Pid, Realtime); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]uint32{other.Process.Pid: unix.SCHED_FIFO, 0: unix.SCHED_NORMAL} {
		attr, err := unix.SchedGetAttr(pid, 0)
		if err != nil || attr.Policy != want {
			t.Errorf("process %d: policy %d, want %d: %v", pid, attr.Policy, want, err)
		}
	}
	if err := AllRealtime(-1, Realtime); err == nil {
		t.Error("a process that is not there was found")
	}
}
