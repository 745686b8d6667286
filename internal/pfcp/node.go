package pfcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// node handles all that is not about one session: associations, our heartbeats,
// PFDs. Its goroutine alone changes associations.
type node struct {
	mailbox
	s *Server
	// busy are requests that are answered later; repetitions are ignored.
	busy map[uint64]bool
	// connecting are SMFs that we are setting up an association with; beating
	// those that have not answered our last heartbeat yet; asking those whose
	// Recovery Time Stamp somebody waits for.
	connecting map[netip.Addr]bool
	beating    map[*association]bool
	asking     map[netip.Addr]*question
	// unsaved: associations have changed. They are saved before anybody is
	// answered.
	unsaved bool
	saved   map[string]saved // associations by Node ID
	stamped bool             // our Recovery Time Stamp is saved
}

// maxAssociations bounds the memory that peers can make us use.
const maxAssociations = 1024

func newNode(s *Server) *node {
	return &node{
		mailbox: newMailbox(), s: s, busy: map[uint64]bool{},
		connecting: map[netip.Addr]bool{}, beating: map[*association]bool{},
		asking: map[netip.Addr]*question{}, saved: map[string]saved{},
	}
}

func (n *node) run(ctx context.Context) error {
	beat := time.NewTicker(n.s.cfg.Heartbeat)
	defer beat.Stop()
	n.connect()
	for {
		select {
		case b := <-n.queue:
			n.receiveAll(b)
		case f := <-n.tasks:
			f()
		case <-beat.C:
			n.heartbeats()
			n.connect()
		case <-ctx.Done():
			return nil
		}
		n.finish()
	}
}

// together is how many datagrams are answered together at most.
const together = 1024

// receiveAll handles a batch, and those that have come since: a burst of
// associations is saved once, not once for each.
func (n *node) receiveAll(b *batch) {
	for taken := 0; ; {
		for i := range b.packets {
			n.receive(&b.packets[i])
		}
		taken += len(b.packets)
		b.release()
		if taken >= together {
			return
		}
		select {
		case b = <-n.queue:
		default:
			return
		}
	}
}

// finish saves what has changed, then sends the answers.
func (n *node) finish() {
	if n.unsaved {
		n.unsaved = !n.save()
	}
	n.out.flush(n.s.conns, n.s.lost)
}

// receive handles one datagram that is not about a session.
func (n *node) receive(p *packet) {
	h, body, _, err := wire.ReadHeader(p.data)
	if errors.Is(err, wire.ErrVersion) {
		n.s.counters.malformed.Add(1)
		n.s.counters.sent[message.MsgTypeVersionNotSupportedResponse].Add(1)
		n.scratch = wire.AppendMessage(n.scratch[:0], message.MsgTypeVersionNotSupportedResponse, wire.Header{Sequence: h.Sequence})
		n.out.add(p.conn, p.to, n.scratch)
		return
	}
	if _, known := messageNames[h.Type]; !known || h.Type == message.MsgTypeSessionReportRequest ||
		h.Type == message.MsgTypeNodeReportRequest {
		n.s.counters.malformed.Add(1)
		n.s.warn(&n.s.complain.malformed, logevent.PFCPMalformed, "PFCP message of a type that no SMF sends", "from", p.from, "type", h.Type)
		return
	}
	key := n.answers.key(p.from, p.data)
	if answer := n.answers.find(key); answer != nil {
		n.s.counters.repeated.Add(1)
		n.out.add(p.conn, p.to, answer)
		return
	}
	if n.busy[key] {
		n.s.counters.repeated.Add(1)
		return
	}
	n.request(nodeRequest{n: n, p: *p, h: h, key: key}, body, err)
}

// isResponse says whether a message is a response.
func isResponse(msgType uint8) bool {
	return strings.HasSuffix(messageNames[msgType], " response")
}

// nodeRequest is a request that is not about a session.
type nodeRequest struct {
	n   *node
	p   packet // without its data
	h   wire.Header
	key uint64
}

// reply answers. It keeps the answer for repetitions if the peer has an
// association.
func (r *nodeRequest) reply(cause uint8, list ...*ie.IE) {
	n := r.n
	delete(n.busy, r.key)
	n.s.counters.answered(r.h.Type+1, cause)
	h := r.h
	h.HasSEID = false
	n.scratch = wire.AppendMessage(n.scratch[:0], h.Type+1, h, list...)
	if len(n.s.peers.Load().at(r.p.from.Addr())) > 0 {
		n.answers.keep(r.key, n.scratch, time.Now())
	}
	n.out.add(r.p.conn, r.p.to, n.scratch)
}

