package instance

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

// ReadyTime is how long a program may take to come up, or to end.
const ReadyTime = 15 * time.Second

// NodeProcess is the first process of a node of kind kubelet.
const NodeProcess = "node"

// Process is one that a lab started. Its start time tells it from another
// process that later has the same number.
type Process struct {
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

// ParentOf is the number of the process that is the parent of pid; 0 where it is
// gone.
func ParentOf(pid int) int {
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

// WaitFor asks until the condition holds, and says whether it came to.
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

// Start runs a command in the node's namespace, detached from this process,
// with its output in a log file, and records it.
func (in *Instance) Start(n *topology.Node, name string, args ...string) error {
	return in.StartWith(n, name, nil, nil, args...)
}

// StartWith starts it with standard input and output of its own, where they are
// not nil.
func (in *Instance) StartWith(n *topology.Node, name string, input, out *os.File, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	if input != nil { // nil in an *os.File is no nil in an io.Reader
		cmd.Stdin = input
	}
	if out != nil {
		cmd.Stdout = out
	}
	return in.StartCommand(n, name, cmd)
}

// StartCommand starts a command that is prepared.
func (in *Instance) StartCommand(n *topology.Node, name string, cmd *exec.Cmd) error {
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
	if err := in.Namespace(n).Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s of %s: %w", name, n.Name, err)
	}
	pid := cmd.Process.Pid
	start, ok := startTime(pid)
	// Waited for so that it is no zombie when this process outlives it; how it
	// ended is in its log.
	go func() { _ = cmd.Wait() }()
	if !ok {
		return fmt.Errorf("start %s of %s: it ended at once: %s", name, n.Name, in.LogTail(n, name))
	}
	in.Forget(n, name)
	in.State.Processes = append(in.State.Processes, Process{Node: n.Name, Name: name, PID: pid, Start: start})
	return in.Save()
}

func (in *Instance) logFile(n *topology.Node, name string) string { return in.File(n, name+".log") }

// LogTail returns the end of a process's log, for error messages.
func (in *Instance) LogTail(n *topology.Node, name string) string { return Tail(in.logFile(n, name)) }

// Tail is the last lines of a file, or why there are none.
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

func (in *Instance) Forget(n *topology.Node, name string) {
	in.State.Processes = slices.DeleteFunc(in.State.Processes, func(p Process) bool { return p.Node == n.Name && p.Name == name })
}
