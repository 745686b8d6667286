package node

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/proc"
)

// Namespace is a named network namespace that a run of the benchmark made.
type Namespace struct{ Name string }

// Path returns the path of the namespace.
func (n Namespace) Path() string { return filepath.Join("/run/netns", n.Name) }

// newNamespace makes a namespace, and has `undo` delete it.
func newNamespace(name string, undo *Undo) (Namespace, error) {
	n := Namespace{name}
	if err := ip("netns", "add", name); err != nil {
		return n, err
	}
	undo.Later(func() error { return ip("netns", "delete", name) })
	return n, n.Script("link set lo up")
}

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

// Do runs f inside the namespace, on a thread of its own.
func (n Namespace) Do(f func() error) error { return proc.Inside(n.Path(), f) }

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

// offloads are the features of an interface that change what packets look
// like, if ethtool is installed.
func (n Namespace) offloads(port string) map[string]string {
	var text []byte
	err := n.Do(func() (err error) {
		text, err = exec.Command("ethtool", "-k", port).Output()
		return err
	})
	if err != nil {
		return map[string]string{"unknown": err.Error()}
	}
	known := []string{
		"rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload",
		"generic-segmentation-offload", "generic-receive-offload", "large-receive-offload",
	}
	out := map[string]string{}
	for line := range bytes.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(string(line)), ": "); ok && slices.Contains(known, name) {
			out[name] = value
		}
	}
	return out
}
