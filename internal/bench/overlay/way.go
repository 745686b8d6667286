package overlay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// way is what a packet of a variant is like where it comes in at the second node.
type way struct {
	outer string // what is around it; empty: nothing
	hops  int    // by which the pod's own packet was routed up to there
}

// hopsOfPods is what packets of pods begin with.
const hopsOfPods = 64

// Of what is looked at of a frame.
const (
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
	nhIPv4      = 4
	nhUDP       = 17
	nhIPv6      = 41
	nhRouting   = 43
	srhType     = 4
	portVXLAN   = 4789
	lenEthernet = 14
	lenIPv4     = 20
	lenIPv6     = 40
	lenUDP      = 8
	lenVXLAN    = 8
)

var errFrame = errors.New("no frame that was sent for this")

// wayOf reads the way of a frame with a UDP datagram of a pod in it.
func wayOf(frame []byte) (way, error) {
	var outer []string
	kind, at := 0, frame
	for {
		if kind == 0 { // Ethernet
			if len(at) < lenEthernet+lenIPv6+lenUDP {
				return way{}, errFrame
			}
			kind, at = int(binary.BigEndian.Uint16(at[12:])), at[lenEthernet:]
		}
		next, rest, hops, err := header(kind, at)
		if err != nil {
			return way{}, err
		}
		names, inner, err := inside(next, rest)
		if err != nil {
			return way{}, err
		}
		if inner == nil {
			return way{strings.Join(outer, ", "), hopsOfPods - hops}, nil
		}
		outer = append(outer, append([]string{map[int]string{typeIPv4: "IPv4", typeIPv6: "IPv6"}[kind]}, names...)...)
		kind, at = inner.kind, inner.octets
	}
}

// header reads an IP header: what is behind it, and its TTL or hop limit.
func header(kind int, at []byte) (next int, rest []byte, hops int, err error) {
	switch {
	case kind == typeIPv4 && len(at) >= lenIPv4:
		return int(at[9]), at[lenIPv4:], int(at[8]), nil
	case kind == typeIPv6 && len(at) >= lenIPv6:
		return int(at[6]), at[lenIPv6:], int(at[7]), nil
	}
	return 0, nil, 0, errFrame
}

// packet is one in another: of a type of Ethernet, or 0 for a whole frame.
type packet struct {
	kind   int
	octets []byte
}

// inside looks for another packet behind an IP header. inner is nil if the header
// carries no other packet.
func inside(next int, rest []byte) (names []string, inner *packet, err error) {
	if next == nhRouting {
		if len(rest) < 8 || rest[2] != srhType || len(rest) < 8+8*int(rest[1]) {
			return nil, nil, errFrame
		}
		names = append(names, fmt.Sprintf("SRH of %d", rest[4]+1))
		next, rest = int(rest[0]), rest[8+8*int(rest[1]):]
	}
	switch {
	case next == nhIPv4:
		return names, &packet{typeIPv4, rest}, nil
	case next == nhIPv6:
		return names, &packet{typeIPv6, rest}, nil
	case next == nhUDP && len(rest) > lenUDP+lenVXLAN && binary.BigEndian.Uint16(rest[2:]) == portVXLAN:
		return append(names, "UDP", "VXLAN", "Ethernet"), &packet{0, rest[lenUDP+lenVXLAN:]}, nil
	case next == nhUDP:
		return names, nil, nil
	}
	return nil, nil, errFrame
}

// watch takes the frames that come in by an interface, of the thread's namespace.
func watch(name string) (fd int, err error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}) // in network order
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return 0, err
	}
	patience := unix.Timeval{Usec: 100_000}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// wayTime is how long a datagram may take: the nodes may have to find each other.
const wayTime = 20 * time.Second

// seen sends datagrams until one comes in at the watched interface, and says its way.
func seen(ctx context.Context, p pods, fd int, mark []byte) (w way, err error) {
	receive, to, err := p.bound(unix.SOCK_DGRAM)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, unix.Close(receive)) }()
	send, err := p.connected(unix.SOCK_DGRAM, to, func(int) error { return nil })
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, unix.Close(send)) }()
	frame := make([]byte, 2048)
	for end := time.Now().Add(wayTime); time.Now().Before(end) && ctx.Err() == nil; {
		if _, err := unix.Write(send, mark); err != nil && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
			return w, fmt.Errorf("send: %w", err)
		}
		for {
			n, err := unix.Read(fd, frame)
			if err != nil {
				break // nothing came for a while
			}
			if bytes.HasSuffix(frame[:n], mark) {
				return wayOf(frame[:n])
			}
		}
	}
	return w, errors.Join(errors.New("nothing comes in at the other node"), ctx.Err())
}

func (w way) String() string {
	outer := w.outer
	if outer == "" {
		outer = "nothing"
	}
	return fmt.Sprintf("%s around the pod's packet, which was routed by %d", outer, w.hops)
}
