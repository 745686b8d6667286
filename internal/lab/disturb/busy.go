package disturb

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// occupy keeps a CPU busy with a process that runs before the threads of the CPU's queues
// of packets, which have priority 1: nothing takes from these meanwhile. The kernel ends
// it, because nobody else may get to run.
func occupy(ctx context.Context, a action) error {
	limit := strconv.FormatInt(time.Duration(a.event.For).Microseconds(), 10)
	c := exec.CommandContext(ctx, "prlimit", "--rttime="+limit+":"+limit,
		"taskset", "-c", strconv.Itoa(a.event.CPU), "chrt", "-f", "2", "sh", "-c", "while :; do :; done")
	out, err := c.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
		return ctx.Err()
	}
	return fmt.Errorf("keep CPU %d busy: %w: %s", a.event.CPU, err, strings.TrimSpace(string(out)))
}
