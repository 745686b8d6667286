package pfcp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// setupIEs are the IEs of an Association Setup Request or Response.
type setupIEs struct {
	node       string // "": it is missing
	recovery   uint32
	hasStamp   bool
	cause      uint8
	others     []netip.Addr // Alternative SMF IP Addresses
	retain     bool
	retainFrom []netip.Addr // CP PFCP entities whose sessions stay; none: all
}

func readSetup(d *wire.Decoder, l wire.IEs) (out setupIEs) {
	for i := range d.Each(l) {
		switch i.Type() {
		case ie.NodeID:
			out.node = i.NodeID()
		case ie.RecoveryTimeStamp:
			out.recovery, out.hasStamp = i.U32(), true
		case ie.Cause:
			out.cause = i.U8()
		case ie.AlternativeSMFIPAddress:
			out.others = append(out.others, i.Addrs()...)
		case ie.PFCPSessionRetentionInformation:
			out.retain = true
			for i := range i.Each() {
				if i.Type() == ie.CPPFCPEntityIPAddress {
					out.retainFrom = append(out.retainFrom, i.Addrs()...)
				}
			}
		}
	}
	switch {
	case out.node == "":
		d.Fail(wire.Missing(ie.NodeID))
	case !out.hasStamp:
		d.Fail(wire.Missing(ie.RecoveryTimeStamp))
	}
	return out
}

// keeps says whether an SMF that sets up its association again keeps a session.
func (s *setupIEs) keeps(one *session.Session) bool {
	return s.retain && (len(s.retainFrom) == 0 || slices.Contains(s.retainFrom, one.CPAddr))
}

// setup answers an Association Setup Request, once it is clear that the sender
// may make it. The association replaces an earlier one of the Node ID and removes
// its sessions, unless the SMF asks to retain them (TS 29.244 section 6.2.6.2.2).
// The answer waits for that: what the SMF establishes next does not collide with
// old sessions.
func (n *node) setup(r *nodeRequest, body wire.IEs) {
	var d wire.Decoder
	peer := readSetup(&d, body)
	if d.Err != nil {
		r.refuse(d.Err)
		return
	}
	r.later()
	c := &claim{peer: peer, from: r.p.from.Addr()}
	c.done = func(why *wire.Refusal) {
		if why != nil {
			r.refuse(why)
			return
		}
		n.associate(c, func(a *association, retained bool) {
			if a.renewed { // an SMF that knows it before the answer need not set up its association once more
				n.beat(a)
			}
			list := []*ie.IE{
				wire.NewNodeID(n.s.cfg.NodeID),
				accepted,
				ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.stamps.Load().to(c.from)),
				wire.NewUPFunctionFeatures(n.s.features),
			}
			if retained {
				list = append(list, ie.NewPFCPASRspFlags(1)) // PSREI
			}
			r.reply(ie.CauseRequestAccepted, list...)
		})
	}
	n.decide(c)
}

// associate publishes an association and calls done when the sessions that do
// not belong to it are removed, with whether earlier ones were to be retained.
func (n *node) associate(c *claim, done func(a *association, retained bool)) {
	peer, from := c.peer, c.from
	a := newAssociation(peer.node, peer.recovery, append([]netip.Addr{from}, peer.others...)...)
	ps := n.s.peers.Load()
	old := ps.byNode[peer.node]
	a.proven.Store(c.confirmed || old != nil && old.proven.Load() && old.addrs[0] == from)
	retained := old != nil && peer.retain
	if retained {
		a.apps.Store(old.apps.Load())
	}
	left := 1 // purges that done waits for, and this function; all end in this goroutine
	finished := func() {
		if left--; left == 0 {
			done(a, retained)
		}
	}
	if old != nil {
		a.renewed = old.misleads(&peer)
	}
	n.setStamp(a, old) // before anything ends: it writes a file, and the data path answers until publish
	ended := c.restarted(ps)
	for _, other := range ended {
		other.end(nil)
		n.s.counters.peerRestarts.Add(1)
		n.s.warn(&n.s.complain.restarted, logevent.PFCPSMFRestarted, "SMF has restarted under another Node ID", "node", peer.node, "was", other.node)
		ps = ps.without(other.node)
	}
	if old != nil {
		old.end(peer.keeps)
		ended = append(ended, old)
	} else if len(ps.byNode) >= maxAssociations {
		other := ps.deserted()
		other.end(nil)
		ps, ended = ps.without(other.node), append(ended, other)
	}
	n.publish(ps.with(a))
	for _, other := range ended {
		left++
		n.purge(other, a, reasonToEnd(other, a), finished)
	}
	n.s.inform(&n.s.complain.associated, logevent.PFCPAssociated, "PFCP association", "node", peer.node, "address", from, "again", old != nil, "retain_sessions", retained)
	finished()
}

// reactionTime is how long an SMF may take to see a later Recovery Time Stamp of ours, and
// to set up its association again.
const reactionTime = 30 * time.Second

// misleads says whether an SMF that sets up its association again may believe in its
// sessions although they are removed: it has not restarted, and sees no restart of ours.
// Open5GS' SMF does so after an outage of N4. It establishes its sessions again once our
// Recovery Time Stamp is later, and may set up the association before: that must not make
// the stamp later again.
func (a *association) misleads(next *setupIEs) bool {
	reacts := a.renewed && time.Since(a.since) < reactionTime
	return a.recovery == next.recovery && !next.retain && a.sessions.Load() > 0 && !reacts
}

