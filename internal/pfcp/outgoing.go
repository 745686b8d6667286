package pfcp

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// outgoing is a request that we send.
type outgoing struct {
	msgType uint8
	seid    uint64 // the peer's; 0: the request is not about a session
	to      netip.AddrPort
	ies     []*ie.IE
	// secret: the answer decides what an SMF loses, so nobody else may guess the
	// sequence number.
	secret bool
	// done is called once: with the answer, which it may keep, or with an error
	// (ErrNoAnswer, ErrBusy, ErrStopped). It must not block.
	done func(body wire.IEs, err error)

	sequence uint32
	conn     *conn
	addr     net.Addr
	message  []byte
	tries    int
	timer    *time.Timer
}

// requests are our unanswered requests. mu guards all fields: we send few
// requests compared with SMFs.
type requests struct {
	s       *Server
	mu      sync.Mutex
	next    uint32
	pending map[uint32]*outgoing
	stopped bool
}

func (r *requests) init(s *Server) {
	r.s = s
	r.pending = map[uint32]*outgoing{}
	// Peers do not notice a restart that lost nothing. If we started at 1 again,
	// they would take our requests for those that they have answered.
	r.next = rand.Uint32() & maxSequence
}

const maxSequence = 1<<24 - 1

// send sends a request, again until it is answered or given up.
func (r *requests) send(o *outgoing) {
	at := slices.IndexFunc(r.s.conns, func(c *conn) bool { return c.addr.Is4() == o.to.Addr().Is4() })
	if at < 0 { // no socket of ours reaches it
		o.done(nil, ErrNoAnswer)
		return
	}
	o.conn = r.s.conns[at]
	o.addr = net.UDPAddrFromAddrPort(o.to)
	r.mu.Lock()
	if r.stopped || len(r.pending) >= maxSequence/2 {
		r.mu.Unlock()
		o.done(nil, ErrBusy)
		return
	}
	o.sequence = r.number(o.secret)
	r.pending[o.sequence] = o
	o.message = wire.AppendMessage(nil, o.msgType,
		wire.Header{Sequence: o.sequence, HasSEID: o.seid != 0, SEID: o.seid}, o.ies...)
	o.ies = nil
	o.tries = 1
	o.timer = time.AfterFunc(r.s.cfg.RetryAfter, func() { r.again(o) })
	r.mu.Unlock()
	r.s.counters.sent[o.msgType].Add(1)
	r.write(o)
}

// number returns a sequence number that no pending request has. Secret ones are
// random, among those that counting has not used lately: peers would take a
// request for one that they have answered.
func (r *requests) number(secret bool) uint32 {
	for {
		var n uint32
		if secret {
			n = (r.next + maxSequence/4 + rand.Uint32N(maxSequence/2)) & maxSequence
		} else {
			r.next = (r.next + 1) & maxSequence
			n = r.next
		}
		if _, used := r.pending[n]; !used && n != 0 {
			return n
		}
	}
}

// nudge sends a pending request once more, beside its repetitions.
func (r *requests) nudge(o *outgoing) {
	r.mu.Lock()
	pending := r.pending[o.sequence] == o
	r.mu.Unlock()
	if pending {
		r.s.counters.retransmissions.Add(1)
		r.write(o)
	}
}

func (r *requests) write(o *outgoing) {
	one := []ipv4.Message{{Buffers: [][]byte{o.message}, Addr: o.addr}}
	if _, err := o.conn.batch.WriteBatch(one, 0); err != nil {
		r.s.lost(err)
	}
}

// again repeats a request that was not answered in time, or gives it up.
func (r *requests) again(o *outgoing) {
	r.mu.Lock()
	if r.pending[o.sequence] != o {
		r.mu.Unlock()
		return
	}
	if o.tries > r.s.cfg.Retries {
		delete(r.pending, o.sequence)
		r.mu.Unlock()
		r.s.counters.unanswered.Add(1)
		o.done(nil, ErrNoAnswer)
		return
	}
	o.tries++
	o.timer.Reset(r.s.cfg.RetryAfter)
	r.mu.Unlock()
	r.s.counters.retransmissions.Add(1)
	r.write(o)
}

// answered handles a response. Only one from the peer that we asked counts.
func (r *requests) answered(from netip.Addr, h wire.Header, body wire.IEs, err error) {
	r.mu.Lock()
	o := r.pending[h.Sequence]
	if o == nil || o.to.Addr() != from || o.msgType+1 != h.Type {
		r.mu.Unlock()
		r.s.counters.unexpected.Add(1)
		return
	}
	delete(r.pending, h.Sequence)
	o.timer.Stop()
	r.mu.Unlock()
	o.done(slices.Clone(body), err)
}

// stop gives up all requests.
func (r *requests) stop() {
	r.mu.Lock()
	r.stopped = true
	list := r.pending
	r.pending = map[uint32]*outgoing{}
	r.mu.Unlock()
	for _, o := range list {
		o.timer.Stop()
		o.done(nil, ErrStopped)
	}
}
