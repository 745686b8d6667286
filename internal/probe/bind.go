package probe

import (
	"errors"
	"fmt"
	"net/netip"
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
		return controlRaw(c, func(fd int) error { return bind(fd, device) })
	}
}

// control calls f with the file descriptor of a connection.
func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return controlRaw(raw, f)
}

func controlRaw(c syscall.RawConn, f func(fd int) error) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

func bind(fd int, device string) error {
	if err := unix.BindToDevice(fd, device); err != nil {
		return fmt.Errorf("bind to %s: %w", device, err)
	}
	return nil
}

// listenAt is where a server is: at a port that the system chooses, unless said.
func listenAt(listen netip.AddrPort, to netip.Addr) netip.AddrPort {
	if listen.IsValid() {
		return listen
	}
	return netip.AddrPortFrom(to, 0)
}

// connectTo is where its clients go.
func connectTo(to netip.Addr, port uint16, server netip.AddrPort) netip.AddrPort {
	if port == 0 {
		port = server.Port()
	}
	return netip.AddrPortFrom(to, port)
}