// reasonToEnd says why an association ends where another begins.
func reasonToEnd(old, next *association) string {
	switch {
	case old.recovery != next.recovery:
		return hasRestarted
	case old.node != next.node:
		return "another SMF needs the place of its association, which nobody uses"
	}
	return "the SMF has set up its association again, and does not ask to retain sessions"
}

// update answers an Association Update Request. Nothing that an SMF may put
// there changes anything for us.
func (n *node) update(r *nodeRequest, body wire.IEs) {
	a, why := n.named(r, body)
	if why != nil {
		r.refuse(why)
		return
	}
	n.s.alive(a)
	r.reply(ie.CauseRequestAccepted, wire.NewNodeID(n.s.cfg.NodeID), accepted, wire.NewUPFunctionFeatures(n.s.features))
}

// named returns the association that a request names.
func (n *node) named(r *nodeRequest, body wire.IEs) (*association, *wire.Refusal) {
	var d wire.Decoder
	node := ""
	for i := range d.Each(body) {
		if i.Type() == ie.NodeID {
			node = i.NodeID()
		}
	}
	if node == "" {
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

// releaseRequest answers an Association Release Request when the sessions are
// removed.
func (n *node) releaseRequest(r *nodeRequest, body wire.IEs) {
	a, why := n.named(r, body)
	if why != nil {
		r.refuse(why)
		return
	}
	r.later()
	a.end(nil)
	n.publish(n.s.peers.Load().without(a.node))
	n.s.inform(&n.s.complain.released, logevent.PFCPReleased, "PFCP association released", "node", a.node, "sessions", a.sessions.Load())
	n.purge(a, nil, "the SMF has released the association", func() {
		r.reply(ie.CauseRequestAccepted, wire.NewNodeID(n.s.cfg.NodeID), accepted)
	})
}

// connect sets up associations with the configured SMFs that have none, or one that
// an SMF may have lost.
func (n *node) connect() {
	for _, addr := range n.s.smfs.Load().connect {
		if n.connecting[addr] || n.isConnected(addr) {
			continue
		}
		n.connecting[addr] = true
		n.s.requests.send(&outgoing{
			msgType: message.MsgTypeAssociationSetupRequest, to: netip.AddrPortFrom(addr, Port), secret: true,
			ies: []*ie.IE{
				wire.NewNodeID(n.s.cfg.NodeID),
				ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.stamps.Load().to(addr)),
				wire.NewUPFunctionFeatures(n.s.features),
			},
			done: func(body wire.IEs, err error) { n.hand(func() { n.connected(addr, body, err) }) },
		})
	}
}

// isConnected says whether an address has an association that its SMF knows, as far as
// we know. An SMF that does not answer heartbeats may have restarted: some answer only
// those of a UPF that they have an association with.
func (n *node) isConnected(addr netip.Addr) bool {
	return slices.ContainsFunc(n.s.peers.Load().at(addr), func(a *association) bool {
		return !a.lapsed && !a.down.Load()
	})
}

// connected handles the answer to our Association Setup Request. An SMF that has an
// association, and answers with the Recovery Time Stamp of that, has kept its sessions,
// and so do we.
func (n *node) connected(addr netip.Addr, body wire.IEs, err error) {
	delete(n.connecting, addr)
	var d wire.Decoder
	peer := readSetup(&d, body)
	if err == nil && d.Err != nil {
		err = d.Err
	}
	if err == nil && peer.cause != ie.CauseRequestAccepted {
		err = fmt.Errorf("%w: cause %d", ErrRefused, peer.cause)
	}
	if err != nil {
		n.s.log.Warn("no PFCP association", "event", logevent.PFCPAssociationFailed, "address", addr, "error", err)
		return
	}
	old := n.s.peers.Load().byNode[peer.node]
	peer.retain, peer.retainFrom = old != nil && old.has(addr) && old.recovery == peer.recovery, nil
	if peer.retain {
		n.s.alive(old)
	}
	c := &claim{peer: peer, from: addr}
	c.done = func(why *wire.Refusal) {
		if why != nil {
			n.s.log.Warn("no PFCP association", "event", logevent.PFCPAssociationFailed, "address", addr, "error", why)
			return
		}
		n.associate(c, func(*association, bool) {})
	}
	n.decide(c)
}

// Release asks an SMF to release its association, as TS 29.244 section 6.2.7.3
// specifies for a UP function: with an Association Update Request. The SMF
// answers with a request of its own. The error says that no association has
// the Node ID.
func (s *Server) Release(nodeID string) error {
	a := s.peers.Load().byNode[nodeID]
	if a == nil {
		return fmt.Errorf("no PFCP association with node ID %q", nodeID)
	}
	s.requests.send(&outgoing{
		msgType: message.MsgTypeAssociationUpdateRequest, to: a.peer(),
		ies: []*ie.IE{wire.NewNodeID(s.cfg.NodeID), ie.NewPFCPAssociationReleaseRequest(1, 0)},
		done: func(body wire.IEs, err error) {
			if err := causeOf(body, err); err != nil {
				s.log.Warn("SMF does not release its association", "event", logevent.PFCPReleaseRefused, "node", nodeID, "error", err)
			}
		},
	})
	return nil
}
