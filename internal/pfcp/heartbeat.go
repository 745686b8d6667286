package pfcp

import (
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/logevent"
)

// heard compares the Recovery Time Stamp of a Heartbeat Request, which anybody
// may have sent, with the known one. If it is another, we ask the SMF.
func (s *Server) heard(from netip.Addr, stamp uint32) {
	for _, a := range s.peers.Load().at(from) {
		if a.recovery == stamp {
			s.alive(a)
			continue
		}
		if a.doubts.Add(1) > 1 {
			continue // we are asking
		}
		if !s.node.post(func() { s.node.doubt(a, from) }) {
			s.counters.overflows.Add(a.doubts.Swap(0))
		}
	}
}

// doubt asks an SMF whose address has sent another Recovery Time Stamp than we know.
func (n *node) doubt(a *association, from netip.Addr) {
	n.ask(a.addrs[0], func(stamp uint32, err error) {
		times := a.doubts.Swap(0)
		if err != nil || !isLater(stamp, a.recovery) {
			n.s.counters.unconfirmed.Add(times)
			n.s.warn(&n.s.complain.unconfirmed, logevent.PFCPRecoveryUnconfirmed, "heartbeat with a Recovery Time Stamp that the SMF does not confirm", "node", a.node, "from", from)
		}
		n.beaten(a, stamp, err)
	})
}

// confirm asks the SMFs of an address for their heartbeats, one at a time: whether
// they are there.
func (s *Server) confirm(from netip.Addr) {
	for _, a := range s.peers.Load().at(from) {
		if !a.asked.CompareAndSwap(false, true) {
			continue
		}
		ask := func() {
			s.node.ask(a.addrs[0], func(stamp uint32, err error) {
				a.asked.Store(false)
				s.node.beaten(a, stamp, err)
			})
		}
		if !s.node.post(ask) {
			a.asked.Store(false)
		}
	}
}

// isLater says whether a Recovery Time Stamp is later than another. Stamps are
// seconds modulo 2^32, which begin again in 2036.
func isLater(stamp, than uint32) bool { return int32(stamp-than) > 0 }

// alive notes that the peer has sent something.
func (s *Server) alive(a *association) {
	if a.down.CompareAndSwap(true, false) {
		s.limited(&s.complain.back, time.Second, logevent.PFCPSMFRecovered, "PFCP association is up again", []any{"node", a.node})
	}
}

// heartbeats sends a Heartbeat Request to every peer. Retransmission may take
// longer than the interval: a peer gets one request at a time.
func (n *node) heartbeats() {
	for _, a := range n.s.peers.Load().sorted() {
		n.beat(a)
	}
}

func (n *node) beat(a *association) {
	if n.beating[a] {
		return
	}
	n.beating[a] = true
	n.s.requests.send(n.newHeartbeat(a.addrs[0], func(stamp uint32, err error) {
		delete(n.beating, a)
		n.beaten(a, stamp, err)
	}))
}

// beaten handles the answer to our heartbeat, or that none came. Only a later
// Recovery Time Stamp means that the SMF has restarted and lost its sessions: an
// earlier one is stale (TS 23.007 section 19A).
func (n *node) beaten(a *association, stamp uint32, err error) {
	if n.s.peers.Load().byNode[a.node] != a {
		return // another association has replaced it
	}
	if err != nil {
		a.missed.Store(true)
		if a.down.CompareAndSwap(false, true) {
			n.s.counters.associationsLost.Add(1)
			n.s.warn(&n.s.complain.silent, logevent.PFCPSMFSilent, "SMF does not answer heartbeats: its sessions stay", "node", a.node, "sessions", a.sessions.Load(), "error", err)
			n.connect() // it may have restarted, and know us no longer
		}
		return
	}
	n.s.alive(a)
	a.proven.Store(true)
	switch {
	case isLater(stamp, a.recovery):
		n.restarted(a, stamp)
	case stamp != a.recovery:
		n.s.counters.unconfirmed.Add(1)
		n.s.warn(&n.s.complain.unconfirmed, logevent.PFCPRecoveryUnconfirmed, "SMF answers with an earlier Recovery Time Stamp: its sessions stay", "node", a.node)
	}
}

// hasRestarted says why sessions are removed.
const hasRestarted = "the SMF has restarted: its Recovery Time Stamp is a later one"

// restarted removes the sessions of an SMF that has lost them. The association does
// not survive the restart either: whoever has set it up does so again (TS 23.527
// section 4.2). Until then requests are answered as before.
func (n *node) restarted(a *association, stamp uint32) {
	a.end(nil)
	n.s.counters.peerRestarts.Add(1)
	n.s.warn(&n.s.complain.restarted, logevent.PFCPSMFRestarted, "SMF has restarted: its sessions are gone", "node", a.node, "sessions", a.sessions.Load())
	next := newAssociation(a.node, stamp, a.addrs...)
	next.apps.Store(a.apps.Load())
	next.proven.Store(true)
	next.lapsed = true
	n.publish(n.s.peers.Load().with(next))
	n.purge(a, next, hasRestarted, func() {})
	n.connect()
}
