package pfcp

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// heartbeat answers any sender. It changes nothing: a Recovery Time Stamp that we
// do not know only makes us ask the SMF.
func (n *node) heartbeat(p *packet, h wire.Header, body wire.IEs, err error) {
	stamp, why := readStamp(body)
	// A Heartbeat Response has no Cause to refuse with.
	if err != nil || why != nil {
		n.s.counters.malformed.Add(1)
		n.s.warn(&n.s.complain.malformed, "heartbeat without a readable Recovery Time Stamp", "from", p.from)
	} else {
		n.heard(p.from.Addr(), stamp)
	}
	h.HasSEID = false
	n.s.counters.sent[message.MsgTypeHeartbeatResponse].Add(1)
	n.scratch = wire.AppendMessage(n.scratch[:0], message.MsgTypeHeartbeatResponse, h,
		ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.recovery))
	n.out.add(p.conn, p.to, n.scratch)
}

// heard compares the Recovery Time Stamp of a Heartbeat Request, which anybody
// may have sent, with the known one. If it is another, we ask the SMF.
func (n *node) heard(from netip.Addr, stamp uint32) {
	for _, a := range n.s.peers.Load().at(from) {
		if a.recovery == stamp {
			n.alive(a)
			continue
		}
		n.doubts[a]++
		if n.doubts[a] > 1 {
			continue // we are asking
		}
		n.ask(a.addrs[0], func(stamp uint32, err error) {
			times := n.doubts[a]
			delete(n.doubts, a)
			if err != nil || !isLater(stamp, a.recovery) {
				n.s.counters.unconfirmed.Add(times)
				n.s.warn(&n.s.complain.unconfirmed, "heartbeat with a Recovery Time Stamp that the SMF does not confirm", "node", a.node, "from", from)
			}
			n.beaten(a, stamp, err)
		})
	}
}

// isLater says whether a Recovery Time Stamp is later than another. Stamps are
// seconds modulo 2^32, which begin again in 2036.
func isLater(stamp, than uint32) bool { return int32(stamp-than) > 0 }

// alive notes that the peer has sent something.
func (n *node) alive(a *association) {
	if a.down.CompareAndSwap(true, false) {
		n.s.limited(&n.s.complain.back, slog.LevelInfo, time.Second, "PFCP association is up again", []any{"node", a.node})
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
		n.s.requests.send(n.newHeartbeat(a.addrs[0], func(stamp uint32, err error) {
			delete(n.beating, a)
			n.beaten(a, stamp, err)
		}))
	}
}

// beaten handles the answer to our heartbeat, or that none came. Only a later
// Recovery Time Stamp means that the SMF has restarted and lost its sessions: an
// earlier one is stale (TS 23.007 section 19A).
func (n *node) beaten(a *association, stamp uint32, err error) {
	if n.s.peers.Load().byNode[a.node] != a {
		return // another association has replaced it
	}
	if err != nil {
		if a.down.CompareAndSwap(false, true) {
			n.s.counters.associationsLost.Add(1)
			n.s.warn(&n.s.complain.silent, "SMF does not answer heartbeats: its sessions stay", "node", a.node, "sessions", a.sessions.Load(), "error", err)
		}
		return
	}
	n.alive(a)
	switch {
	case isLater(stamp, a.recovery):
		n.restarted(a, stamp)
	case stamp != a.recovery:
		n.s.counters.unconfirmed.Add(1)
		n.s.warn(&n.s.complain.unconfirmed, "SMF answers with an earlier Recovery Time Stamp: its sessions stay", "node", a.node)
	}
}

// restarted removes the sessions of an SMF that has lost them.
func (n *node) restarted(a *association, stamp uint32) {
	a.end(nil)
	n.s.counters.peerRestarts.Add(1)
	n.s.warn(&n.s.complain.restarted, "SMF has restarted: its sessions are gone", "node", a.node, "sessions", a.sessions.Load())
	next := newAssociation(a.node, stamp, a.addrs...)
	next.apps.Store(a.apps.Load())
	n.publish(n.s.peers.Load().with(next))
	n.purge(a, next, func() {})
}
