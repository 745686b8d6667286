package model

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Bits of SRH.tag for user plane messages
// (draft-murakami-dmm-user-plane-message-encoding).
var messageTags = map[uint8]uint16{endMarker: 1, errorIndication: 2, echoRequest: 4, echoResponse: 8}

// carried is a GTP-U message on its way into SRv6.
type carried struct {
	args    args
	next    uint8
	tag     uint16
	payload []byte
	at      int  // where payload starts in the layer-3 packet
	ip      bool // payload is an IP T-PDU
	hash    uint32
}

// carry is what D behaviours and H.M.GTP4.D take out of GTP-U.
func (n headend) carry(msg message, pdu srv6.PDUType) (carried, *fault) {
	c := carried{args: args{qfi: msg.qfi, r: msg.rqi, teid: msg.teid}, payload: msg.body, at: msg.at}
	if msg.kind != gPDU {
		tag := messageTags[msg.kind]
		if tag == 0 {
			return c, plain(GTPUMessage)
		}
		c.tag, c.next, c.args = tag, protoEthernet, args{teid: msg.teid}
		if msg.kind == endMarker {
			c.payload = nil
		} else {
			c.args.teid = uint32(msg.sequence) << 16
		}
		return c, nil
	}
	if pdu == srv6.PDUTypeEthernet || pdu == srv6.PDUTypeUnstructured {
		if pdu == srv6.PDUTypeEthernet && len(msg.body) < 14 {
			return c, plain(InnerMalformed)
		}
		c.next, c.hash = protoEthernet, flowHash(msg.body, true)
		return c, nil
	}
	v := version(msg.body)
	if len(msg.body) == 0 {
		return c, plain(InnerMalformed)
	}
	if v != 4 && v != 6 || pdu == srv6.PDUTypeIPv4 && v != 4 || pdu == srv6.PDUTypeIPv6 && v != 6 {
		return c, plain(PDUType)
	}
	inner, ok := whole(msg.body, v)
	if !ok || jumbo(inner) {
		return c, plain(InnerMalformed)
	}
	c.payload, c.hash, c.next, c.ip = n.j.completed(inner, true), flowHash(inner, false), nextHeader(inner), true
	return c, nil
}

// endMGTP6D is End.M.GTP6.D and End.M.GTP6.D.Di (RFC 9433 sections 6.3, 6.4).
func (e endpoint) endMGTP6D() Result {
	c, f := walkToUpperLayer(e.j.packet, 0)
	if f != nil {
		return e.j.fail(f)
	}
	if c.upper != protoUDP {
		return e.upperLayer(c)
	}
	if len(e.j.packet) < c.at+8 {
		return e.j.drop(UDPMalformed)
	}
	if !toGTPU(e.j.packet[c.at:]) {
		return e.upperLayer(c)
	}
	p := v6(e.j.packet)
	if p.hopLimit() <= 1 {
		return e.j.hopLimitExceeded(e.j.l3)
	}
	msg, f := e.j.gtpu().messageAt(c.at)
	if f != nil {
		return e.j.drop(f.reason)
	}
	pdu, f := e.j.headend().carry(msg, e.sid.PDUType)
	if f != nil {
		return e.j.drop(f.reason)
	}
	list, f := e.j.headend().choose(e.sid.Policy, pdu.hash)
	if f != nil {
		return e.j.drop(f.reason)
	}
	segments := slices.Clone(list.segments)
	if last := len(segments) - 1; e.sid.Behavior == srv6.EndMGTP6D || e.sid.ArgsOffset != 0 {
		segments[last] = withArgs(segments[last], int(e.sid.ArgsOffset), pdu.args)
	}
	if e.sid.Behavior == srv6.EndMGTP6DDi {
		segments = append(segments, p.dst())
	}
	h := outer{src: e.sid.Source, segments: segments, always: pdu.tag != 0, tag: pdu.tag, next: pdu.next,
		hopLimit: p.hopLimit() - 1, class: p.trafficClass(), label: pdu.hash}
	return e.j.headend().send(list, h, pdu.payload, e.j.ofGateway(outbound{}, pdu))
}

