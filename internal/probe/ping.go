package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Space is where a probe's sockets are opened: a network namespace.
type Space interface {
	Do(func() error) error
}

// Ping is a series of ICMP Echo Requests.
type Ping struct {
	From     Space
	Source   netip.Addr // the kernel's choice unless set
	To       netip.Addr
	Device   string // that the socket is bound to; any unless set
	Count    int
	Interval time.Duration
	Size     int  // of the data
	HopLimit int  // the system's unless set
	DF       bool // never fragment, not even here
	Wait     time.Duration
}

// PingResult is what became of them.
type PingResult struct {
	Sent       int
	Received   int // distinct, whole
	Duplicates int
	Corrupt    int // echoed other data than was sent
	TooLong    int // not sent: longer than the path MTU that this host knows
	Errors     []ICMPError
}

type pinger struct {
	Ping
	fd     int
	seen   map[uint16]bool
	result PingResult
}

// Run sends and waits for the answers.
func (p Ping) Run(ctx context.Context) (PingResult, error) {
	r := &pinger{Ping: p, fd: -1, seen: map[uint16]bool{}}
	if err := p.From.Do(r.open); err != nil {
		return PingResult{}, fmt.Errorf("ping %v: %w", p.To, err)
	}
	defer unix.Close(r.fd)
	err := r.run(ctx)
	r.result.Errors = append(r.result.Errors, ReadErrors(r.fd)...)
	return r.result, err
}

// open opens an ICMP socket, on which the kernel matches answers and errors
// (net.ipv4.ping_group_range allows it).
func (r *pinger) open() (err error) {
	family, proto := unix.AF_INET6, unix.IPPROTO_ICMPV6
	if r.To.Is4() {
		family, proto = unix.AF_INET, unix.IPPROTO_ICMP
	}
	if r.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto); err != nil {
		return fmt.Errorf("ICMP socket: %w", err)
	}
	err = r.setOptions()
	if err == nil && r.Device != "" {
		err = bind(r.fd, r.Device)
	}
	if err == nil && r.Source.IsValid() {
		err = unix.Bind(r.fd, sockaddr(r.Source))
	}
	if err == nil {
		err = unix.Connect(r.fd, sockaddr(r.To))
	}
	if err != nil {
		err = errors.Join(err, unix.Close(r.fd))
	}
	return err
}

func (r *pinger) setOptions() error {
	if err := ReceiveErrors(r.fd, r.To.Is4()); err != nil {
		return err
	}
	level, hops, discover, do := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	if r.To.Is4() {
		level, hops, discover, do = unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	}
	if r.HopLimit != 0 {
		if err := unix.SetsockoptInt(r.fd, level, hops, r.HopLimit); err != nil {
			return err
		}
	}
	if r.DF {
		return unix.SetsockoptInt(r.fd, level, discover, do)
	}
	return nil
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

func (r *pinger) run(ctx context.Context) error {
	next := time.Now()
	for seq := range r.Count {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.send(uint16(seq)); err != nil {
			return err
		}
		next = next.Add(r.Interval)
		r.receiveUntil(next, false)
	}
	r.receiveUntil(time.Now().Add(r.Wait), true)
	return nil
}

func (r *pinger) data(seq uint16) []byte {
	data := make([]byte, r.Size)
	for i := range data {
		data[i] = byte(i) + byte(seq)*31
	}
	return data
}

func (r *pinger) send(seq uint16) error {
	b := make([]byte, 8, 8+r.Size)
	b[0] = 128
	if r.To.Is4() {
		b[0] = 8
	}
	binary.BigEndian.PutUint16(b[6:], seq) // checksum and identifier: the kernel's
	b = append(b, r.data(seq)...)
	for range 4 {
		_, err := unix.Write(r.fd, b)
		switch {
		case err == nil:
			r.result.Sent++
			return nil
		case errors.Is(err, unix.EMSGSIZE) && r.knowsTooBig():
			continue // the error of an earlier one; this one may fit
		case errors.Is(err, unix.EMSGSIZE):
			r.result.TooLong++
			return nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			time.Sleep(time.Millisecond)
		default:
			// The kernel reports an earlier packet's ICMP error here, and has
			// not sent: once more.
			r.takeErrors()
		}
	}
	r.result.TooLong++
	return nil
}

// knowsTooBig takes waiting errors and says whether there were any.
func (r *pinger) knowsTooBig() bool {
	before := len(r.result.Errors)
	r.takeErrors()
	return len(r.result.Errors) > before
}

func (r *pinger) takeErrors() {
	r.result.Errors = append(r.result.Errors, ReadErrors(r.fd)...)
}

// receiveUntil takes answers until then, or until all are there if early.
func (r *pinger) receiveUntil(then time.Time, early bool) {
	b := make([]byte, 1<<16)
	for {
		if early && r.result.Received+r.result.Corrupt >= r.result.Sent {
			return
		}
		left := time.Until(then)
		if left <= 0 {
			return
		}
		fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
		timeout := unix.NsecToTimespec(int64(left))
		if n, err := unix.Ppoll(fds, &timeout, nil); n <= 0 && err != unix.EINTR {
			return
		}
		n, err := unix.Read(r.fd, b)
		if err != nil {
			r.takeErrors()
			continue
		}
		r.take(b[:n])
	}
}

func (r *pinger) take(b []byte) {
	if len(b) < 8 || b[0] != 0 && b[0] != 129 {
		return
	}
	seq := binary.BigEndian.Uint16(b[6:])
	switch {
	case int(seq) >= r.Count || !bytes.Equal(b[8:], r.data(seq)):
		r.result.Corrupt++
	case r.seen[seq]:
		r.result.Duplicates++
	default:
		r.seen[seq] = true
		r.result.Received++
	}
}
