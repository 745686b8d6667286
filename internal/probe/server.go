package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Server answers Transfers and Pings at a port, TCP and UDP, in both families.
type Server struct {
	Name string // at most 255 octets, sent to clients
	Port uint16
	// Ready, if set, is called with the port when the server listens. For port 0 the
	// system chooses one.
	Ready func(port uint16)
}

// idle is how long a connection may be silent.
const idle = time.Minute

// Run serves until ctx ends.
func (s Server) Run(ctx context.Context) error {
	var config net.ListenConfig
	streams, err := config.Listen(ctx, "tcp", fmt.Sprintf(":%d", s.Port))
	if err != nil {
		return err
	}
	port := streams.Addr().(*net.TCPAddr).Port
	datagrams, err := config.ListenPacket(ctx, "udp", fmt.Sprintf(":%d", port))
	if err != nil {
		return errors.Join(err, streams.Close())
	}
	if s.Ready != nil {
		s.Ready(uint16(port))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-ctx.Done()
		return errors.Join(streams.Close(), datagrams.Close())
	})
	g.Go(func() error { return s.accept(streams) })
	g.Go(func() error { return echo(datagrams.(*net.UDPConn)) })
	return g.Wait()
}

func (s Server) accept(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if c.SetDeadline(time.Now().Add(idle)) == nil {
				_ = answer(c, s.Name) // the client knows what went wrong
			}
		}()
	}
}

// echo sends each datagram back from the address that it came to: a node has
// several. The socket is of both families.
func echo(c *net.UDPConn) error {
	// The kernel reports the address that each datagram came to.
	err := control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1) })
	if err := errors.Join(err, c.SetReadBuffer(receiveBuffer)); err != nil {
		return err
	}
	b, about := make([]byte, 1<<16), make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	for {
		n, m, _, from, err := c.ReadMsgUDPAddrPort(b, about)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil || m < len(about) {
			continue // an ICMP error for an answer
		}
		// The address stays, and not the interface: the way back may be another one.
		clear(about[unix.CmsgLen(0)+net.IPv6len:])
		_, _, _ = c.WriteMsgUDPAddrPort(b[:n], about, from) // the client counts what is lost
	}
}
