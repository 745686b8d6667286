package pfcp

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// dispatcher hands the datagrams of one socket to the workers and the node. It does
// itself what must not wait behind their work: it answers heartbeats, and gives
// responses to who waits for them.
type dispatcher struct {
	s       *Server
	pending []*batch // by worker; the last is the node's
	out     outbox
	scratch []byte
	// last is the sender before, whose standing is known. It holds for one batch.
	last     netip.Addr
	standing standing
}

func newDispatcher(s *Server) *dispatcher {
	return &dispatcher{s: s, pending: make([]*batch, len(s.workers)+1)}
}

// dispatch decides who handles a datagram: the worker of its session, or the
// node. A repeated request goes to the same one as the first.
func (d *dispatcher) dispatch(c *conn, from netip.AddrPort, to net.Addr, data []byte) {
	s := d.s
	if !s.smfs.Load().allows(from.Addr()) {
		s.counters.strangers.Add(1)
		s.warn(&s.complain.stranger, logevent.PFCPSenderRefused, "PFCP from an address that is not allowed", "from", from)
		return
	}
	whose, what := len(s.workers), aboutNode
	h, body, _, err := wire.ReadHeader(data)
	if errors.Is(err, wire.ErrUnreadable) {
		s.counters.malformed.Add(1)
		s.warn(&s.complain.malformed, logevent.PFCPMalformed, "datagram is not PFCP", "from", from, "octets", len(data))
		return
	}
	if err == nil {
		s.counters.received[h.Type].Add(1)
	}
	switch {
	case errors.Is(err, wire.ErrVersion): // the meaning of its types is unknown
	case h.Type == message.MsgTypeSessionEstablishmentRequest:
		whose, what = int(h.Sequence)%len(s.workers), aboutSession
	case h.Type == message.MsgTypeSessionModificationRequest, h.Type == message.MsgTypeSessionDeletionRequest:
		whose, what = s.workerOf(h.SEID).index, aboutSession
	case h.Type == message.MsgTypeHeartbeatRequest:
		what = heartbeat
	case isResponse(h.Type):
		s.requests.answered(from.Addr(), h, body, err)
		return
	}
	early := what == aboutSession && !s.running.Load()
	if !early && !d.within(from, what, len(data)) {
		return
	}
	if early && !s.waits(len(data)) || !early && !s.ready(what) {
		s.counters.overflows.Add(1)
		return
	}
	if what == heartbeat {
		d.heartbeat(c, from, to, h, body, err)
		return
	}
	b := d.pending[whose]
	if b == nil {
		b = batches.Get().(*batch)
		if d.pending[whose] = b; early {
			b.early = time.Now()
		}
	}
	at := len(b.memory)
	b.memory = append(b.memory, data...)
	b.packets = append(b.packets, packet{c, from, to, b.memory[at:]})
}

// within says whether a sender may ask for one thing more now. It counts what it
// refuses.
func (d *dispatcher) within(from netip.AddrPort, what topic, octets int) bool {
	s := d.s
	if addr := from.Addr(); addr != d.last {
		d.last, d.standing = addr, s.standingOf(addr)
	}
	ok, ask := s.limits.take(d.last, d.standing, what)
	if ask {
		s.confirm(d.last)
	}
	if !ok {
		s.counters.excess.Add(1)
		s.counters.excessOctets.Add(uint64(octets))
		s.warn(&s.complain.excess, logevent.PFCPRateLimited, "PFCP beyond what its sender may send in a second", "from", from)
	}
	return ok
}

// heartbeat answers any sender. It changes nothing: a Recovery Time Stamp that we
// do not know only makes us ask the SMF. err is of the header: such a heartbeat is
// dropped, since a Heartbeat Response has no Cause to refuse with.
func (d *dispatcher) heartbeat(c *conn, from netip.AddrPort, to net.Addr, h wire.Header, body wire.IEs, err error) {
	s := d.s
	if err != nil {
		s.counters.malformed.Add(1)
		s.warn(&s.complain.malformed, logevent.PFCPMalformed, "heartbeat with a wrong header", "from", from, "error", err)
		return
	}
	stamp, err := readStamp(body)
	if err != nil {
		s.counters.malformed.Add(1)
		s.warn(&s.complain.malformed, logevent.PFCPMalformed, "heartbeat without a readable Recovery Time Stamp", "from", from)
	} else {
		s.heard(from.Addr(), stamp)
	}
	h.HasSEID = false
	s.counters.sent[message.MsgTypeHeartbeatResponse].Add(1)
	d.scratch = wire.AppendMessage(d.scratch[:0], message.MsgTypeHeartbeatResponse, h,
		ie.NewUint32IE(ie.RecoveryTimeStamp, s.stamps.Load().to(from.Addr())))
	d.out.add(c, to, d.scratch)
}

// flush sends the answers and hands the datagrams over.
func (d *dispatcher) flush() {
	d.last = netip.Addr{}
	d.out.flush(d.s.conns, d.s.lost)
	for i, b := range d.pending {
		if b == nil {
			continue
		}
		d.pending[i] = nil
		queue := d.s.node.queue
		if i < len(d.s.workers) {
			queue = d.s.workers[i].queue
		}
		select {
		case queue <- b:
		default:
			d.s.counters.overflows.Add(uint64(len(b.packets)))
			d.s.warn(&d.s.complain.overflow, logevent.PFCPQueueFull, "PFCP queue is full", "dropped", len(b.packets))
			b.release()
		}
	}
}
