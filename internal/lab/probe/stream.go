package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Stream is UDP datagrams at a steady pace, each with its number.
type Stream struct {
	From, At Space
	Source   netip.Addr
	To       netip.Addr
	Flows    int // source ports, taken in turn; 1 unless set
	Count    int // at least so many
	Interval time.Duration
	Size     int // of the datagram's data
	Wait     time.Duration
	// While, if set, keeps the stream going beyond Count.
	While func() bool
}

// StreamResult is what became of them.
type StreamResult struct {
	Sent       int
	Received   int // distinct, whole
	Duplicates int
	Reordered  int // arrived behind a later one of the same flow
	Corrupt    int
	// Gap is the longest time in which nothing arrived.
	Gap time.Duration
}

const streamHeader = 16 // number, flow

// Run sends and receives.
func (s Stream) Run(ctx context.Context) (StreamResult, error) {
	s.Flows = max(s.Flows, 1)
	s.Size = max(s.Size, streamHeader)
	receiver, err := s.listen()
	if err != nil {
		return StreamResult{}, fmt.Errorf("UDP to %v: %w", s.To, err)
	}
	defer receiver.Close()
	senders, err := s.dial(receiver.LocalAddr().(*net.UDPAddr).AddrPort())
	defer func() {
		for _, c := range senders {
			c.Close()
		}
	}()
	if err != nil {
		return StreamResult{}, fmt.Errorf("UDP to %v: %w", s.To, err)
	}
	var sent atomic.Int64 // final when it is no longer negative
	sent.Store(-1)
	results := make(chan StreamResult, 1)
	go func() { results <- s.receive(receiver, &sent) }()
	n, err := s.send(ctx, senders)
	sent.Store(int64(n))
	// Wakes the receiver, which waits for what is under way.
	if err := receiver.SetReadDeadline(time.Now().Add(s.Wait)); err != nil {
		return StreamResult{}, err
	}
	result := <-results
	result.Sent = n
	return result, err
}

func (s Stream) listen() (c *net.UDPConn, err error) {
	err = s.At.Do(func() error {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.To, 0)))
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	var option error
	err = raw.Control(func(fd uintptr) {
		option = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	})
	if err = errors.Join(err, option); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (s Stream) dial(to netip.AddrPort) (list []*net.UDPConn, err error) {
	var source *net.UDPAddr
	if s.Source.IsValid() {
		source = net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Source, 0))
	}
	err = s.From.Do(func() error {
		for range s.Flows {
			c, err := net.DialUDP("udp", source, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			list = append(list, c)
		}
		return nil
	})
	return list, err
}

func (s Stream) send(ctx context.Context, senders []*net.UDPConn) (n int, err error) {
	b := make([]byte, s.Size)
	for i := range b {
		b[i] = byte(i)
	}
	next := time.Now()
	for n < s.Count || s.While != nil && s.While() {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		flow := n % len(senders)
		binary.BigEndian.PutUint64(b, uint64(n))
		binary.BigEndian.PutUint64(b[8:], uint64(flow))
		if _, err := senders[flow].Write(b); err != nil {
			// An ICMP error for an earlier datagram: this one was not sent.
			if _, err = senders[flow].Write(b); err != nil {
				return n, fmt.Errorf("UDP to %v: %w", s.To, err)
			}
		}
		n++
		next = next.Add(s.Interval)
		time.Sleep(time.Until(next))
	}
	return n, nil
}

func (s Stream) receive(c *net.UDPConn, sent *atomic.Int64) (r StreamResult) {
	seen := map[uint64]bool{}
	latest := map[uint64]uint64{}
	last := time.Now()
	b := make([]byte, 1<<16)
	for {
		if total := sent.Load(); total >= 0 && int64(r.Received) >= total {
			return r
		}
		n, err := c.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return r
		}
		if err != nil {
			continue // an ICMP error's echo
		}
		now := time.Now()
		if r.Received > 0 {
			r.Gap = max(r.Gap, now.Sub(last))
		}
		last = now
		s.take(b[:n], seen, latest, &r)
	}
}

func (s Stream) take(b []byte, seen map[uint64]bool, latest map[uint64]uint64, r *StreamResult) {
	if len(b) != s.Size || !isPattern(b[streamHeader:]) {
		r.Corrupt++
		return
	}
	number, flow := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	if seen[number] {
		r.Duplicates++
		return
	}
	seen[number] = true
	r.Received++
	if number < latest[flow] {
		r.Reordered++
	}
	latest[flow] = max(latest[flow], number)
}

func isPattern(b []byte) bool {
	for i, v := range b {
		if v != byte(i+streamHeader) {
			return false
		}
	}
	return true
}
