package probe

import "runtime"

// onOwnThread calls f on a thread that ends with it.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}
