package pfcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// node is the goroutine for all that is not about one session. It alone changes
// associations.
type node struct {
	s       *Server
	queue   chan *batch
	tasks   chan func()
	answers *transactions
	// busy are requests whose answer takes its time: a repetition waits too.
	busy    map[uint64]bool
	out     outbox
	scratch []byte
	// connecting are SMFs that a setup of ours is under way to, beating those
	// that have not answered the last heartbeat yet.
	connecting map[netip.Addr]bool
	beating    map[*association]bool
}

// maxAssociations bounds what peers can make us keep.
const maxAssociations = 1024

func newNode(s *Server) *node {
	return &node{
		s:     s,
		queue: make(chan *batch, queueLength), tasks: make(chan func(), taskQueue),
		answers: newTransactions(), busy: map[uint64]bool{},
		connecting: map[netip.Addr]bool{}, beating: map[*association]bool{},
	}
}

// post runs f in the node goroutine; false: too much waits already.
func (n *node) post(f func()) bool {
	select {
	case n.tasks <- f:
		return true
	default:
		return false
	}
}

func (n *node) run(ctx context.Context) error {
	beat := time.NewTicker(n.s.cfg.Heartbeat)
	defer beat.Stop()
	n.connect()
	for {
		select {
		case b := <-n.queue:
			for i := range b.packets {
				n.packet(&b.packets[i])
			}
			b.release()
		case f := <-n.tasks:
			f()
		case <-beat.C:
			n.heartbeats()
			n.connect()
		case <-ctx.Done():
			return nil
		}
		n.out.flush(n.s.conns, n.s.lost)
	}
}

