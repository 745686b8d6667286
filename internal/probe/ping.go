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

// Ping is a series of requests that come back: ICMP Echo, or UDP to a Server.
type Ping struct {
	From     Space
	Source   netip.Addr // the kernel's choice unless set
	To       netip.Addr
	Port     uint16 // of the Server; 0: ICMP
	Device   string // that the socket is bound to; any unless set
	Count    int    // at least so many; at most 65536
	Interval time.Duration
	Size     int  // of the data
	HopLimit int  // the system's unless set
	DF       bool // never fragment, not even here
	// Full has packets be as long as the path takes, by what this host knows,
	// and Beyond so much longer, whatever it knows: both never in fragments.
	Full   bool
	Beyond int
	Wait   time.Duration
	// While, if set, keeps it going beyond Count.
	While func() bool
	// Answered, if set, is called for each answer, with its round trip.
	Answered func(sequence int, after time.Duration)
}

// PingResult is what became of them.
type PingResult struct {
	Sent       int
	Received   int // distinct, whole
	Duplicates int
	Corrupt    int // echoed other data than was sent
	TooLong    int // not sent: longer than the path MTU that this host knows
	MTU        int // of the path, as this host knows it in the end
	Errors     []ICMPError
}

type pinger struct {
	Ping
	fd     int
	seen   map[uint16]bool
	sentAt map[uint16]time.Time // of those that Answered will be called for
	result PingResult
}

// Run sends and waits for the answers.
func (p Ping) Run(ctx context.Context) (PingResult, error) {
	r := &pinger{Ping: p, fd: -1, seen: map[uint16]bool{}, sentAt: map[uint16]time.Time{}}
	if err := p.From.Do(r.open); err != nil {
		return PingResult{}, fmt.Errorf("ping %v: %w", p.To, err)
	}
	defer unix.Close(r.fd)
	err := r.run(ctx)
	r.takeErrors()
	r.result.MTU, _ = r.pathMTU()
	return r.result, err
}

// open opens an ICMP socket, on which the kernel matches answers and errors
// (net.ipv4.ping_group_range allows it).
func (r *pinger) open() (err error) {
	family, proto := unix.AF_INET6, unix.IPPROTO_ICMPV6
	if r.To.Is4() {
		family, proto = unix.AF_INET, unix.IPPROTO_ICMP
	}
	if r.Port != 0 {
		proto = unix.IPPROTO_UDP
	}
	if r.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	err = r.setOptions()
	if err == nil && r.Device != "" {
		err = bind(r.fd, r.Device)
	}
	if err == nil && r.Source.IsValid() {
		err = unix.Bind(r.fd, sockaddr(r.Source, 0))
	}
	if err == nil {
		err = unix.Connect(r.fd, sockaddr(r.To, r.Port))
	}
	if err == nil && r.Full {
		err = r.fill()
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
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return err
	}
	level, hops, discover := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MTU_DISCOVER
	do, beyond := unix.IPV6_PMTUDISC_DO, unix.IPV6_PMTUDISC_PROBE
	if r.To.Is4() {
		level, hops, discover = unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MTU_DISCOVER
		do, beyond = unix.IP_PMTUDISC_DO, unix.IP_PMTUDISC_PROBE
	}
	if r.HopLimit != 0 {
		if err := unix.SetsockoptInt(r.fd, level, hops, r.HopLimit); err != nil {
			return err
		}
	}
	switch {
	case r.Beyond > 0:
		return unix.SetsockoptInt(r.fd, level, discover, beyond)
	case r.DF || r.Full:
		return unix.SetsockoptInt(r.fd, level, discover, do)
	}
	return nil
}

// fill makes packets as long as the path takes, and as far beyond as is asked for.
func (r *pinger) fill() error {
	mtu, err := r.pathMTU()
	if err != nil {
		return fmt.Errorf("path MTU: %w", err)
	}
	const ipv4, ipv6, udp = 20, 40, 8
	r.Size = mtu + r.Beyond - ipv6 - pingHeader
	if r.To.Is4() {
		r.Size += ipv6 - ipv4
	}
	if r.Port != 0 {
		r.Size -= udp
	}
	return nil
}

// pathMTU returns the path MTU in octets as this host knows it. It connects again
// to look up the route, because an ICMP error removes the cached one.
func (r *pinger) pathMTU() (int, error) {
	if err := unix.Connect(r.fd, sockaddr(r.To, r.Port)); err != nil {
		return 0, err
	}
	if r.To.Is4() {
		return unix.GetsockoptInt(r.fd, unix.IPPROTO_IP, unix.IP_MTU)
	}
	return unix.GetsockoptInt(r.fd, unix.IPPROTO_IPV6, unix.IPV6_MTU)
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
}

func (r *pinger) run(ctx context.Context) error {
	next := time.Now()
	for seq := 0; seq < r.Count || seq <= mostPings && r.While != nil && r.While(); seq++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.send(uint16(seq)); err != nil {
			return err
		}
		if next = next.Add(r.Interval); time.Since(next) > mostBehind {
			next = time.Now()
		}
		r.receiveUntil(next, false)
	}
	r.receiveUntil(time.Now().Add(r.Wait), true)
	return nil
}

// receiveBuffer is what sockets ask for, in octets; the system may give less.
const receiveBuffer = 4 << 20

// mostPings is the last sequence number; pingHeader has it at its end.
const (
	mostPings  = 1<<16 - 1
	pingHeader = 8
)

func (r *pinger) data(seq uint16) []byte {
	data := make([]byte, r.Size)
	for i := range data {
		data[i] = byte(i) + byte(seq)*31
	}
	return data
}

func (r *pinger) send(seq uint16) error {
	b := make([]byte, pingHeader, pingHeader+r.Size)
	switch {
	case r.Port != 0: // comes back as it is, and so looks like an ICMPv4 Echo Reply
	case r.To.Is4():
		b[0] = 8
	default:
		b[0] = 128
	}
	binary.BigEndian.PutUint16(b[6:], seq) // checksum and identifier: the kernel's
	b = append(b, r.data(seq)...)
	if r.Answered != nil {
		r.sentAt[seq] = time.Now()
	}
	for range 4 {
		_, err := unix.Write(r.fd, b)
		switch {
		case err == nil:
			r.result.Sent++
			return nil
		case errors.Is(err, unix.EMSGSIZE) && r.takeErrors():
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

// takeErrors takes waiting errors and says whether there were any.
func (r *pinger) takeErrors() bool {
	errs := ReadErrors(r.fd)
	r.result.Errors = append(r.result.Errors, errs...)
	return len(errs) > 0
}

// receiveUntil takes answers until then, or until all are there if early. What
// waits is taken also where it is late: the socket holds no more than so many.
func (r *pinger) receiveUntil(then time.Time, early bool) {
	b := make([]byte, 1<<16)
	for {
		if early && r.result.Received+r.result.Corrupt >= r.result.Sent {
			return
		}
		fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
		timeout := unix.NsecToTimespec(max(time.Until(then), 0).Nanoseconds())
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
	if len(b) < pingHeader || b[0] != 0 && b[0] != 129 {
		return
	}
	seq := binary.BigEndian.Uint16(b[6:])
	switch {
	case int(seq) >= r.Count && r.While == nil || !bytes.Equal(b[pingHeader:], r.data(seq)):
		r.result.Corrupt++
	case r.seen[seq]:
		r.result.Duplicates++
	default:
		r.seen[seq] = true
		r.result.Received++
		if r.Answered != nil {
			r.Answered(int(seq), time.Since(r.sentAt[seq]))
		}
	}
}
