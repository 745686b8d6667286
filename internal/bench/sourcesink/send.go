package sourcesink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
)

// buffer is what the receiver may leave unread, in octets.
const buffer = 8 << 20

// flow are the two sockets between user and server.
type flow struct{ out, in *net.UDPConn }

func (r *rig) openFlow() (f *flow, err error) {
	to, err := r.network.Address(server, false)
	if err != nil {
		return nil, err
	}
	f = &flow{}
	err = r.network.Do(server, func() (err error) {
		f.in, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	raw, err := f.in.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
		}), err)
	}
	if err == nil {
		err = r.network.Do(user, func() (err error) {
			f.out, err = net.DialUDP("udp6", nil, f.in.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("send: %w", err), f.in.Close())
	}
	return f, nil
}

func (f *flow) close() error { return errors.Join(f.out.Close(), f.in.Close()) }

// How a datagram is sent until it comes through: next hops may have to be found first.
const (
	reachTime = 20 * time.Second
	reachEach = 100 * time.Millisecond
)

// reach waits until the server gets what the user sends.
func (f *flow) reach(ctx context.Context) error {
	for end := time.Now().Add(reachTime); time.Now().Before(end) && ctx.Err() == nil; {
		if _, err := f.out.Write([]byte("reach")); err != nil && !errors.Is(err, unix.EHOSTUNREACH) {
			return fmt.Errorf("send: %w", err)
		}
		if n, _, err := f.receive(reachEach); err != nil || n > 0 {
			return err
		}
	}
	return errors.Join(errors.New("the server gets nothing"), ctx.Err())
}

// receive takes datagrams until none comes for a time.
func (f *flow) receive(patience time.Duration) (datagrams, octets int, err error) {
	text := make([]byte, mostUDP)
	for {
		if err := f.in.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return datagrams, octets, err
		}
		n, err := f.in.Read(text)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return datagrams, octets, nil
		}
		if err != nil {
			return datagrams, octets, fmt.Errorf("receive: %w", err)
		}
		datagrams, octets = datagrams+1, octets+n
	}
}

// sent is what was sent, and what of it arrived.
type sent struct {
	datagrams, received int
	took                time.Duration
}

// late is longer than what is on its way takes.
const late = 300 * time.Millisecond

// send sends for the time of the parameters.
func (f *flow) send(ctx context.Context, cpu int, p *Params) (s sent, err error) {
	type got struct {
		datagrams, octets int
		err               error
	}
	arrived := make(chan got, 1)
	go func() {
		var g got
		g.datagrams, g.octets, g.err = f.receive(p.interval() + late)
		arrived <- g
	}()
	count, octets := p.pieces()
	err = proc.Inside("", func() error {
		if err := proc.Pin(cpu); err != nil {
			return err
		}
		text := make([]byte, octets)
		begun := time.Now()
		for next := begun; ; {
			for range count {
				if _, err := f.out.Write(text); err != nil {
					return fmt.Errorf("send: %w", err)
				}
				s.datagrams++
			}
			next = next.Add(p.interval())
			if err := node.Wait(ctx, time.Until(next)); err != nil {
				return err
			}
			if s.took = time.Since(begun); s.took >= time.Duration(p.Time) {
				return nil
			}
		}
	})
	g := <-arrived
	s.received = g.datagrams
	if g.err == nil && g.octets != g.datagrams*octets {
		g.err = fmt.Errorf("%d datagrams of %d octets arrived as %d octets", g.datagrams, octets, g.octets)
	}
	return s, errors.Join(err, g.err)
}
