package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Stream is UDP datagrams at a steady pace, each with its number.
type Stream struct {
	From, At Space
	Source   netip.Addr
	To       netip.Addr
	Port     uint16         // as in Transfer
	Listen   netip.AddrPort // as in Transfer
	Device   string         // that the sender's sockets are bound to; any unless set
	Flows    int            // source ports, taken in turn; 1 unless set
	Count    int            // at least so many
	After    time.Duration  // how long it waits before the first one
	Interval time.Duration
	Size     int   // of the datagram's data
	DSCP     uint8 // of each packet
	Wait     time.Duration
	// While, if set, keeps the stream going beyond Count.
	While func() bool
	// Settle is how long what arrives does not count in the rate: the burst
	// that a limit begins with.
	Settle time.Duration
}

// StreamResult is what became of them.
type StreamResult struct {
	Sent       int
	Took       time.Duration // from the first that was sent to the last
	Received   int           // distinct, whole
	Duplicates int
	Reordered  int // arrived behind a later one of the same flow
	Overtaking int // arrived ahead of an earlier one of the same flow, or of one that is lost
	Corrupt    int
	// Gap is the longest time in which nothing arrived.
	Gap time.Duration
	// P99 is how long 99 % of what arrived took at most: from when the sender gave it to the
	// kernel to when the receiver's kernel had it.
	P99 time.Duration
	// LossFrom and LossUntil are when the first and the last that are lost were sent, since the
	// first of all.
	LossFrom, LossUntil time.Duration
	// Rate of what arrived, as IP packets, in kbit/s.
	Rate float64
}

// A sender that was held up sends what it is behind by a burst, as far as mostBurst, and what is
// more a third faster than its pace, as far as mostBehind: what it sends on average is what was
// asked for, also on a busy machine.
const (
	mostBurst  = 20 * time.Millisecond
	mostBehind = 300 * time.Millisecond
)

const streamHeader = 24 // number, flow, time

// Run sends and receives.
func (s Stream) Run(ctx context.Context) (StreamResult, error) {
	s.Flows = max(s.Flows, 1)
	s.Size = max(s.Size, streamHeader)
	receiver, err := s.listen()
	if err != nil {
		return StreamResult{}, fmt.Errorf("UDP to %v: %w", s.To, err)
	}
	defer receiver.Close()
	senders, err := s.dial(connectTo(s.To, s.Port, receiver.LocalAddr().(*net.UDPAddr).AddrPort()))
	defer func() {
		for _, c := range senders {
			c.Close()
		}
	}()
	if err != nil {
		return StreamResult{}, fmt.Errorf("UDP to %v: %w", s.To, err)
	}
	var end atomic.Pointer[streamEnd]
	results := make(chan received, 1)
	go func() { results <- s.receive(receiver, &end) }()
	sentAt, err := s.send(ctx, senders)
	n := len(sentAt)
	end.Store(&streamEnd{n, time.Now().Add(s.Wait)})
	// Wakes the receiver, which may have all of them, or waits for the rest.
	if err := receiver.SetReadDeadline(time.Now()); err != nil {
		return StreamResult{}, err
	}
	result := <-results
	result.count(sentAt)
	return result.StreamResult, err
}

// received is what became of a stream, and which of its datagrams arrived.
type received struct {
	StreamResult
	seen map[uint64]bool
}

// count compares what arrived with what was sent.
func (r *received) count(sentAt []time.Time) {
	r.Sent = len(sentAt)
	if r.Sent == 0 {
		return
	}
	r.Took = sentAt[r.Sent-1].Sub(sentAt[0])
	first := true
	for number, at := range sentAt {
		if r.seen[uint64(number)] {
			continue
		}
		if r.LossUntil = at.Sub(sentAt[0]); first {
			r.LossFrom, first = r.LossUntil, false
		}
	}
}

// streamEnd is how many were sent, and until when the receiver waits for them.
type streamEnd struct {
	sent  int
	until time.Time
}

