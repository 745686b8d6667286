package namespace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Do calls f on a thread that is in the namespace. Sockets that f opens stay
// there.
func (n Named) Do(f func() error) error {
	return onOwnThread(func() error {
		ns, err := os.Open(n.Path())
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", n.Name, err)
		}
		return f()
	})
}

// onOwnThread calls f on a thread that ends with it, so that no other
// goroutine ever runs in the namespace that f entered.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		done <- f()
	}()
	return <-done
}

// Output runs a command in the namespace and returns what it printed.
func (n Named) Output(name string, args ...string) (out []byte, err error) {
	err = n.Do(func() error {
		out, err = Output(exec.Command(name, args...))
		return err
	})
	return out, err
}

// JSON runs a command in the namespace and reads what it printed.
func (n Named) JSON(into any, name string, args ...string) error {
	out, err := n.Output(name, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%s shows %q: %w", name, out, err)
	}
	return nil
}

// Batch runs lines of ip commands in the namespace.
func (n Named) Batch(lines []string, options ...string) error {
	if len(lines) == 0 {
		return nil
	}
	return n.Do(func() error { return IPBatch(lines, options...) })
}

// IPBatch runs lines of ip commands on this thread's namespace.
func IPBatch(lines []string, options ...string) error {
	return Pipe(strings.Join(lines, "\n")+"\n", "ip", append(options, "-batch", "-")...)
}

// Pipe gives a command its input, which is quoted where it fails.
func Pipe(input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	if _, err := Output(cmd); err != nil {
		return fmt.Errorf("%w, of:\n%s", err, strings.TrimSpace(input))
	}
	return nil
}

// Output runs cmd; its standard error becomes the error's text.
func Output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%s is not installed: the lab needs it", cmd.Args[0])
	}
	if err != nil {
		return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// Sysctl writes one value below /proc/sys in the namespace.
func (n Named) Sysctl(name, value string) error {
	return n.Do(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
			return fmt.Errorf("sysctls: %s = %s: %w", name, value, err)
		}
		return nil
	})
}
