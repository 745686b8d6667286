package pfcp

import (
	"net/netip"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// heartbeat answers any sender. Only from an address with an association does
// the Recovery Time Stamp count: a new one means that the peer lost its sessions.
func (n *node) heartbeat(p *packet, h wire.Header, body wire.IEs, err error) {
	var d wire.Decoder
	var stamp uint32
	hasStamp := false
	for i := range d.Each(body) {
		if i.Type() == ie.RecoveryTimeStamp && !hasStamp {
			hasStamp, stamp = true, i.U32()
		}
	}
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

// recovered compares the Recovery Time Stamp of a heartbeat with the known one,
// and removes the sessions of a peer that has restarted.
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

// alive notes that the peer has sent something.
func (n *node) alive(a *association) {
	if a.down.CompareAndSwap(true, false) {
		n.s.log.Info("PFCP association is up again", "node", a.node)
	}
}

// heartbeats sends a Heartbeat Request to every peer. Retransmission may take
// longer than the interval: a peer gets one request at a time.
func (n *node) heartbeats() {
	for _, a := range n.s.peers.Load().sorted() {
		if n.beating[a] {
			continue
		}
		n.beating[a] = true
		n.s.requests.send(&outgoing{
			msgType: message.MsgTypeHeartbeatRequest, to: a.peer(),
			ies: []*ie.IE{ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.recovery)},
			done: func(body wire.IEs, err error) {
				n.post(func() { n.beaten(a, body, err) }) // if the queue is full, the next heartbeat tries again
			},
		})
	}
}

// beaten handles the answer to our heartbeat, or that none came.
func (n *node) beaten(a *association, body wire.IEs, err error) {
	delete(n.beating, a)
	if n.s.peers.Load().byNode[a.node] != a {
		return // another association has replaced it
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
	for i := range d.Each(body) {
		if i.Type() == ie.RecoveryTimeStamp && len(i.Value()) >= 4 {
			n.recovered(a.addrs[0], i.U32())
		}
	}
}
