package overlay

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// block is how much is written and read at once: what iperf3 does.
const block = 128 << 10

// congestion is what most systems have; others pace their packets, and wait.
const congestion = "cubic"

// connectTime is how long a connection may take to come about, and how long one may
// stand still, in ms.
const connectTime = 5000

// tcpFlow is a connection.
type tcpFlow struct{ sockets }

func openTCP(p pods) (_ flow, err error) {
	listener, to, err := p.bound(unix.SOCK_STREAM)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(listener)) }()
	if err := unix.Listen(listener, 1); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	f := &tcpFlow{sockets{out: make([]byte, block), in: make([]byte, block)}}
	f.send, err = p.connected(unix.SOCK_STREAM, to, func(fd int) error {
		limit := unix.Timeval{Sec: connectTime / 1000}
		return errors.Join(unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	f.receive, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err == nil {
		err = unix.SetNonblock(f.send, true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("accept: %w", err), unix.Close(f.send))
	}
	return f, nil
}

func (f *tcpFlow) turn(a *amount) error {
	sent, err := unix.Write(f.send, f.out)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("send: %w", err)
	}
	received, _, err := f.drain()
	a.octets += received
	if err != nil || sent > 0 || received > 0 {
		return err
	}
	// Wait until one of both can go on: the kernel waits for a timer.
	fds := []unix.PollFd{{Fd: int32(f.send), Events: unix.POLLOUT}, {Fd: int32(f.receive), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, connectTime)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err == nil && n == 0:
		return errors.New("the connection stands still")
	}
	return err
}

// packets are the segments with data.
func (f *tcpFlow) packets() (uint64, error) {
	info, err := unix.GetsockoptTCPInfo(f.send, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("ask for the connection's segments: %w", err)
	}
	return uint64(info.Data_segs_out), nil
}
