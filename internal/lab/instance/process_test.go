package instance

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessOfAnother wants a process that only has the number of the lab's
// to be left alone.
func TestProcessOfAnother(t *testing.T) {
	start, ok := startTime(os.Getpid())
	if !ok || start == "" {
		t.Fatal("this process has no start time")
	}
	p := Process{Node: "n", Name: "test", PID: os.Getpid(), Start: start + "1"}
	if p.Alive() {
		t.Error("a process of another start time is taken for this one")
	}
	if err := p.Stop(unix.SIGKILL, time.Second); err != nil {
		t.Error(err)
	}
}
