package node

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a named network namespace that a run of the benchmark made.
type Namespace struct{ Name string }

// Path returns the path of the namespace.
func (n Namespace) Path() string { return filepath.Join("/run/netns", n.Name) }

func newNamespace(name string) (Namespace, error) {
	if err := ip("netns", "add", name); err != nil {
		return Namespace{}, err
	}
	n := Namespace{name}
	return n, n.Script("link set lo up")
}

func (n Namespace) delete() error { return ip("netns", "delete", n.Name) }

// ip runs ip(8).
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Script runs lines of ip(8) in the namespace.
func (n Namespace) Script(lines ...string) error {
	c := exec.Command("ip", "-netns", n.Name, "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip in %s: %w: %s", n.Name, err, bytes.TrimSpace(out))
	}
	return nil
}

// Sysctl sets a value below /proc/sys.
func (n Namespace) Sysctl(path, value string) error {
	return n.Do(func() error {
		return os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0o644)
	})
}

// Do runs f inside the namespace, on the calling goroutine.
func (n Namespace) Do(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	there, err := os.Open(n.Path())
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.Name, err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, and ends with its goroutine.
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n.Name, back))
	}
	runtime.UnlockOSThread()
	return err
}

// Ifindex finds an interface of the namespace.
func (n Namespace) Ifindex(name string) (int, error) {
	index := 0
	err := n.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("interface %s in %s: %w", name, n.Name, err)
		}
		index = i.Index
		return nil
	})
	return index, err
}

// Offloads are the features of an interface that change what packets look
// like, if ethtool is there to tell.
func (n Namespace) Offloads(port string) map[string]string {
	out := map[string]string{}
	var text []byte
	err := n.Do(func() (err error) {
		text, err = exec.Command("ethtool", "-k", port).Output()
		return err
	})
	if err != nil {
		return map[string]string{"unknown": err.Error()}
	}
	for line := range bytes.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), ": ")
		switch name {
		case "rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload",
			"generic-segmentation-offload", "generic-receive-offload", "large-receive-offload":
			if ok {
				out[name] = value
			}
		}
	}
	return out
}
