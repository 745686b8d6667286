package gtpulink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/probe"
)

// socket is the UDP socket of one local address.
type socket struct {
	local netip.Addr
	conn  *net.UDPConn
	raw   syscall.RawConn
}

// openSocket opens UDP port 2152 on local. ICMP errors are queued on it.
func openSocket(local netip.Addr, hopLimit int) (*socket, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = setOptions(int(fd), local.Is4(), hopLimit)
		}), err)
	}}
	network := "udp6"
	if local.Is4() {
		network = "udp4"
	}
	c, err := config.ListenPacket(context.Background(), network, netip.AddrPortFrom(local, Port).String())
	if err != nil {
		return nil, err
	}
	s := &socket{local: local, conn: c.(*net.UDPConn)}
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}

func setOptions(fd int, ipv4 bool, hopLimit int) error {
	if err := probe.ReceiveErrors(fd, ipv4); err != nil {
		return err
	}
	// Room for bursts: what is lost in the endpoint would be counted against
	// the gateway.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		return err
	}
	if hopLimit == 0 {
		return nil
	}
	if ipv4 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, hopLimit)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit)
}

// send sends b. An ICMP error that waits on the socket is reported by the
// kernel at the next send, which is then not done: it is tried again.
func (s *socket) send(b []byte, to netip.AddrPort) error {
	var err error
	for range 4 {
		if _, err = s.conn.WriteToUDPAddrPort(b, to); err == nil || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return err
}

// errors takes the ICMP errors off the socket's queue.
func (s *socket) errors() (list []probe.ICMPError) {
	// Control fails only on a closed socket, which has no errors.
	_ = s.raw.Control(func(fd uintptr) { list = probe.ReadErrors(int(fd)) })
	return list
}

// openDevice makes a TUN or TAP device, without a header of its own before
// the packets and without offloads: what is read is complete.
func openDevice(name string, tap bool) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if tap {
		flags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_TUN_EXCL
	}
	request.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