// ofGateway says what an error is about, and what can be cut, of what a translator sends.
func (j *journey) ofGateway(o outbound, pdu carried) outbound {
	o.quoted, o.l3 = j.packet, j.l3
	if pdu.ip || pdu.tag != 0 {
		j.beyond = pdu.at+len(pdu.payload) < len(j.packet)
	}
	if pdu.ip {
		o.tpdu, o.tpduL3 = pdu.payload, j.l3+pdu.at
	}
	return o
}

// withArgs writes Args.Mob.Session into a SID.
func withArgs(sid netip.Addr, offset int, a args) netip.Addr {
	b := sid.As16()
	putBits(b[:], offset, 40, a.bits())
	return netip.AddrFrom16(b)
}

// hMGTP4D is H.M.GTP4.D (RFC 9433 section 6.7).
func (n headend) hMGTP4D(g *srpolicy.GTP4D) Result {
	p := v4(n.j.packet)
	if p.ttl() <= 1 {
		return n.j.hopLimitExceeded(n.j.l3)
	}
	msg, f := n.j.gtpu().messageAt(p.header())
	if f != nil {
		return n.j.drop(f.reason)
	}
	pdu, f := n.carry(msg, g.PDUType)
	if f != nil {
		return n.j.drop(f.reason)
	}
	dst, src := g.SIDPrefix.Masked().Addr().As16(), g.SourcePrefix.Addr().As16()
	length := g.SIDPrefix.Bits()
	putBits(dst[:], length, 32, uint64(be.Uint32(p[16:])))
	routed := netip.AddrFrom16(dst)
	putBits(dst[:], length+32, 40, pdu.args.bits())
	putBits(src[:], g.SourcePrefix.Bits(), 32, uint64(be.Uint32(p[12:])))
	h := outer{src: netip.AddrFrom16(src), segments: []netip.Addr{netip.AddrFrom16(dst)}, reduced: true,
		always: pdu.tag != 0, tag: pdu.tag, next: pdu.next, hopLimit: p.ttl() - 1, class: p.tos(), label: pdu.hash}
	o := n.j.ofGateway(outbound{hash: pdu.hash}, pdu)
	if g.Policy == "" {
		o.packet, o.routed, o.header = h.push(pdu.payload), routed, pushed
		return n.j.send(o)
	}
	list, f := n.choose(g.Policy, pdu.hash)
	if f != nil {
		return n.j.drop(f.reason)
	}
	h.segments = append(slices.Clone(list.segments), h.segments...)
	return n.send(list, h, pdu.payload, o)
}

// endMGTP6E is End.M.GTP6.E (RFC 9433 section 6.5): the penultimate segment.
func (e endpoint) endMGTP6E() Result {
	c, f := walkToUpperLayer(e.j.packet, 1)
	if f != nil {
		return e.j.fail(f)
	}
	if c.srh == 0 {
		return e.upperLayer(c)
	}
	if f := checkSegments(e.j.packet, c); f != nil {
		return e.j.fail(f)
	}
	header, tpdu, end, result := e.intoGTPU(c, e.sid.SID.Bits())
	if header == nil {
		return result
	}
	dst := netip.AddrFrom16([16]byte(segment(e.j.packet, c, 0)))
	p := pushUDP6(e.sid.Source, dst, end, header, tpdu)
	return e.j.send(e.j.ofGateway(outbound{packet: p, hash: end.hash, header: bySender}, carried{payload: tpdu, at: c.at, ip: tpdu != nil}))
}

