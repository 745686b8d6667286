package instance

import (
	"context"
	"errors"
	"os"
	"strings"
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

// What Await says last is what it waited for, not that the time was over while it asked.
func TestAwaitSaysWhatItWaitedFor(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	asked := 0
	err := Await(ctx, time.Minute, func() error {
		if asked++; asked == 2 {
			cancel()
			return ctx.Err()
		}
		return errors.New("changes: 3, want 0 at most")
	})
	if err == nil || !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "changes: 3, want 0 at most") {
		t.Errorf("%v", err)
	}
}
