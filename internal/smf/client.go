package smf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/wmnsk/go-pfcp/message"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/smf/replay"
	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Port is PFCP's.
const Port = 8805

// Options are what a Client is and whom it speaks to.
type Options struct {
	// UPF's address; port 8805 unless set.
	UPF netip.AddrPort
	// Local address and port: the address from which UPF is reached, and 8805,
	// unless set. A UPF's own requests come to port 8805.
	Local netip.AddrPort
	// NodeID: an address or a name; the local address unless set.
	NodeID  string
	Dialect Dialect // Open5GS unless set
	// Timeout after which a request is sent again (T1; 1 s unless set), and
	// Attempts how often at most (N1; 3 unless set).
	Timeout  time.Duration
	Attempts int
	// Heartbeat is the time between two heartbeats once there is an association
	// (10 s unless set).
	Heartbeat time.Duration
	// Started is the Recovery Time Stamp; now unless set. Who goes on with
	// earlier sessions says the earlier time.
	Started time.Time
	// Sequence is the first request's sequence number; random unless set.
	Sequence uint32
	// Reports is how many reports may wait to be received; 65536 unless set.
	// Beyond that reports are not answered, so that the UPF sends them again.
	Reports int
}

func (o *Options) complete() error {
	if !o.UPF.Addr().IsValid() {
		return errors.New("smf: no UPF: give its address")
	}
	if o.UPF.Port() == 0 {
		o.UPF = netip.AddrPortFrom(o.UPF.Addr(), Port)
	}
	if !o.Local.Addr().IsValid() {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(o.UPF)) // only to learn where packets to the UPF come from
		if err != nil {
			return fmt.Errorf("smf: no route to the UPF: %w", err)
		}
		defer c.Close()
		o.Local = netip.AddrPortFrom(c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), Port)
	}
	if o.Local == o.UPF {
		return fmt.Errorf("smf: the UPF's address %s is this end's as well: give another local address", o.UPF)
	}
	if o.Local.Addr().Is4() != o.UPF.Addr().Is4() {
		return fmt.Errorf("smf: local address %s and UPF %s are of two families", o.Local.Addr(), o.UPF.Addr())
	}
	o.NodeID, o.Dialect = cmp.Or(o.NodeID, o.Local.Addr().String()), cmp.Or(o.Dialect, Open5GS)
	if err := asError(o.Dialect.check()); err != nil {
		return fmt.Errorf("smf: %w", err)
	}
	o.Timeout, o.Attempts = cmp.Or(o.Timeout, time.Second), cmp.Or(o.Attempts, 3)
	o.Heartbeat, o.Reports = cmp.Or(o.Heartbeat, 10*time.Second), cmp.Or(o.Reports, 1<<16)
	o.Started, o.Sequence = cmp.Or(o.Started, time.Now()), cmp.Or(o.Sequence, rand.Uint32N(1<<23))
	return nil
}

// Client is one SMF with one UPF. Its methods may be called concurrently.
type Client struct {
	options Options
	conn    *net.UDPConn
	socket  Socket
	started time.Time // of all durations
	reports chan Report
	closed  chan struct{}
	ended   sync.WaitGroup
	stop    context.CancelFunc
	reading sync.Mutex // of the socket

	mu              sync.Mutex
	answered        *sync.Cond // something was answered, given up or reported
	table           table
	retransmissions int
	groups          []*Group // by their first SEID
	nextSEID        uint64
	places          []place
	placeNumbers    map[place]uint32
	associated      bool
	upfStarted      time.Time
	seen            []uint64 // requests of the UPF, by kind and sequence number
	broken          error    // of the socket
	player          *replay.Player
}

// Dial opens the socket. Close ends the client; sessions stay with the UPF.
func Dial(o Options) (*Client, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(o.Local))
	if err != nil {
		return nil, fmt.Errorf("smf: %w", err)
	}
	o.Local = conn.LocalAddr().(*net.UDPAddr).AddrPort()
	o.Local = netip.AddrPortFrom(o.Local.Addr().Unmap(), o.Local.Port())
	enlarge(conn)
	c := &Client{
		options: o, conn: conn, socket: newSocket(conn, o.Local.Addr()), started: time.Now(),
		reports: make(chan Report, o.Reports), closed: make(chan struct{}), nextSEID: 1,
		placeNumbers: map[place]uint32{},
	}
	c.table.sequence, c.table.oldest = o.Sequence, o.Sequence
	c.answered = sync.NewCond(&c.mu)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.ended.Go(c.read)
	c.ended.Go(func() { c.tick(ctx) })
	return c, nil
}

