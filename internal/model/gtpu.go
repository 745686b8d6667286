package model

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/srv6"
)

// GTP-U message types (TS 29.281 table 6.1-1).
const (
	echoRequest     = 1
	echoResponse    = 2
	errorIndication = 26
	endMarker       = 254
	gPDU            = 255
)

// message is a GTP-U message, taken apart.
type message struct {
	kind     uint8
	teid     uint32
	sequence uint16 // 0 without the S flag
	header   []byte // the GTP-U header with its options and extension headers
	body     []byte // what follows them: of a G-PDU the T-PDU
	at       int    // where body starts in the layer-3 packet
	qfi      uint8
	rqi      bool
	// container: there was a PDU Session Container, of whatever type.
	container bool
	frame     bool // body is an Ethernet frame
}

// messageAt is the GTP-U message in the packet, UDP at an offset.
func (e gtpuEntity) messageAt(at int) (message, *fault) {
	m, f := parseGTPU(e.j.packet, at)
	e.j.beyond = m.at+len(m.body) < len(e.j.packet)
	return m, f
}

// parseGTPU reads UDP and GTP-U at an offset of the packet (section 6).
func parseGTPU(packet []byte, at int) (message, *fault) {
	udp := packet[at:]
	if len(udp) < 8 || int(be.Uint16(udp[4:])) < 8 || int(be.Uint16(udp[4:])) > len(udp) {
		return message{}, plain(UDPMalformed)
	}
	g := udp[8:be.Uint16(udp[4:])]
	if len(g) < 8 {
		return message{}, plain(GTPULength)
	}
	if g[0]>>5 != 1 || g[0]&0x10 == 0 {
		return message{}, plain(GTPUVersion)
	}
	length := 8 + int(be.Uint16(g[2:]))
	if length > len(g) {
		return message{}, plain(GTPULength)
	}
	g = g[:length]
	m := message{kind: g[1], teid: be.Uint32(g[4:])}
	header, f := m.options(g)
	if f != nil {
		return message{}, f
	}
	m.header, m.body, m.at = g[:header], g[header:], at+8+header
	return m, nil
}

// options walks the optional fields and returns the header's length.
func (m *message) options(g []byte) (int, *fault) {
	const e, s, pn = 4, 2, 1
	if g[0]&(e|s|pn) == 0 {
		return 8, nil
	}
	if len(g) < 12 {
		return 0, plain(GTPULength)
	}
	if g[0]&s != 0 {
		m.sequence = be.Uint16(g[8:])
	}
	if g[0]&e == 0 {
		return 12, nil
	}
	at, next := 12, g[11]
	for seen := 0; next != 0; seen++ {
		if seen == 8 || at >= len(g) || g[at] == 0 || at+4*int(g[at]) > len(g) {
			return 0, plain(GTPUExtension)
		}
		content := g[at+1 : at+4*int(g[at])-1]
		if !m.extension(next, content) {
			return 0, plain(GTPUExtension)
		}
		at += 4 * int(g[at])
		next = g[at-1]
	}
	return at, nil
}

// extension takes note of an extension header; false where it had to be
// understood (TS 29.281 section 5.2.1) and was not.
func (m *message) extension(kind uint8, content []byte) bool {
	switch kind {
	case 0x85:
		m.container = true
		switch content[0] >> 4 {
		case 0:
			m.qfi, m.rqi = content[1]&0x3f, content[1]&0x40 != 0
		case 1:
			m.qfi, m.rqi = content[1]&0x3f, false
		}
		return true
	case 0x81, 0x82, 0x83, 0x84, 0xc0:
		return true
	}
	return kind&0x80 == 0
}

// gtpuEntity is the node as a GTP-U entity (TS 29.281): it receives the messages to
// its GTP-U addresses, and sends packets into tunnels.
type gtpuEntity struct{ j *journey }

func (j *journey) gtpu() gtpuEntity { return gtpuEntity{j} }

