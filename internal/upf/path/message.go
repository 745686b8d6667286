package path

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/session"
)

// EndMarkers sends an End Marker to the old tunnel of each of the FARs that sends
// elsewhere now (TS 29.281 section 7.3.2).
func (p *Paths) EndMarkers(from, to *session.Session, fars []uint32) {
	for _, id := range fars {
		old, was := tunnelOf(from.FAR(id))
		if now, is := tunnelOf(to.FAR(id)); !was || is && now == old {
			continue
		}
		if err := p.send(old.Addr, gtpu.AppendEndMarker(nil, old.TEID)); err != nil {
			p.o.Stats.SendFailed.Add(1)
			p.o.Log.Debug("cannot send an End Marker", "peer", old.Addr, "error", err)
			continue
		}
		p.o.Stats.EndMarkers.Add(1)
	}
}

// Duplicate sends a copy of a T-PDU to each of the destinations, as Duplicating
// Parameters name them.
func (p *Paths) Duplicate(destinations []session.Forwarding, tpdu []byte) {
	for i := range destinations {
		if err := p.duplicateTo(destinations[i].Outer, tpdu); err != nil {
			p.o.Stats.SendFailed.Add(1)
			p.o.Log.Debug("cannot send a duplicate", "error", err)
			continue
		}
		p.o.Stats.Duplicates.Add(1)
	}
}

func (p *Paths) duplicateTo(o *session.OuterHeader, tpdu []byte) error {
	if o == nil {
		return errors.New("the Duplicating Parameters have no outer header")
	}
	if o.Kind == session.OuterUDP {
		return p.sendTo(netip.AddrPortFrom(o.Addr, o.Port), tpdu)
	}
	message, err := gtpu.AppendGPDU(nil, o.TEID, gtpu.PDUSessionContainer{}, tpdu)
	if err != nil {
		return err
	}
	return p.send(o.Addr, message)
}

// send sends a GTP-U message from one of our addresses.
func (p *Paths) send(to netip.Addr, message []byte) error {
	return p.sendTo(netip.AddrPortFrom(to, gtpu.Port), message)
}

func (p *Paths) sendTo(to netip.AddrPort, payload []byte) error {
	p.mu.Lock()
	var socket *net.UDPConn
	var from netip.Addr
	for a, s := range p.sockets { // the lowest address, so that a peer sees one
		if a.Is4() == to.Addr().Is4() && (socket == nil || a.Less(from)) {
			socket, from = s, a
		}
	}
	p.mu.Unlock()
	if socket == nil {
		return fmt.Errorf("send to %s: no GTP-U socket of that family is open", to)
	}
	_, err := socket.WriteToUDPAddrPort(payload, to)
	return err
}

// handle takes a GTP-U message that a peer sent.
func (p *Paths) handle(b []byte, from netip.Addr) {
	h, ok := gtpu.ParseHeader(b)
	if !ok {
		p.o.Stats.GTPUMalformed.Add(1)
		return
	}
	switch h.Type() {
	case gtpu.EchoResponse:
		sequence, _ := h.Sequence()
		p.echoResponse(from, sequence)
	case gtpu.ErrorIndicationType:
		e, ok := gtpu.ParseErrorIndication(h)
		if !ok {
			p.o.Stats.GTPUMalformed.Add(1)
			return
		}
		p.o.Stats.ErrorIndications.Add(1)
		p.o.Indication(session.PeerTEID{Addr: e.Peer.Unmap(), TEID: e.TEID})
	default:
		p.o.Stats.GTPUIgnored.Add(1)
	}
}
