package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// process is one that a lab started. Its start time tells it from another
// process that later has the same number.
type process struct {
	Node  string `json:"node"`
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks since boot, from /proc/PID/stat
}

// startTime returns the start time of the process pid; ok is false when it is
// gone, or dead and waited for by nobody.
func startTime(pid int) (start string, ok bool) {
	fields := statFields(pid)
	if fields == nil || fields[0] == "Z" || fields[0] == "X" {
		return "", false
	}
	return fields[19], true
}

// parentOf is the number of the process that is the parent of pid; 0 where it is
// gone.
func parentOf(pid int) int {
	fields := statFields(pid)
	if fields == nil {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1]) // the kernel writes numbers
	return parent
}

// statFields are what the kernel says of a process behind its name: state is the
// first, the parent the second, the start time the twentieth. None: it is gone.
func statFields(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	// The name, in brackets, may hold anything.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	if fields := strings.Fields(rest); len(fields) >= 20 {
		return fields
	}
	return nil
}

func (p process) alive() bool {
	start, ok := startTime(p.PID)
	return ok && start == p.Start
}

// stop ends the process with the signal, and with SIGKILL if that does not
// help within the grace time.
func (p process) stop(signal unix.Signal, grace time.Duration) error {
	for _, s := range []unix.Signal{signal, unix.SIGKILL} {
		if !p.alive() {
			return nil
		}
		if err := unix.Kill(p.PID, s); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stop %s of %s: %w", p.Name, p.Node, err)
		}
		if waitFor(grace, func() bool { return !p.alive() }) {
			return nil
		}
	}
	return fmt.Errorf("%s of %s (pid %d) does not end", p.Name, p.Node, p.PID)
}

// waitFor asks until the condition holds, and says whether it came to.
func waitFor(limit time.Duration, condition func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// start runs a command in the node's namespace, detached from this process,
// with its output in a log file, and records it.
func (in *instance) start(n *topology.Node, name string, args ...string) error {
	return in.startWith(n, name, nil, nil, args...)
}

// startWith starts it with standard input and output of its own, where they are
// not nil.
func (in *instance) startWith(n *topology.Node, name string, input, out *os.File, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	if input != nil { // nil in an *os.File is no nil in an io.Reader
		cmd.Stdin = input
	}
	if out != nil {
		cmd.Stdout = out
	}
	return in.startCommand(n, name, cmd)
}

// startCommand starts a command that is prepared.
func (in *instance) startCommand(n *topology.Node, name string, cmd *exec.Cmd) error {
	log, err := os.OpenFile(in.logFile(n, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
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
	if err := in.namespace(n).Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s of %s: %w", name, n.Name, err)
	}
	pid := cmd.Process.Pid
	start, ok := startTime(pid)
	// Waited for so that it is no zombie when this process outlives it; how it
	// ended is in its log.
	go func() { _ = cmd.Wait() }()
	if !ok {
		return fmt.Errorf("start %s of %s: it ended at once: %s", name, n.Name, in.logTail(n, name))
	}
	in.forget(n, name)
	in.state.Processes = append(in.state.Processes, process{Node: n.Name, Name: name, PID: pid, Start: start})
	return in.save()
}

func (in *instance) logFile(n *topology.Node, name string) string { return in.file(n, name+".log") }

// logTail returns the end of a process's log, for error messages.
func (in *instance) logTail(n *topology.Node, name string) string { return tail(in.logFile(n, name)) }

// tail is the last lines of a file, or why there are none.
func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// process returns the one called name of a node.
func (in *instance) process(n *topology.Node, name string) (process, bool) {
	i := slices.IndexFunc(in.state.Processes, func(p process) bool { return p.Node == n.Name && p.Name == name })
	if i < 0 {
		return process{}, false
	}
	return in.state.Processes[i], true
}

func (in *instance) forget(n *topology.Node, name string) {
	in.state.Processes = slices.DeleteFunc(in.state.Processes, func(p process) bool { return p.Node == n.Name && p.Name == name })
}
