package overlay

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// message is a request, and a response: as netperf's TCP_RR has them.
const message = 1

// exchange is a request and its response over two sockets, again and again.
type exchange struct {
	sockets
	count uint64 // of requests
}

func openTCPExchange(p pods) (flow, error) {
	f, err := openTCP(p)
	if err != nil {
		return nil, err
	}
	s := f.(*tcpFlow).sockets
	for _, fd := range []int{s.send, s.receive} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return newExchange(s), nil
}

func openUDPExchange(p pods) (flow, error) {
	f, err := openUDP(p, message)
	if err != nil {
		return nil, err
	}
	s := f.(*udpFlow).sockets
	from, err := unix.Getsockname(s.send)
	if err == nil {
		err = unix.Connect(s.receive, from)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect the receiver: %w", err), s.close())
	}
	return newExchange(s), nil
}

func newExchange(s sockets) *exchange {
	s.out, s.in = make([]byte, message), make([]byte, message)
	return &exchange{sockets: s}
}

func (f *exchange) turn(a *amount) error {
	begun := time.Now()
	f.count++
	for _, way := range [][2]int{{f.send, f.receive}, {f.receive, f.send}} {
		if err := pass(way[0], way[1], f.out, f.in); err != nil {
			return err
		}
	}
	a.octets += 2 * message
	a.took = append(a.took, time.Since(begun))
	return nil
}

func (f *exchange) packets() (uint64, error) { return f.count, nil }

// pass sends a message from one socket to the other, and receives it.
func pass(from, to int, out, in []byte) error {
	if _, err := unix.Write(from, out); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	n, err := read(to, in)
	if err == nil && n == 0 {
		err = errors.New("receive: the connection has ended")
	}
	return err
}

// read waits where the kernel put off what was sent.
func read(fd int, in []byte) (int, error) {
	for {
		n, err := unix.Read(fd, in)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return 0, fmt.Errorf("receive: %w", err)
		}
		if err := await(fd, unix.POLLIN); err != nil {
			return 0, err
		}
	}
}

// await waits until a socket is ready.
func await(fd int, events int16) error {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, connectTime)
	if err == nil && n == 0 {
		return errors.New("nothing comes: a packet was lost")
	}
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// connections are made one after the other: each has a request and a response, and ends. The
// server ends it, so that the client's port is free at once.
type connections struct {
	pods
	listener int
	server   unix.Sockaddr
	out, in  []byte
	count    uint64
}

func openConnections(p pods) (flow, error) {
	listener, server, err := p.bound(unix.SOCK_STREAM | unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := unix.Listen(listener, 16); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), unix.Close(listener))
	}
	return &connections{pods: p, listener: listener, server: server, out: make([]byte, message), in: make([]byte, message)}, nil
}

func (f *connections) turn(a *amount) error {
	begun := time.Now()
	f.count++
	if err := f.connection(); err != nil {
		return err
	}
	a.octets += 2 * message
	a.took = append(a.took, time.Since(begun))
	return nil
}

func (f *connections) connection() (err error) {
	family, _ := f.address()
	client, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(client)) }()
	if err := unix.Connect(client, f.server); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect: %w", err)
	}
	if err := await(f.listener, unix.POLLIN); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	server, _, err := unix.Accept4(f.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if err = pass(client, server, f.out, f.in); err == nil {
		err = pass(server, client, f.out, f.in)
	}
	if err = errors.Join(err, unix.Close(server)); err != nil {
		return err
	}
	n, err := read(client, f.in)
	if err == nil && n > 0 {
		err = errors.New("receive: more than a response")
	}
	return err
}

// inside: the client's sockets are made while it is measured.
func (f *connections) inside() string { return f.network.Namespace(f.from) }

func (f *connections) packets() (uint64, error) { return f.count, nil }

func (f *connections) close() error { return unix.Close(f.listener) }