// process is a message to a GTP-U address of ours, UDP at an offset.
func (e gtpuEntity) process(at int) Result {
	msg, f := e.messageAt(at)
	if f != nil {
		return e.j.drop(f.reason)
	}
	switch msg.kind {
	case echoRequest:
		return e.echo(at, msg)
	case gPDU, endMarker:
	default:
		return e.j.leave(e.j.untouched())
	}
	if rules := e.j.m.sessions.byTEID[msg.teid]; rules != nil {
		return e.j.upf().receive(rules, msg)
	}
	t := e.j.m.teids[msg.teid]
	switch {
	case t == nil && msg.kind == endMarker:
		return e.j.drop(TEIDUnknown)
	case t == nil:
		r := e.j.drop(TEIDUnknown)
		r.Punt = e.j.punt(PuntErrorIndication, e.j.l3)
		r.Punt.Info = msg.teid
		return r
	case t.SwitchTo != "":
		octets := 0
		if msg.kind == gPDU {
			octets = len(msg.body)
		}
		e.j.count(ReceivedName(t.Name), octets)
		return e.relay(e.j.m.tunnels[t.SwitchTo], msg, marking{}, outbound{quoted: e.j.packet, l3: e.j.l3})
	case msg.kind == endMarker:
		return e.j.drop(GTPUMessage)
	}
	inner, reason := e.wholeTPDU(msg.body)
	if inner == nil {
		return e.j.drop(reason)
	}
	e.j.count(ReceivedName(t.Name), len(inner))
	if t.Policy != "" {
		return e.j.headend().encapsulate(t.Policy, tpdu{packet: inner, l3: e.j.l3 + msg.at, outer: noOuter}, marking{})
	}
	if martian(addresses(inner)) {
		return e.j.drop(Martian)
	}
	return e.j.release(inner, e.j.l3+msg.at, class(e.j.packet), outbound{table: t.Table})
}

// wholeTPDU cuts a T-PDU to its length; nil and a reason where it cannot go on.
func (e gtpuEntity) wholeTPDU(p []byte) ([]byte, Reason) {
	v := version(p)
	if len(p) > 0 && v != 4 && v != 6 {
		return nil, PDUType
	}
	inner, ok := whole(p, v)
	switch {
	case !ok || v == 0:
		return nil, InnerMalformed
	case e.gtpuInGTPU(inner):
		return nil, GTPUMessage
	}
	return inner, ""
}

// gtpuInGTPU: a T-PDU for a GTP-U endpoint of ours would come round again.
func (e gtpuEntity) gtpuInGTPU(p []byte) bool {
	_, dst := addresses(p)
	protocol, udp := upperLayer(p)
	return e.j.m.isGTPU(dst) && protocol == protoUDP && toGTPU(udp)
}

// tunnelEnd is the outer header of what is sent into GTP-U.
type tunnelEnd struct {
	hopLimit uint8
	class    uint8
	hash     uint32
	message  bool // not a G-PDU: its answer comes to the port that it left by
}

// wrap pushes IP and UDP for a tunnel in front of a GTP-U message.
func (e gtpuEntity) wrap(t *gtpu.Tunnel, end tunnelEnd, header, tpdu []byte) []byte {
	source := t.Source
	if !source.IsValid() {
		own := e.j.m.network.Config.GTPU.Addresses
		if i := slices.IndexFunc(own, func(a netip.Addr) bool { return a.Is4() == t.Remote.Is4() }); i >= 0 {
			source = own[i]
		}
	}
	if t.Remote.Is4() {
		return pushUDP4(source.As4(), t.Remote.As4(), end, header, tpdu)
	}
	return pushUDP6(netip.AddrFrom16(source.As16()), t.Remote, end, header, tpdu)
}

func udpHeader(end tunnelEnd, length int) []byte {
	b := make([]byte, 8)
	be.PutUint16(b, 0xc000|uint16(end.hash&0x3fff))
	if end.message {
		be.PutUint16(b, 2152)
	}
	be.PutUint16(b[2:], 2152)
	be.PutUint16(b[4:], uint16(length))
	return b
}

// pushUDP4 and pushUDP6 push UDP and IP.
func pushUDP4(src, dst [4]byte, end tunnelEnd, header, tpdu []byte) []byte {
	p := make([]byte, 20)
	p[0], p[1] = 0x45, end.class
	be.PutUint16(p[2:], uint16(28+len(header)+len(tpdu)))
	p[6], p[8], p[9] = 0x40, end.hopLimit, protoUDP
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	be.PutUint16(p[10:], ^fold(wordSum(p)))
	p = append(p, udpHeader(end, 8+len(header)+len(tpdu))...)
	return append(append(p, header...), tpdu...)
}

func pushUDP6(src, dst netip.Addr, end tunnelEnd, header, tpdu []byte) []byte {
	length := 8 + len(header) + len(tpdu)
	udp := udpHeader(end, length)
	sum := pseudoHeader(src, dst, protoUDP, length) + wordSum(udp) + wordSum(header) + tpduSum(tpdu)
	be.PutUint16(udp[6:], checksum6(sum))
	h := outer{src: src, segments: []netip.Addr{dst}, reduced: true, next: protoUDP, hopLimit: end.hopLimit, class: end.class, label: end.hash}
	return h.push(slices.Concat(udp, header, tpdu))
}

// gtpuHeader is that of a G-PDU: with a PDU Session Container, or without
// options (section 5.5).
func gtpuHeader(container srv6.ContainerType, teid uint32, qfi uint8, r bool, length int) []byte {
	if container == srv6.ContainerNone {
		return be.AppendUint32(be.AppendUint16([]byte{0x30, gPDU}, uint16(length)), teid)
	}
	second, kind := qfi&0x3f, byte(0)
	if container == srv6.ContainerUplink {
		kind = 1
	} else if r {
		second |= 0x40
	}
	b := be.AppendUint32(be.AppendUint16([]byte{0x34, gPDU}, uint16(length+8)), teid)
	return append(b, 0, 0, 0, 0x85, 1, kind<<4, second, 0)
}