// endMGTP4E is End.M.GTP4.E (RFC 9433 section 6.6).
func (e endpoint) endMGTP4E() Result {
	c, f := walkToUpperLayer(e.j.packet, 0)
	if f != nil {
		return e.j.fail(f)
	}
	length := e.sid.SID.Bits()
	header, tpdu, end, result := e.intoGTPU(c, length+32)
	if header == nil {
		return result
	}
	var src, dst [4]byte
	be.PutUint32(src[:], uint32(getBits(e.j.packet[8:24], int(e.sid.SourcePrefixLength), 32)))
	be.PutUint32(dst[:], uint32(getBits(e.j.packet[24:40], length, 32)))
	p := pushUDP4(src, dst, end, header, tpdu)
	return e.j.send(e.j.ofGateway(outbound{packet: p, hash: end.hash, header: bySender}, carried{payload: tpdu, at: c.at, ip: tpdu != nil}))
}

// intoGTPU makes the GTP-U header that the E behaviours send, Args being at a
// bit offset of the destination. A nil header comes with the journey's end.
func (e endpoint) intoGTPU(c chain, argsAt int) ([]byte, []byte, tunnelEnd, Result) {
	p := v6(e.j.packet)
	if c.upper != protoIPv4 && c.upper != protoIPv6 && c.upper != protoEthernet {
		return nil, nil, tunnelEnd{}, e.upperLayer(c)
	}
	a := argsOf(getBits(e.j.packet[24:40], argsAt, 40))
	end := tunnelEnd{hopLimit: p.hopLimit() - 1, class: p.trafficClass()}
	tpdu := e.j.packet[c.at:]
	if c.upper != protoEthernet {
		var ok bool
		if tpdu, ok = whole(tpdu, versionOf[c.upper]); !ok || jumbo(tpdu) {
			return nil, nil, tunnelEnd{}, e.j.drop(InnerMalformed)
		}
	}
	if p.hopLimit() <= 1 {
		return nil, nil, tunnelEnd{}, e.j.hopLimitExceeded(e.j.l3)
	}
	if kind := taggedMessage(e.j.packet, c); kind != 0 && !e.sid.IgnoreTag && isMessage(kind, tpdu) {
		end.message = true
		return userPlaneMessage(kind, a, tpdu), nil, end, Result{}
	}
	tpdu = e.j.completed(tpdu, c.upper != protoEthernet)
	end.hash = flowHash(tpdu, c.upper == protoEthernet)
	header := gtpuHeader(e.sid.PDUSessionContainer, a.teid, a.qfi, a.r, len(tpdu))
	if c.upper == protoEthernet { // summed in full, even if it looks like IP
		return append(header, tpdu...), nil, end, Result{}
	}
	return header, tpdu, end, Result{}
}

// isMessage says whether a payload is that of a message, which no frame looks like:
// it is shorter, or an Error Indication with an IPv6 address.
func isMessage(kind uint8, payload []byte) bool {
	switch {
	case kind == endMarker:
		return len(payload) == 0
	case kind == errorIndication && len(payload) == 5+3+16:
		return payload[0] == 16 && bytes.Equal(payload[5:8], []byte{133, 0, 16})
	}
	return len(payload) < frameHeader
}

// taggedMessage is the GTP-U message type that an SRH's tag names, or 0.
func taggedMessage(packet []byte, c chain) uint8 {
	if c.srh == 0 || c.upper != protoEthernet {
		return 0
	}
	tag := be.Uint16(packet[c.srh+6:])
	for kind, bit := range messageTags {
		if tag == bit {
			return kind
		}
	}
	return 0
}

// userPlaneMessage is a whole message other than a G-PDU. What follows its
// header is no T-PDU, whatever it looks like, and so is summed in full.
func userPlaneMessage(kind uint8, a args, payload []byte) []byte {
	if kind == endMarker {
		return be.AppendUint32([]byte{0x30, kind, 0, 0}, a.teid)
	}
	b := be.AppendUint16([]byte{0x32, kind}, uint16(4+len(payload)))
	b = append(b, 0, 0, 0, 0, byte(a.teid>>24), byte(a.teid>>16), 0, 0)
	return append(b, payload...)
}
