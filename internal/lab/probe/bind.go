package probe

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundTo is a net.Dialer's Control that binds sockets to a device; nil where
// none is named.
func boundTo(device string) func(network, address string, c syscall.RawConn) error {
	if device == "" {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = bind(int(fd), device) }), err)
	}
}

func bind(fd int, device string) error {
	if err := unix.BindToDevice(fd, device); err != nil {
		return fmt.Errorf("bind to %s: %w", device, err)
	}
	return nil
}