// relay puts a GTP-U message that was received into another tunnel; o says what
// becomes of one that is too big.
func (e gtpuEntity) relay(to *gtpu.Tunnel, msg message, mark marking, o outbound) Result {
	hop := hops(e.j.packet)
	if hop <= 1 {
		return e.j.hopLimitExceeded(e.j.l3)
	}
	if !to.Remote.IsValid() {
		return e.j.drop(TEIDUnknown)
	}
	header := slices.Clone(msg.header)
	be.PutUint32(header[4:], to.RemoteTEID)
	hash := uint32(0)
	if msg.kind != gPDU { // what it carries is no T-PDU, and so is summed in full
		header, msg.body = append(header, msg.body...), nil
	} else if msg.frame {
		hash = flowHash(msg.body, true)
		header, msg.body = append(header, msg.body...), nil
	} else if tpdu, ok := whole(msg.body, version(msg.body)); ok {
		hash = flowHash(tpdu, false)
	}
	o.packet = e.wrap(to, tunnelEnd{hopLimit: hop - 1, class: mark.of(class(e.j.packet)), hash: hash}, header, msg.body)
	o.via, o.hash, o.header = Key{NextHop: to.Remote}, hash, pushed
	o.along = []netip.Addr{to.Remote}
	return e.j.send(o)
}

// intoTunnel sends a packet in a G-PDU.
func (e gtpuEntity) intoTunnel(to *gtpu.Tunnel, rqi bool, t tpdu, mark marking) Result {
	inner, r := e.j.departing(t)
	if inner == nil {
		return r
	}
	end := tunnelEnd{hopLimit: e.j.m.hopLimit, class: mark.of(class(inner))}
	return e.sendGPDU(to, rqi, end, inner, false, outbound{quoted: t.packet, l3: t.l3, fragments: true})
}

// sendGPDU sends a packet or a frame in a G-PDU.
func (e gtpuEntity) sendGPDU(to *gtpu.Tunnel, rqi bool, end tunnelEnd, tpdu []byte, frame bool, o outbound) Result {
	end.hash = flowHash(tpdu, frame)
	header := gtpuHeader(to.PDUSessionContainer, to.RemoteTEID, to.QFI, rqi, len(tpdu))
	if frame { // summed in full, even if it looks like IP
		header, tpdu = append(header, tpdu...), nil
	}
	o.packet, o.via, o.hash, o.header = e.wrap(to, end, header, tpdu), Key{NextHop: to.Remote}, end.hash, pushed
	o.along = []netip.Addr{to.Remote}
	return e.j.send(o)
}

// echo answers an Echo Request in place (TS 29.281 section 7.2.1).
func (e gtpuEntity) echo(at int, msg message) Result {
	src, dst := addresses(e.j.packet)
	if e.j.m.isGTPU(src) || multicast(src) || src.IsUnspecified() || src.Is4() && src.As4()[0] == 255 {
		return e.j.drop(EchoFromSelf)
	}
	g := []byte{0x32, echoResponse, 0, 6, 0, 0, 0, 0, byte(msg.sequence >> 8), byte(msg.sequence), 0, 0, 14, 0}
	udp := make([]byte, 8)
	be.PutUint16(udp, 2152)
	copy(udp[2:4], e.j.packet[at:])
	be.PutUint16(udp[4:], uint16(8+len(g)))
	var ip []byte
	if src.Is4() {
		s, d := src.As4(), dst.As4()
		ip = pushUDP4(d, s, tunnelEnd{hopLimit: e.j.m.hopLimit, class: class(e.j.packet), hash: 0}, g, nil)[:20]
	} else {
		ip = append([]byte{}, e.j.packet[:40]...)
		be.PutUint16(ip[4:], uint16(8+len(g)))
		ip[7] = e.j.m.hopLimit
		copy(ip[8:], dst.AsSlice())
		copy(ip[24:], src.AsSlice())
		be.PutUint16(udp[6:], checksum6(pseudoHeader(src, dst, protoUDP, 8+len(g))+wordSum(udp)+wordSum(g)))
	}
	if e.j.turn > 0 { // the link need not lead to who sent it inside of another packet
		return e.j.send(outbound{packet: slices.Concat(ip, udp, g), header: pushed, answers: true})
	}
	out := append(append([]byte{}, e.j.frame[6:12]...), e.j.frame[:6]...)
	out = append(out, e.j.frame[12:e.j.l3]...)
	return Result{Reason: Replied, Egress: e.j.ifindex, Out: append(append(append(out, ip...), udp...), g...)}
}
