package overlay

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// burst is how many datagrams are sent before they are received, few enough for the
// receiver's buffer, which is asked to hold `buffer` octets.
const (
	burst  = 64
	buffer = 1 << 20
)

// udpFlow is a pair of sockets. Its datagrams are as long as the buffers.
type udpFlow struct {
	sockets
	sent uint64
}

func openUDP(p pods, payload int) (_ flow, err error) {
	receive, to, err := p.bound(unix.SOCK_DGRAM | unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	f := &udpFlow{sockets: sockets{receive: receive, out: make([]byte, payload), in: make([]byte, payload)}}
	if err := unix.SetsockoptInt(receive, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer); err != nil {
		return nil, errors.Join(fmt.Errorf("receive: %w", err), unix.Close(receive))
	}
	f.send, err = p.connected(unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, to)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect: %w", err), unix.Close(receive))
	}
	return f, nil
}

// turn finds all of a burst in the receiver's buffer: each datagram was handled by the
// CPU that sent it. What the kernel put off is late by a turn.
func (f *udpFlow) turn(a *amount) error {
	sent := int64(0)
	for range burst { // or until the sender's buffer is full, of packets that the kernel put off
		if _, err := unix.Write(f.send, f.out); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		sent++
	}
	f.sent += uint64(sent)
	octets, datagrams, err := f.drain()
	a.octets += octets
	a.lost += sent - datagrams
	return err
}

func (f *udpFlow) packets() (uint64, error) { return f.sent, nil }