// refuse answers that nothing was done.
func (r *nodeRequest) refuse(why *wire.Refusal) {
	s := r.n.s
	s.warn(&s.complain.refused, logevent.PFCPRequestRefused, "PFCP request refused", "from", r.p.from, "message", messageName(r.h.Type), "why", why)
	r.reply(why.Cause, append([]*ie.IE{wire.NewNodeID(s.cfg.NodeID)}, why.IEs()...)...)
}

// later notes that the request is answered when the workers have finished.
func (r *nodeRequest) later() { r.n.busy[r.key] = true }

// request handles a request and answers it, now or later.
func (n *node) request(r nodeRequest, body wire.IEs, err error) {
	defer func() {
		if v := recover(); v != nil {
			n.s.counters.panics.Add(1)
			n.s.warn(&n.s.complain.panicked, logevent.PFCPPanic, "reading a PFCP message failed", "from", r.p.from, "panic", v, "stack", string(debug.Stack()))
			r.refuse(&wire.Refusal{Cause: ie.CauseInvalidLength, Err: fmt.Errorf("panic: %v", v)})
		}
	}()
	r.p.data = nil
	if err != nil {
		r.refuse(&wire.Refusal{Cause: ie.CauseInvalidLength, Err: err})
		return
	}
	switch r.h.Type {
	case message.MsgTypeAssociationSetupRequest:
		n.setup(&r, body)
	case message.MsgTypeAssociationUpdateRequest:
		n.update(&r, body)
	case message.MsgTypeAssociationReleaseRequest:
		n.releaseRequest(&r, body)
	case message.MsgTypePFDManagementRequest:
		n.pfdManagement(&r, body)
	default: // Session Set Deletion
		r.refuse(wire.Unsupported(0))
	}
}

// publish shows associations to the workers. They are saved for a restart before
// the next answer.
func (n *node) publish(ps *peers) {
	n.s.peers.Store(ps)
	n.s.share()
	n.unsaved = true
}

// purge removes the sessions of old, which has ended, except those that stay: a
// takes them over. It calls done in the node's goroutine, and tells the log how many there
// were, and why they are gone.
func (n *node) purge(old, a *association, why string, done func()) {
	n.everywhere(func(w *worker, done func()) {
		p := &purge{old: old, new: a, done: done}
		for place, of := range w.sessions.All() {
			if of == old {
				p.seids = append(p.seids, w.seidAt(place))
			}
		}
		w.purges = append(w.purges, p)
	}, func() {
		if purged := old.purged.Load(); purged > 0 {
			n.s.log.Warn("sessions removed with their PFCP association", "event", logevent.PFCPSessionsRemoved, "node", old.node, "address", old.addrs[0], "sessions", purged, "why", why)
		}
		done()
	})
}

// hand has the node's goroutine call f, however full its queue is. It does not wait.
func (n *node) hand(f func()) {
	if !n.post(f) {
		go func() { n.tasks <- f }()
	}
}

// everywhere runs f in every worker's goroutine. When each has called its done,
// it calls done in the node's. It waits for workers whose queue is full.
func (n *node) everywhere(f func(w *worker, done func()), done func()) {
	var left atomic.Int64
	left.Store(int64(len(n.s.workers)))
	finished := func() {
		if left.Add(-1) == 0 {
			n.hand(done)
		}
	}
	for _, w := range n.s.workers {
		w.tasks <- func() { f(w, finished) }
	}
}

// causeOf returns nil if a response accepts, else an error that wraps ErrRefused,
// or the error that there is in place of a response.
func causeOf(body wire.IEs, err error) error {
	if err != nil {
		return err
	}
	var d wire.Decoder
	cause := uint8(0)
	for i := range d.Each(body) {
		if i.Type() == ie.Cause && cause == 0 {
			cause = i.U8()
		}
	}
	if d.Err != nil {
		return d.Err
	}
	if cause == ie.CauseRequestAccepted {
		return nil
	}
	return fmt.Errorf("%w: cause %d", ErrRefused, cause)
}