func newSocket(conn *net.UDPConn, local netip.Addr) Socket {
	if local.Is4() {
		return ipv4.NewPacketConn(conn)
	}
	return ipv6.NewPacketConn(conn)
}

// enlarge makes room for answers that come faster than they are read: beyond
// the system's limit where that is allowed.
func enlarge(conn *net.UDPConn) {
	const octets = 16 << 20
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	forced := false
	_ = raw.Control(func(fd uintptr) {
		forced = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, octets) == nil
	})
	if !forced {
		_ = conn.SetReadBuffer(octets) // as much as there may be
	}
}

// Close ends the client: what is under way is given up.
func (c *Client) Close() error {
	c.stop()
	err := c.conn.Close()
	c.ended.Wait()
	return err
}

// now is the time since the client's start.
func (c *Client) now() time.Duration { return time.Since(c.started) }

// read takes what the UPF sends until the socket is closed.
func (c *Client) read() {
	defer close(c.closed)
	messages := make([]ipv4.Message, BatchSize)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, 1<<16)}
	}
	for {
		c.reading.Lock()
		n, err := c.socket.ReadBatch(messages, 0)
		c.reading.Unlock()
		switch {
		case err == nil:
			c.Take(messages[:n])
			continue
		case errors.Is(err, os.ErrDeadlineExceeded): // Pause
			continue
		case errors.Is(err, net.ErrClosed):
			err = net.ErrClosed
		default:
			err = fmt.Errorf("smf: %w", err)
		}
		c.fail(err)
		return
	}
}

// Share returns the client's socket once more, to be read between Pause and Resume. Close it.
func (c *Client) Share() (*net.UDPConn, error) {
	f, err := c.conn.File()
	if err != nil {
		return nil, fmt.Errorf("smf: %w", err)
	}
	defer f.Close()
	conn, err := net.FilePacketConn(f)
	if err != nil {
		return nil, fmt.Errorf("smf: %w", err)
	}
	return conn.(*net.UDPConn), nil
}

// Pause has the client read nothing until Resume, before which it cannot be closed. Whoever reads
// the socket meanwhile gives to Take what is the client's.
func (c *Client) Pause() error {
	err := c.conn.SetReadDeadline(time.Unix(1, 0))
	c.reading.Lock()
	return err
}

// Resume ends a Pause.
func (c *Client) Resume() error {
	defer c.reading.Unlock()
	return c.conn.SetReadDeadline(time.Time{})
}

// fail wakes up whoever waits.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
	c.answered.Broadcast()
}

// Take hands answers to those who wait for them, and answers the UPF's own
// requests.
func (c *Client) Take(messages []ipv4.Message) {
	now := c.now()
	c.mu.Lock()
	var asked []ipv4.Message
	for _, m := range messages {
		from, _ := m.Addr.(*net.UDPAddr)
		if from == nil || from.AddrPort().Addr().Unmap() != c.options.UPF.Addr() {
			continue
		}
		h, ok := wire.ParseHeader(m.Buffers[0][:m.N])
		if !ok {
			continue
		}
		switch h.Kind {
		case message.MsgTypeHeartbeatRequest, message.MsgTypeAssociationSetupRequest, message.MsgTypeAssociationUpdateRequest,
			message.MsgTypeAssociationReleaseRequest, message.MsgTypeNodeReportRequest, message.MsgTypeSessionReportRequest:
			asked = append(asked, m)
			continue
		}
		if t := c.table.pending[h.Sequence%slots]; t != nil && t.sequence == h.Sequence && h.Kind == t.kind+1 {
			t.done(t, &h, now)
			c.table.drop(t)
		}
	}
	c.answered.Broadcast()
	c.mu.Unlock()
	for _, m := range asked {
		c.serve(m.Buffers[0][:m.N], m.Addr.(*net.UDPAddr).AddrPort())
	}
}

// tick sends again, and sends heartbeats.
func (c *Client) tick(ctx context.Context) {
	ticker := time.NewTicker(max(time.Millisecond, min(c.options.Timeout/8, 50*time.Millisecond)))
	defer ticker.Stop()
	beat := c.now() + c.options.Heartbeat
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.closed:
			return
		case <-ticker.C:
		}
		now := c.now()
		if err := c.expire(now); err != nil && ctx.Err() == nil {
			c.fail(fmt.Errorf("smf: %w", err))
			return
		}
		if now >= beat {
			beat = now + c.options.Heartbeat
			c.ended.Go(func() { c.heartbeat(ctx) })
		}
	}
}
