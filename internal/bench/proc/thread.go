package proc

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Inside calls f on a thread that is in a network namespace, and that ends with
// f: whatever f does to the thread is nobody else's. The namespace is a path; "" is
// that of the calling process.
func Inside(namespace string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := enter(namespace); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func enter(namespace string) error {
	if namespace == "" {
		return nil
	}
	ns, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", namespace, err)
	}
	return nil
}