func (s Stream) listen() (c *net.UDPConn, err error) {
	err = s.At.Do(func() error {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(listenAt(s.Listen, s.To)))
		return err
	})
	if err != nil {
		return nil, err
	}
	err = control(c, func(fd int) error {
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (s Stream) dial(to netip.AddrPort) (list []*net.UDPConn, err error) {
	dialer := net.Dialer{Control: boundTo(s.Device)}
	if s.Source.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Source, 0))
	}
	err = s.From.Do(func() error {
		for range s.Flows {
			c, err := dialer.Dial("udp", to.String())
			if err != nil {
				return err
			}
			list = append(list, c.(*net.UDPConn))
			if err := s.mark(c.(*net.UDPConn)); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// mark has a socket's packets carry the DSCP.
func (s Stream) mark(c *net.UDPConn) error {
	level, option := unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	if s.To.Is4() {
		level, option = unix.IPPROTO_IP, unix.IP_TOS
	}
	return control(c, func(fd int) error { return unix.SetsockoptInt(fd, level, option, int(s.DSCP)<<2) })
}

// send sends, and returns when each datagram was.
func (s Stream) send(ctx context.Context, senders []*net.UDPConn) (sentAt []time.Time, err error) {
	b := make([]byte, s.Size)
	for i := range b {
		b[i] = byte(i)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.After):
	}
	next := time.Now()
	slot := next // when the next one may leave
	for n := 0; n < s.Count || s.While != nil && s.While(); n++ {
		if err := ctx.Err(); err != nil {
			return sentAt, err
		}
		flow, now := n%len(senders), time.Now()
		binary.BigEndian.PutUint64(b, uint64(n))
		binary.BigEndian.PutUint64(b[8:], uint64(flow))
		binary.BigEndian.PutUint64(b[16:], uint64(now.UnixNano()))
		if _, err := senders[flow].Write(b); err != nil {
			// An ICMP error for an earlier datagram: this one was not sent.
			if _, err = senders[flow].Write(b); err != nil {
				return sentAt, fmt.Errorf("UDP to %v: %w", s.To, err)
			}
		}
		sentAt = append(sentAt, now)
		now = time.Now()
		if next = next.Add(s.Interval); next.Before(now.Add(-mostBehind)) {
			next = now.Add(-mostBehind)
		}
		if slot = slot.Add(s.Interval * 3 / 4); slot.Before(now.Add(-mostBurst)) {
			slot = now
		}
		if slot.Before(next) {
			slot = next
		}
		time.Sleep(slot.Sub(now))
	}
	return sentAt, nil
}

func (s Stream) receive(c *net.UDPConn, end *atomic.Pointer[streamEnd]) (r received) {
	r.seen = map[uint64]bool{}
	latest := map[uint64]uint64{}
	last := time.Now()
	meter := rateMeter{settle: s.Settle}
	var delays []time.Duration
	defer func() { r.Rate, r.P99 = meter.rate(), percentile(delays, 0.99) }()
	b, about := make([]byte, 1<<16), make([]byte, 64)
	for {
		n, told, _, _, err := c.ReadMsgUDPAddrPort(b, about)
		if e := end.Load(); e != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			if r.Received >= e.sent || !time.Now().Before(e.until) || c.SetReadDeadline(e.until) != nil {
				return r
			}
			continue
		}
		if err != nil {
			continue // an ICMP error's echo
		}
		now := arrival(about[:told])
		if r.Received > 0 {
			r.Gap = max(r.Gap, now.Sub(last))
		}
		last = now
		meter.add(now, s.IPLength())
		if s.take(b[:n], r.seen, latest, &r.StreamResult) {
			delays = append(delays, time.Duration(now.UnixNano()-int64(binary.BigEndian.Uint64(b[16:]))))
		}
		if e := end.Load(); e != nil && r.Received >= e.sent {
			return r
		}
	}
}

// IPLength is the length of each packet, from the IP header on.
func (s Stream) IPLength() int {
	const udp, ipv4, ipv6 = 8, 20, 40
	if s.To.Is4() {
		return ipv4 + udp + max(s.Size, streamHeader)
	}
	return ipv6 + udp + max(s.Size, streamHeader)
}

// rateMeter measures from the first packet after the settling time on, which
// marks the beginning and does not count.
type rateMeter struct {
	settle             time.Duration
	first, began, last time.Time
	octets             int
}

func (m *rateMeter) add(now time.Time, octets int) {
	switch {
	case m.first.IsZero():
		m.first = now
	case now.Sub(m.first) < m.settle:
	case m.began.IsZero():
		m.began, m.last = now, now
	default:
		m.last = now
		m.octets += octets
	}
}

// rate is in kbit/s; 0 where too little arrived to say.
func (m *rateMeter) rate() float64 {
	if !m.last.After(m.began) {
		return 0
	}
	return float64(m.octets) * 8 / 1000 / m.last.Sub(m.began).Seconds()
}

// arrival is when the kernel had a datagram (socket(7), SO_TIMESTAMPNS): a receiver that does not
// get to run for a while says nothing about the network.
func arrival(about []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(about)
	for _, m := range messages {
		if err == nil && m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

// percentile is what so much of the values are at most; 0 of none.
func percentile(values []time.Duration, part float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(part*float64(len(values)-1))]
}

// take counts a datagram, and says whether it is a new one.
func (s Stream) take(b []byte, seen map[uint64]bool, latest map[uint64]uint64, r *StreamResult) bool {
	if len(b) != s.Size || !isPattern(b[streamHeader:]) {
		r.Corrupt++
		return false
	}
	number, flow := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	if seen[number] {
		r.Duplicates++
		return false
	}
	seen[number] = true
	r.Received++
	switch last, follows := latest[flow]; {
	case follows && number < last:
		r.Reordered++
	case follows && number > last+uint64(s.Flows):
		r.Overtaking++
	}
	latest[flow] = max(latest[flow], number)
	return true
}

func isPattern(b []byte) bool {
	for i, v := range b {
		if v != byte(i+streamHeader) {
			return false
		}
	}
	return true
}
