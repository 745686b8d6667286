package path

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

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
	p.mu.Lock()
	p.own = slices.Clone(addresses)
	p.mu.Unlock()
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
	network, level, options := "udp4", unix.SOL_IP, []int{unix.IP_FREEBIND, unix.IP_PKTINFO, unix.IP_RECVTTL, unix.IP_RECVTOS}
	if a.Is6() {
		network, level, options = "udp6", unix.SOL_IPV6, []int{unix.IPV6_FREEBIND, unix.IPV6_RECVPKTINFO, unix.IPV6_RECVHOPLIMIT, unix.IPV6_RECVTCLASS}
	}
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) {
			for _, option := range options {
				set = errors.Join(set, unix.SetsockoptInt(int(fd), level, option, 1))
			}
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
	b, control := make([]byte, 2048), make([]byte, 256)
	for {
		n, length, _, from, err := socket.ReadMsgUDPAddrPort(b, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP error about what was sent
			continue
		}
		r := Received{From: from.Addr().Unmap(), Message: b[:n], port: from.Port(), socket: socket}
		r.readControl(control[:length])
		p.handle(r)
	}
}

// readControl reads what the kernel says of a packet besides its payload.
func (r *Received) readControl(control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	number := func(b []byte) int {
		if len(b) < 4 {
			return 0
		}
		return int(binary.NativeEndian.Uint32(b))
	}
	for _, m := range messages {
		switch [2]int32{m.Header.Level, m.Header.Type} {
		case [2]int32{unix.SOL_IP, unix.IP_PKTINFO}:
			r.In = number(m.Data)
		case [2]int32{unix.SOL_IPV6, unix.IPV6_PKTINFO}:
			r.In = number(m.Data[min(16, len(m.Data)):])
		case [2]int32{unix.SOL_IP, unix.IP_TTL}, [2]int32{unix.SOL_IPV6, unix.IPV6_HOPLIMIT}:
			r.TTL = uint8(number(m.Data))
		case [2]int32{unix.SOL_IPV6, unix.IPV6_TCLASS}:
			r.TOS = uint8(number(m.Data))
		case [2]int32{unix.SOL_IP, unix.IP_TOS}:
			r.TOS = m.Data[0]
		}
	}
}
