package bgp

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A speaker that does not listen connects by itself, and without GoBGP's pause: an
// injector is heard at once. One that listens leaves it to GoBGP, which knows what
// to do where both ends connect (RFC 4271 section 6.8).
func (s *Speaker) connects(p Peer) bool { return len(s.config.Listen) == 0 && !p.Passive }

// How long to wait before the next attempt, at first and at most, and for an
// answer to one.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	dialLimit  = 3 * time.Second
)

// connectTo connects to a peer whenever GoBGP waits for it, until ctx ends.
func (s *Speaker) connectTo(ctx context.Context, p Peer, waits <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-waits:
		}
		c := s.dialUntil(ctx, p)
		if c == nil {
			return
		}
		if err := handOver(s.server, c); err != nil { // it ends
			c.Close()
			return
		}
	}
}

// dialUntil tries until the peer opens a session; nil: ctx has ended.
func (s *Speaker) dialUntil(ctx context.Context, p Peer) net.Conn {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		c, err := s.dial(ctx, p)
		if err == nil {
			return c
		}
		s.log.Debug("cannot connect to a BGP peer", "peer", p.Address, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait + rand.N(wait/4)):
		}
	}
}

func (s *Speaker) dial(ctx context.Context, p Peer) (net.Conn, error) {
	d := net.Dialer{Timeout: dialLimit, KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = s.prepare(int(fd), p) }); e != nil {
			return e
		}
		return err
	}}
	if p.Local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Local, 0))
	}
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(p.Address, orPort(p.Port)).String())
	if err != nil {
		return nil, err
	}
	if err := opened(c.(*net.TCPConn)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// prepare sets what has to be so from the first segment on. GoBGP does the rest.
func (s *Speaker) prepare(fd int, p Peer) error {
	if p.ASN != s.config.ASN { // TTL security wants 255, and others may be anywhere
		level, option := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		if p.Address.Is4() {
			level, option = unix.IPPROTO_IP, unix.IP_TTL
		}
		if err := unix.SetsockoptInt(fd, level, option, 255); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if p.Password == "" {
		return nil
	}
	sig := unix.TCPMD5Sig{Keylen: uint16(len(p.Password))}
	copy(sig.Key[:], p.Password)
	if a := p.Address; a.Is4() { // struct sockaddr_in: port, address
		sig.Addr.Family = unix.AF_INET
		copy(sig.Addr.Data[2:], a.AsSlice())
	} else { // struct sockaddr_in6: port, flow information, address
		sig.Addr.Family = unix.AF_INET6
		copy(sig.Addr.Data[6:], a.AsSlice())
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &sig))
}

// opened waits for the first octet of the peer's OPEN, and leaves it there. A peer
// whose last session has just ended takes connections and closes them for a while:
// such a one must not get to GoBGP, which would wait in turn.
func opened(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(dialLimit)); err != nil {
		return err
	}
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _, failed = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		return !errors.Is(failed, unix.EAGAIN)
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // it waits for our OPEN
	case err != nil:
		return err
	case failed != nil:
		return os.NewSyscallError("recvfrom", failed)
	case n == 0:
		return io.ErrUnexpectedEOF
	}
	return c.SetReadDeadline(time.Time{})
}
