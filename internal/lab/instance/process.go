package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// ReadyTime is how long a program may take to come up, or to end.
const ReadyTime = 15 * time.Second

// NodeProcess is the first process of a node of kind kubelet.
const NodeProcess = "node"

// Process is one that a lab started. Its start time distinguishes it from another
// process that later has the same number.
type Process struct {
	Node  string `json:"node"`
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks since boot, from /proc/PID/stat
}

// startTime returns the start time of the process pid; ok is false when it has
// ended, or is dead and waited for by nobody.
func startTime(pid int) (start string, ok bool) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return "", false
	}
	stat, err := p.Stat()
	if err != nil || stat.State == "Z" || stat.State == "X" {
		return "", false
	}
	return strconv.FormatUint(stat.Starttime, 10), true
}

// Alive says whether the process still runs.
func (p Process) Alive() bool {
	start, ok := startTime(p.PID)
	return ok && start == p.Start
}

// Stop ends the process with the signal, and with SIGKILL if that does not
// help within the grace time.
func (p Process) Stop(signal unix.Signal, grace time.Duration) error {
	for _, s := range []unix.Signal{signal, unix.SIGKILL} {
		if !p.Alive() {
			return nil
		}
		if err := unix.Kill(p.PID, s); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stop %s of %s: %w", p.Name, p.Node, err)
		}
		if WaitFor(grace, func() bool { return !p.Alive() }) {
			return nil
		}
	}
	return fmt.Errorf("%s of %s (pid %d) does not end", p.Name, p.Node, p.PID)
}

// WaitFor repeats condition until it holds or the limit is over. It returns whether
// the condition holds.
func WaitFor(limit time.Duration, condition func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Await repeats ask until it returns no error, ctx ends or the limit is over. It
// returns the last error.
func Await(ctx context.Context, limit time.Duration, ask func() error) error {
	var last error
	WaitFor(limit, func() bool {
		err := ask()
		if ctx.Err() == nil { // else it says no more than that
			last = err
		}
		return last == nil || ctx.Err() != nil
	})
	return errors.Join(last, ctx.Err())
}

// StartAwait starts a command as Start does, and waits as AwaitProcess does.
func (in *Instance) StartAwait(ctx context.Context, n *topology.Node, name string, limit time.Duration, ask func() error, args ...string) error {
	if err := in.Start(n, name, args...); err != nil {
		return err
	}
	return in.AwaitProcess(ctx, n, name, limit, ask)
}

// AwaitProcess repeats ask until the process called name answers without an error.
// It fails when the process ends, and quotes the end of its log.
func (in *Instance) AwaitProcess(ctx context.Context, n *topology.Node, name string, limit time.Duration, ask func() error) error {
	p, _ := in.Process(n, name)
	ended := false
	err := Await(ctx, limit, func() error {
		if ended = !p.Alive(); ended {
			return nil
		}
		return ask()
	})
	if ended {
		err = errors.New("it has ended")
	}
	if err != nil {
		return fmt.Errorf("%s did not come up: %w\n%s", name, err, Tail(in.File(n, name+".log")))
	}
	return nil
}

// Start runs a command in the node's namespace, detached from this process,
// with its output in a log file, and records it.
func (in *Instance) Start(n *topology.Node, name string, args ...string) error {
	return in.StartCommand(n, name, exec.Command(args[0], args[1:]...))
}

// StartCommand starts a command that is prepared.
func (in *Instance) StartCommand(n *topology.Node, name string, cmd *exec.Cmd) error {
	log, err := os.OpenFile(in.File(n, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(unix.SysProcAttr)
	}
	cmd.SysProcAttr.Setsid = true
	if err := in.Namespace(n).Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s of %s: %w", name, n.Name, err)
	}
	pid := cmd.Process.Pid
	start, ok := startTime(pid)
	// Waited for so that it is no zombie when this process outlives it; how it
	// ended is in its log.
	go func() { _ = cmd.Wait() }()
	if !ok {
		return fmt.Errorf("start %s of %s: it ended at once: %s", name, n.Name, Tail(in.File(n, name+".log")))
	}
	in.Forget(n, name)
	in.State.Processes = append(in.State.Processes, Process{Node: n.Name, Name: name, PID: pid, Start: start})
	return in.Save()
}

// Tail returns the last lines of a file, or the reason why it cannot read them.
func Tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// Process returns the one called name of a node.
func (in *Instance) Process(n *topology.Node, name string) (Process, bool) {
	i := slices.IndexFunc(in.State.Processes, func(p Process) bool { return p.Node == n.Name && p.Name == name })
	if i < 0 {
		return Process{}, false
	}
	return in.State.Processes[i], true
}

// Forget removes a process from the state.
func (in *Instance) Forget(n *topology.Node, name string) {
	in.State.Processes = slices.DeleteFunc(in.State.Processes, func(p Process) bool { return p.Node == n.Name && p.Name == name })
}
