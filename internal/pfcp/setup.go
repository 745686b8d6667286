package pfcp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

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

// setup answers an Association Setup Request. It replaces an earlier association
// of the Node ID and removes its sessions, unless the SMF asks to retain them (TS
// 29.244 section 6.2.6.2.2). The answer waits for that: what the SMF establishes
// next does not collide with old sessions.
func (n *node) setup(r *nodeRequest, body wire.IEs) {
	var d wire.Decoder
	peer := readSetup(&d, body)
	if d.Err != nil {
		r.refuse(d.Err)
		return
	}
	from := r.p.from.Addr()
	old := n.s.peers.Load().byNode[peer.node]
	if old != nil && !old.has(from) && !old.down.Load() {
		n.s.counters.unauthorised.Add(1)
		n.s.warn(&n.s.complain.unauthorised, "association of another peer's Node ID", "from", from, "node", peer.node)
		r.refuse(&wire.Refusal{Cause: ie.CauseRequestRejected})
		return
	}
	if old == nil && len(n.s.peers.Load().byNode) >= maxAssociations {
		r.refuse(&wire.Refusal{Cause: ie.CauseNoResourcesAvailable})
		return
	}
	r.later()
	retained := n.associate(peer, from, func() {
		list := []*ie.IE{
			wire.NewNodeID(n.s.cfg.NodeID),
			accepted,
			ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.recovery),
			wire.NewUPFunctionFeatures(n.s.features),
		}
		if peer.retain && old != nil {
			list = append(list, ie.NewPFCPASRspFlags(1)) // PSREI
		}
		r.reply(ie.CauseRequestAccepted, list...)
	})
	n.s.log.Info("PFCP association", "node", peer.node, "address", from, "again", old != nil, "retain_sessions", retained)
}

// associate publishes an association and calls done when the sessions that do
// not belong to it are removed.
func (n *node) associate(peer setupIEs, from netip.Addr, done func()) (retained bool) {
	a := newAssociation(peer.node, peer.recovery, append([]netip.Addr{from}, peer.others...)...)
	ps := n.s.peers.Load()
	old := ps.byNode[peer.node]
	if old != nil && peer.retain {
		a.apps.Store(old.apps.Load())
	}
	left := 1 // purges that done waits for, and this function; all end in this goroutine
	finished := func() {
		if left--; left == 0 {
			done()
		}
	}
	// An address is one PFCP entity, with one Recovery Time Stamp: what it had
	// under another Node ID and stamp was lost with its restart.
	for _, other := range ps.at(from) {
		if other.node != peer.node && other.recovery != peer.recovery {
			n.s.counters.peerRestarts.Add(1)
			n.s.log.Warn("SMF has restarted under another Node ID", "node", peer.node, "was", other.node)
			ps = ps.without(other.node)
			left++
			n.purge(other, nil, nil, finished)
		}
	}
	n.publish(ps.with(a))
	if old != nil {
		var keep func(*session.Session) bool
		if peer.retain {
			keep = func(s *session.Session) bool {
				return len(peer.retainFrom) == 0 || slices.Contains(peer.retainFrom, s.CPAddr)
			}
		}
		left++
		n.purge(old, a, keep, finished)
	}
	finished()
	return old != nil && peer.retain
}

// update answers an Association Update Request. Nothing that an SMF may put
// there changes anything for us.
func (n *node) update(r *nodeRequest, body wire.IEs) {
	a, why := n.named(r, body)
	if why != nil {
		r.refuse(why)
		return
	}
	n.alive(a)
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
	n.publish(n.s.peers.Load().without(a.node))
	n.s.log.Info("PFCP association released", "node", a.node, "sessions", a.sessions.Load())
	n.purge(a, nil, nil, func() {
		r.reply(ie.CauseRequestAccepted, wire.NewNodeID(n.s.cfg.NodeID), accepted)
	})
}

// connect sets up associations with the configured SMFs that have none.
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
			done: func(body wire.IEs, err error) { n.post(func() { n.connected(addr, body, err) }) },
		})
	}
}

// connected handles the answer to our Association Setup Request.
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
		n.s.log.Warn("no PFCP association", "address", addr, "error", err)
		return
	}
	if old := n.s.peers.Load().byNode[peer.node]; old != nil && !old.has(addr) && !old.down.Load() {
		n.s.log.Warn("no PFCP association: another peer has that Node ID", "address", addr, "node", peer.node)
		return
	}
	n.associate(peer, addr, func() {})
	n.s.log.Info("PFCP association", "node", peer.node, "address", addr, "set_up_by", "us")
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
				s.log.Warn("SMF does not release its association", "node", nodeID, "error", err)
			}
		},
	})
	return nil
}
