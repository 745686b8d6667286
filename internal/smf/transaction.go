package smf

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// transaction is a request that waits for its answer.
type transaction struct {
	sequence uint32
	kind     uint8 // of the request
	message  []byte
	sent     time.Duration // first, since the client's start
	next     time.Duration // when it is sent again
	attempts int
	index    int   // of the session
	owner    *work // nil: of a single request
	// done gets the answer, or nil when none came. The client is locked: it
	// must be quick, and must not keep the answer's memory.
	done func(t *transaction, h *wire.Header, at time.Duration)
}

// slots is how many requests may be under way at once, at most.
const slots = 1 << 16

// table holds the requests under way, by the lower bits of their sequence
// numbers. Sequence numbers are consecutive, as a UPF may take one that it has
// seen lately for a retransmission.
type table struct {
	sequence uint32
	oldest   uint32 // no request before this one is under way
	pending  [slots]*transaction
	free     []*transaction
	count    int
}

// take makes a transaction ready to be filled, with a sequence number of its
// own. There is always one: callers keep to their windows, which are smaller.
func (t *table) take() *transaction {
	for t.pending[t.sequence%slots] != nil {
		t.sequence++
	}
	var x *transaction
	if n := len(t.free); n > 0 {
		x, t.free = t.free[n-1], t.free[:n-1]
	} else {
		x = &transaction{}
	}
	x.sequence, x.attempts = t.sequence%(1<<24), 1
	t.pending[t.sequence%slots] = x
	t.sequence++
	t.count++
	return x
}

// drop ends a transaction.
func (t *table) drop(x *transaction) {
	t.pending[x.sequence%slots] = nil
	x.done, x.owner = nil, nil
	t.free = append(t.free, x)
	t.count--
}

// Socket is what ipv4.PacketConn and ipv6.PacketConn have in common.
type Socket interface {
	ReadBatch([]ipv4.Message, int) (int, error)
	WriteBatch([]ipv4.Message, int) (int, error)
}

// BatchSize is how many datagrams one system call takes.
const BatchSize = 64

// Batch sends datagrams to a UPF: by one call, and, where they are of one length and
// that is possible, through the kernel's stack as one (UDP_SEGMENT): who is measured
// is the UPF.
type Batch struct {
	messages []ipv4.Message
	whole    ipv4.Message
	single   bool
}

// segmentMost is shorter than any path's MTU.
const segmentMost = 1024

// NewBatch makes a batch for datagrams to an address.
func NewBatch(to net.Addr) *Batch {
	b := &Batch{messages: make([]ipv4.Message, BatchSize), whole: ipv4.Message{Addr: to}}
	for i := range b.messages {
		b.messages[i] = ipv4.Message{Buffers: make([][]byte, 1), Addr: to}
	}
	return b
}

// Send sends up to BatchSize datagrams.
func (b *Batch) Send(s Socket, list [][]byte) error {
	length, same := len(list[0]), true
	for i, message := range list {
		b.messages[i].Buffers[0] = message
		same = same && len(message) == length
	}
	if same && len(list) > 1 && length <= segmentMost && !b.single {
		b.whole.Buffers, b.whole.OOB = list, segmentSize(length)
		if _, err := s.WriteBatch([]ipv4.Message{b.whole}, 0); err == nil {
			return nil
		}
		b.single = true // the way out cannot
	}
	for rest := b.messages[:len(list)]; len(rest) > 0; {
		n, err := s.WriteBatch(rest, 0)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// segmentSize is a control message that says how long each datagram is.
func segmentSize(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(b)))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b
}

// request sends one message and returns a copy of the answer's IEs, and its
// SEID. The error is ErrUnanswered, ctx's, or the socket's.
func (c *Client) request(ctx context.Context, message []byte) (wire.Header, error) {
	answered := make(chan *wire.Header, 1)
	c.mu.Lock()
	if c.table.count >= slots/2 {
		c.mu.Unlock()
		return wire.Header{}, errors.New("too many requests under way")
	}
	t := c.table.take()
	t.kind, t.message = message[1], append(t.message[:0], message...)
	wire.SetSequence(t.message, t.sequence)
	t.done = func(_ *transaction, h *wire.Header, _ time.Duration) {
		if h != nil {
			h = &wire.Header{Kind: h.Kind, SEID: h.SEID, Sequence: h.Sequence, Payload: slices.Clone(h.Payload)}
		}
		answered <- h
	}
	t.sent = c.now()
	t.next = t.sent + c.options.Timeout
	sequence := t.sequence
	message = slices.Clone(t.message)
	c.mu.Unlock()
	if _, err := c.conn.WriteToUDPAddrPort(message, c.options.UPF); err != nil {
		c.forget(sequence)
		return wire.Header{}, err
	}
	select {
	case h := <-answered:
		if h == nil {
			return wire.Header{}, ErrUnanswered
		}
		return *h, nil
	case <-ctx.Done():
		c.forget(sequence)
		return wire.Header{}, ctx.Err()
	case <-c.closed:
		return wire.Header{}, net.ErrClosed
	}
}

// forget ends a request whose answer nobody wants any more.
func (c *Client) forget(sequence uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.table.pending[sequence%slots]; t != nil && t.sequence == sequence {
		c.table.drop(t)
	}
}

// expire sends again what was not answered, and gives up what was sent often
// enough.
func (c *Client) expire(now time.Duration) error {
	var again [][]byte
	c.mu.Lock()
	for c.table.oldest != c.table.sequence && c.table.pending[c.table.oldest%slots] == nil {
		c.table.oldest++
	}
	for i := c.table.oldest; i != c.table.sequence; i++ {
		t := c.table.pending[i%slots]
		if t == nil || t.next > now {
			continue
		}
		if t.attempts >= c.options.Attempts {
			t.done(t, nil, now)
			c.table.drop(t)
			c.answered.Broadcast()
			continue
		}
		t.attempts++
		t.next = now + c.options.Timeout
		c.retransmissions++
		again = append(again, slices.Clone(t.message)) // the buffer is another's as soon as an answer comes
	}
	c.mu.Unlock()
	for _, message := range again {
		if _, err := c.conn.WriteToUDPAddrPort(message, c.options.UPF); err != nil {
			return err
		}
	}
	return nil
}
