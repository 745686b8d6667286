package bench

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

// namespace is a named network namespace that a run of the benchmark made.
type namespace struct{ name string }

func (n namespace) path() string { return filepath.Join("/run/netns", n.name) }

func newNamespace(name string) (namespace, error) {
	if err := ip("netns", "add", name); err != nil {
		return namespace{}, err
	}
	n := namespace{name}
	return n, n.script("link set lo up")
}

func (n namespace) delete() error { return ip("netns", "delete", n.name) }

// ip runs ip(8).
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// script runs lines of ip(8) in the namespace.
func (n namespace) script(lines ...string) error {
	c := exec.Command("ip", "-netns", n.name, "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip in %s: %w: %s", n.name, err, bytes.TrimSpace(out))
	}
	return nil
}

// sysctl sets a value below /proc/sys.
func (n namespace) sysctl(path, value string) error {
	return n.do(func() error {
		return os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0o644)
	})
}

// do runs f inside the namespace, on the calling goroutine.
func (n namespace) do(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	there, err := os.Open(n.path())
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.name, err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, and ends with its goroutine.
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n.name, back))
	}
	runtime.UnlockOSThread()
	return err
}

// ifindex finds an interface of the namespace.
func (n namespace) ifindex(name string) (int, error) {
	index := 0
	err := n.do(func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("interface %s in %s: %w", name, n.name, err)
		}
		index = i.Index
		return nil
	})
	return index, err
}

// offloads are the features of an interface that change what packets look
// like, if ethtool is there to tell.
func (n namespace) offloads(port string) map[string]string {
	out := map[string]string{}
	var text []byte
	err := n.do(func() (err error) {
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