func (n *node) packet(p *packet) {
	h, body, _, err := wire.ReadHeader(p.data)
	if errors.Is(err, wire.ErrVersion) {
		n.s.counters.malformed.Add(1)
		n.s.counters.sent[message.MsgTypeVersionNotSupportedResponse].Add(1)
		n.scratch = wire.AppendMessage(n.scratch[:0], message.MsgTypeVersionNotSupportedResponse, wire.Header{Sequence: h.Sequence})
		n.out.add(p.conn, p.to, n.scratch)
		return
	}
	if isResponse(h.Type) {
		n.s.requests.answered(p.from.Addr(), h, body, err)
		return
	}
	if _, known := messageNames[h.Type]; !known || h.Type == message.MsgTypeSessionReportRequest ||
		h.Type == message.MsgTypeNodeReportRequest {
		n.s.counters.malformed.Add(1)
		n.s.warn(&n.s.complain.malformed, "PFCP message of a type that no SMF sends", "from", p.from, "type", h.Type)
		return
	}
	// Heartbeats change nothing, so anybody's may be answered anew each time:
	// a repeated one gets the same answer by itself.
	if h.Type == message.MsgTypeHeartbeatRequest {
		n.heartbeat(p, h, body, err)
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

// isResponse: even numbers up to 15, odd ones from 50 on, and Version Not
// Supported.
func isResponse(msgType uint8) bool {
	switch msgType {
	case message.MsgTypeVersionNotSupportedResponse, message.MsgTypeNodeReportResponse - 1:
		return msgType == message.MsgTypeVersionNotSupportedResponse
	case message.MsgTypeNodeReportResponse, message.MsgTypeSessionSetDeletionResponse:
		return true
	}
	if msgType < message.MsgTypeSessionEstablishmentRequest {
		return msgType%2 == 0 && msgType <= message.MsgTypeAssociationReleaseResponse && msgType != 0
	}
	return msgType%2 == 1 && msgType <= message.MsgTypeSessionReportResponse
}

// nodeRequest is a request that waits for its answer.
type nodeRequest struct {
	n   *node
	p   packet // without its data
	h   wire.Header
	key uint64
}

// reply answers, and keeps the answer for repetitions of peers that have an
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

func (r *nodeRequest) refuse(why *wire.Refusal) {
	s := r.n.s
	s.warn(&s.complain.refused, "PFCP request refused", "from", r.p.from, "message", messageName(r.h.Type), "why", why)
	r.reply(why.Cause, append([]*ie.IE{wire.NewNodeID(s.cfg.NodeID)}, why.IEs()...)...)
}

// later keeps a request for an answer that comes when others have done their
// part.
func (r *nodeRequest) later() { r.n.busy[r.key] = true }

func (n *node) request(r nodeRequest, body wire.IEs, err error) {
	defer func() {
		if v := recover(); v != nil {
			n.s.counters.panics.Add(1)
			n.s.warn(&n.s.complain.panicked, "reading a PFCP message failed", "from", r.p.from, "panic", v, "stack", string(debug.Stack()))
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

// setupIEs are what an Association Setup Request or Response says.
type setupIEs struct {
	node       string
	hasNode    bool
	recovery   uint32
	hasStamp   bool
	cause      uint8
	others     []netip.Addr // Alternative SMF IP Addresses
	retain     bool
	retainFrom []netip.Addr // CP PFCP entities; none: all
}

func readSetup(d *wire.Decoder, l wire.IEs) (out setupIEs) {
	d.Each(l, func(i wire.IE) {
		switch i.Type {
		case ie.NodeID:
			out.node, out.hasNode = i.NodeID(), true
		case ie.RecoveryTimeStamp:
			out.recovery, out.hasStamp = i.U32(), true
		case ie.Cause:
			out.cause = i.U8()
		case ie.AlternativeSMFIPAddress:
			out.others = append(out.others, i.Addrs()...)
		case ie.PFCPSessionRetentionInformation:
			out.retain = true
			i.Each(func(i wire.IE) {
				if i.Type == ie.CPPFCPEntityIPAddress {
					out.retainFrom = append(out.retainFrom, i.Addrs()...)
				}
			})
		}
	})
	switch {
	case !out.hasNode:
		d.Fail(wire.Missing(ie.NodeID))
	case !out.hasStamp:
		d.Fail(wire.Missing(ie.RecoveryTimeStamp))
	}
	return out
}

// setup answers an Association Setup Request. An association that was there is
// replaced; its sessions go, unless the SMF asks to retain them (TS 29.244
// section 6.2.6.2.2), and only then is there an answer, so that what the SMF
// establishes next does not meet them.
func (n *node) setup(r *nodeRequest, body wire.IEs) {
	var d wire.Decoder
	said := readSetup(&d, body)
	if d.Err != nil {
		r.refuse(d.Err)
		return
	}
	from := r.p.from.Addr()
	old := n.s.peers.Load().byNode[said.node]
	if old != nil && !old.has(from) && !old.down.Load() {
		n.s.counters.unauthorised.Add(1)
		n.s.warn(&n.s.complain.unauthorised, "association of another peer's Node ID", "from", from, "node", said.node)
		r.refuse(&wire.Refusal{Cause: ie.CauseRequestRejected})
		return
	}
	if old == nil && len(n.s.peers.Load().byNode) >= maxAssociations {
		r.refuse(&wire.Refusal{Cause: ie.CauseNoResourcesAvailable})
		return
	}
	r.later()
	retained := n.associate(said, from, func() {
		list := n.selfDescription()
		if said.retain && old != nil {
			list = append(list, ie.NewPFCPASRspFlags(1)) // PSREI
		}
		r.reply(ie.CauseRequestAccepted, list...)
	})
	n.s.log.Info("PFCP association", "node", said.node, "address", from, "again", old != nil, "retain_sessions", retained)
}

// selfDescription is what a setup or update tells of us.
func (n *node) selfDescription() []*ie.IE {
	return []*ie.IE{
		wire.NewNodeID(n.s.cfg.NodeID),
		accepted,
		ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.recovery),
		wire.NewUPFunctionFeatures(n.s.features),
	}
}

// associate puts an association in place, and calls done when sessions that do
// not belong to it are gone.
func (n *node) associate(said setupIEs, from netip.Addr, done func()) (retained bool) {
	a := newAssociation(said.node, said.recovery, append([]netip.Addr{from}, said.others...)...)
	ps := n.s.peers.Load()
	old := ps.byNode[said.node]
	if old != nil && said.retain {
		a.apps.Store(old.apps.Load())
	}
	left := 1 // what done waits for; all of it ends in this goroutine
	finished := func() {
		if left--; left == 0 {
			done()
		}
	}
	// An address is one PFCP entity, with one Recovery Time Stamp: what it had
	// under another Node ID and stamp was lost with its restart.
	for _, other := range ps.at(from) {
		if other.node != said.node && other.recovery != said.recovery {
			n.s.counters.peerRestarts.Add(1)
			n.s.log.Warn("SMF has restarted under another Node ID", "node", said.node, "was", other.node)
			ps = ps.without(other.node)
			left++
			n.purge(other, nil, nil, finished)
		}
	}
	n.publish(ps.with(a))
	if old != nil {
		var keep func(*session.Session) bool
		if said.retain {
			keep = func(s *session.Session) bool {
				return len(said.retainFrom) == 0 || slices.Contains(said.retainFrom, s.CPAddr)
			}
		}
		left++
		n.purge(old, a, keep, finished)
	}
	finished()
	return old != nil && said.retain
}

// publish makes associations known to the workers, and keeps them over a
// restart.
func (n *node) publish(ps *peers) {
	n.s.peers.Store(ps)
	n.s.save()
}

// purge takes down the sessions of old, except those that keep names, which go
// over to a. done is called in the node goroutine.
func (n *node) purge(old, a *association, keep func(*session.Session) bool, done func()) {
	n.everywhere(func(w *worker, done func()) {
		w.purge(purge{old: old, new: a, keep: keep, done: done})
	}, done)
}

// everywhere runs f in every worker, and done here when each has called its
// own. Workers that are too busy to take a task are waited for.
func (n *node) everywhere(f func(w *worker, done func()), done func()) {
	var left atomic.Int64
	left.Store(int64(len(n.s.workers)))
	finished := func() {
		if left.Add(-1) == 0 {
			go func() { n.tasks <- done }()
		}
	}
	for _, w := range n.s.workers {
		w.tasks <- func() { f(w, finished) }
	}
}

// update answers an Association Update Request. What an SMF may say there
// changes nothing for us.
func (n *node) update(r *nodeRequest, body wire.IEs) {
	a, why := n.named(r, body)
	if why != nil {
		r.refuse(why)
		return
	}
	n.alive(a)
	r.reply(ie.CauseRequestAccepted, wire.NewNodeID(n.s.cfg.NodeID), accepted, wire.NewUPFunctionFeatures(n.s.features))
}

// named is the association that a request is about.
func (n *node) named(r *nodeRequest, body wire.IEs) (*association, *wire.Refusal) {
	var d wire.Decoder
	hasNode := false
	d.Each(body, func(i wire.IE) {
		if i.Type == ie.NodeID {
			i.NodeID()
			hasNode = true
		}
	})
	if !hasNode {
		d.Fail(wire.Missing(ie.NodeID))
	}
	if d.Err != nil {
		return nil, d.Err
	}
	a := n.s.peers.Load().find(r.p.from.Addr(), body)
	if a == nil {
		n.s.counters.unauthorised.Add(1)
		return nil, &wire.Refusal{Cause: ie.CauseNoEstablishedPFCPAssociation}
	}
	return a, nil
}

// releaseRequest answers an Association Release Request, when the sessions are
// gone.
func (n *node) releaseRequest(r *nodeRequest, body wire.IEs) {
	a, why := n.named(r, body)
	if why != nil {
		r.refuse(why)
		return
	}
	r.later()
	n.publish(n.s.peers.Load().without(a.node))
	n.s.log.Info("PFCP association released", "node", a.node, "sessions", a.sessions.Load())
	n.purge(a, nil, nil, func() {
		r.reply(ie.CauseRequestAccepted, wire.NewNodeID(n.s.cfg.NodeID), accepted)
	})
}

// heartbeat answers anybody. The Recovery Time Stamp counts only from an address
// that has an association: it means that its sessions are lost there.
func (n *node) heartbeat(p *packet, h wire.Header, body wire.IEs, err error) {
	var d wire.Decoder
	var stamp uint32
	hasStamp := err == nil && d.First(body, ie.RecoveryTimeStamp, func(i wire.IE) { stamp = i.U32() })
	// A Heartbeat Response has no Cause to refuse with.
	if err != nil || d.Err != nil || !hasStamp {
		n.s.counters.malformed.Add(1)
		n.s.warn(&n.s.complain.malformed, "heartbeat without a readable Recovery Time Stamp", "from", p.from)
	} else {
		n.recovered(p.from.Addr(), stamp)
	}
	h.HasSEID = false
	n.s.counters.sent[message.MsgTypeHeartbeatResponse].Add(1)
	n.scratch = wire.AppendMessage(n.scratch[:0], message.MsgTypeHeartbeatResponse, h,
		ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.recovery))
	n.out.add(p.conn, p.to, n.scratch)
}

// recovered takes in a Recovery Time Stamp of a heartbeat.
func (n *node) recovered(from netip.Addr, stamp uint32) {
	for _, a := range n.s.peers.Load().at(from) {
		n.alive(a)
		if a.recovery == stamp {
			continue
		}
		n.s.counters.peerRestarts.Add(1)
		n.s.log.Warn("SMF has restarted: its sessions are gone", "node", a.node, "sessions", a.sessions.Load())
		next := newAssociation(a.node, stamp, a.addrs...)
		next.apps.Store(a.apps.Load())
		n.publish(n.s.peers.Load().with(next))
		n.purge(a, next, nil, func() {})
	}
}

// alive: something came from the peer.
func (n *node) alive(a *association) {
	if a.down.CompareAndSwap(true, false) {
		n.s.log.Info("PFCP association is up again", "node", a.node)
	}
}

// heartbeats asks every peer. A request that is repeated until nobody answers
// takes longer than the interval: there is one at a time.
func (n *node) heartbeats() {
	for _, a := range n.s.peers.Load().sorted() {
		if n.beating[a] {
			continue
		}
		n.beating[a] = true
		n.s.requests.send(&outgoing{
			msgType: message.MsgTypeHeartbeatRequest, to: a.peer(),
			ies: []*ie.IE{ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.recovery)},
			done: func(h wire.Header, body wire.IEs, err error) {
				n.post(func() { n.beaten(a, body, err) })
			},
		})
	}
}

func (n *node) beaten(a *association, body wire.IEs, err error) {
	delete(n.beating, a)
	if n.s.peers.Load().byNode[a.node] != a {
		return // replaced meanwhile
	}
	if err != nil {
		if a.down.CompareAndSwap(false, true) {
			n.s.counters.associationsLost.Add(1)
			n.s.log.Warn("SMF does not answer heartbeats: its sessions stay", "node", a.node, "sessions", a.sessions.Load())
		}
		return
	}
	n.alive(a)
	var d wire.Decoder
	d.Each(body, func(i wire.IE) {
		if i.Type == ie.RecoveryTimeStamp && len(i.Value) >= 4 {
			n.recovered(a.addrs[0], i.U32())
		}
	})
}

// connect sets up associations with the SMFs that we were told.
func (n *node) connect() {
	for _, addr := range n.s.smfs.Load().connect {
		if len(n.s.peers.Load().at(addr)) > 0 || n.connecting[addr] {
			continue
		}
		n.connecting[addr] = true
		n.s.requests.send(&outgoing{
			msgType: message.MsgTypeAssociationSetupRequest, to: netip.AddrPortFrom(addr, Port),
			ies: []*ie.IE{
				wire.NewNodeID(n.s.cfg.NodeID),
				ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.recovery),
				wire.NewUPFunctionFeatures(n.s.features),
			},
			done: func(h wire.Header, body wire.IEs, err error) { n.post(func() { n.connected(addr, body, err) }) },
		})
	}
}

func (n *node) connected(addr netip.Addr, body wire.IEs, err error) {
	delete(n.connecting, addr)
	var d wire.Decoder
	said := readSetup(&d, body)
	if err == nil && d.Err != nil {
		err = d.Err
	}
	if err == nil && said.cause != ie.CauseRequestAccepted {
		err = fmt.Errorf("%w: cause %d", ErrRefused, said.cause)
	}
	if err != nil {
		n.s.log.Warn("no PFCP association", "address", addr, "error", err)
		return
	}
	if old := n.s.peers.Load().byNode[said.node]; old != nil && !old.has(addr) && !old.down.Load() {
		n.s.log.Warn("no PFCP association: another peer has that Node ID", "address", addr, "node", said.node)
		return
	}
	n.associate(said, addr, func() {})
	n.s.log.Info("PFCP association", "node", said.node, "address", addr, "set_up_by", "us")
}

// Release asks an SMF to release its association (Association Update Request
// with an Association Release Request), as TS 29.244 section 6.2.7.3 has it for
// a UP function. The SMF does so with a request of its own.
func (s *Server) Release(nodeID string) error {
	a := s.peers.Load().byNode[nodeID]
	if a == nil {
		return fmt.Errorf("no association with %q", nodeID)
	}
	s.requests.send(&outgoing{
		msgType: message.MsgTypeAssociationUpdateRequest, to: a.peer(),
		ies: []*ie.IE{wire.NewNodeID(s.cfg.NodeID), ie.NewPFCPAssociationReleaseRequest(1, 0)},
		done: func(h wire.Header, body wire.IEs, err error) {
			if err == nil {
				err = causeOf(body)
			}
			if err != nil {
				s.log.Warn("SMF does not release its association", "node", nodeID, "error", err)
			}
		},
	})
	return nil
}

// causeOf is nil if a response accepts.
func causeOf(body wire.IEs) error {
	var d wire.Decoder
	cause := uint8(0)
	d.Each(body, func(i wire.IE) {
		if i.Type == ie.Cause && cause == 0 {
			cause = i.U8()
		}
	})
	if d.Err != nil {
		return d.Err
	}
	if cause == ie.CauseRequestAccepted {
		return nil
	}
	return fmt.Errorf("%w: cause %d", ErrRefused, cause)
}

// pfdManagement takes an SMF's PFDs, all of the request's or none.
func (n *node) pfdManagement(r *nodeRequest, body wire.IEs) {
	ps := n.s.peers.Load()
	from := r.p.from.Addr()
	a := ps.find(from, body)
	if all := ps.at(from); a == nil && len(all) == 1 {
		a = all[0] // before release 16 there is no Node ID
	}
	if a == nil {
		n.s.counters.unauthorised.Add(1)
		r.refuse(&wire.Refusal{Cause: ie.CauseNoEstablishedPFCPAssociation})
		return
	}
	var d wire.Decoder
	apps := maps.Clone(*a.apps.Load())
	changed := readPFDs(&d, body, apps)
	if d.Err != nil {
		r.refuse(d.Err)
		return
	}
	r.later()
	a.apps.Store(&apps)
	n.s.save()
	n.everywhere(func(w *worker, done func()) {
		w.reapply(a, changed)
		done()
	}, func() { r.reply(ie.CauseRequestAccepted, accepted, wire.NewNodeID(n.s.cfg.NodeID)) })
}
