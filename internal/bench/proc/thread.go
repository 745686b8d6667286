package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Inside calls f on a thread that is in a network namespace, and that ends with
// f: whatever f does to the thread is nobody else's. The namespace is a path; "" is
// that of the calling process.
func Inside(namespace string, f func() error) error {
	if namespace == "" {
		return onThread(f)
	}
	ns, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer ns.Close()
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", namespace, err)
		}
		return f()
	})
}

func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// NewNamespace makes a network namespace that has no name, and goes with this process
// at the latest. It calls f in it.
func NewNamespace(f func() error) (ns *os.File, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		return f()
	})
	if err != nil && ns != nil {
		err = errors.Join(err, ns.Close())
	}
	return ns, err
}
