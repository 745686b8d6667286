package path

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/gtpu"
)

// Run opens a socket for each of our addresses and watches the paths until ctx
// ends, which is no error. The addresses may change meanwhile.
func (p *Paths) Run(ctx context.Context, addresses func() []netip.Addr) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		every := time.NewTicker(500 * time.Millisecond)
		defer every.Stop()
		for {
			p.openSockets(ctx, group, addresses())
			p.Watch()
			select {
			case <-ctx.Done():
				return p.closeSockets()
			case <-every.C:
			}
		}
	})
	return group.Wait()
}

// openSockets opens the sockets that are missing, and closes those of addresses
// that are no longer ours.
func (p *Paths) openSockets(ctx context.Context, group *errgroup.Group, addresses []netip.Addr) {
	wanted := map[netip.Addr]bool{}
	for _, a := range addresses {
		wanted[a] = true
		p.mu.Lock()
		_, open := p.sockets[a]
		p.mu.Unlock()
		if open {
			continue
		}
		socket, err := listen(ctx, a)
		if err != nil {
			p.o.Log.Debug("cannot open the GTP-U socket; will try again", "address", a, "error", err)
			continue
		}
		p.mu.Lock()
		p.sockets[a] = socket
		p.mu.Unlock()
		group.Go(func() error { p.receive(socket); return nil })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, socket := range p.sockets {
		if !wanted[a] {
			delete(p.sockets, a)
			_ = socket.Close() // it was only read and written
		}
	}
}

// listen opens a GTP-U socket. The address need not exist yet.
func listen(ctx context.Context, a netip.Addr) (*net.UDPConn, error) {
	network, level, option, info := "udp4", unix.SOL_IP, unix.IP_FREEBIND, unix.IP_PKTINFO
	if a.Is6() {
		network, level, option, info = "udp6", unix.SOL_IPV6, unix.IPV6_FREEBIND, unix.IPV6_RECVPKTINFO
	}
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) {
			set = errors.Join(unix.SetsockoptInt(int(fd), level, option, 1), unix.SetsockoptInt(int(fd), level, info, 1))
		})
		return errors.Join(err, set)
	}}
	conn, err := c.ListenPacket(ctx, network, netip.AddrPortFrom(a, gtpu.Port).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

func (p *Paths) closeSockets() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for a, socket := range p.sockets {
		errs = append(errs, socket.Close())
		delete(p.sockets, a)
	}
	return errors.Join(errs...)
}

// receive reads a socket until it is closed.
func (p *Paths) receive(socket *net.UDPConn) {
	b, control := make([]byte, 2048), ipv6.NewControlMessage(ipv6.FlagInterface)
	control = append(control, ipv4.NewControlMessage(ipv4.FlagInterface)...)
	for {
		n, length, _, from, err := socket.ReadMsgUDPAddrPort(b, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP error about what was sent
			continue
		}
		p.handle(b[:n], from.Addr().Unmap(), interfaceOf(control[:length]))
	}
}

// interfaceOf returns the index of the interface that control messages name; 0: none.
func interfaceOf(control []byte) int {
	var four ipv4.ControlMessage
	if four.Parse(control) == nil && four.IfIndex != 0 {
		return four.IfIndex
	}
	var six ipv6.ControlMessage
	if six.Parse(control) == nil {
		return six.IfIndex
	}
	return 0
}
