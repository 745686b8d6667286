package model

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/srv6"
)

// endpoint processes a packet for a local SID (sections 4 and 5).
func (j *journey) endpoint(sid *srv6.LocalSID) Result {
	j.countSID(sid)
	switch sid.Behavior {
	case srv6.End, srv6.EndX, srv6.EndT:
		return j.end(sid)
	case srv6.EndLimit:
		return j.endLimit(sid)
	case srv6.EndB6Encaps, srv6.EndB6EncapsRed:
		return j.endB6(sid)
	case srv6.EndDX2, srv6.EndDX4, srv6.EndDX6, srv6.EndDT4, srv6.EndDT6, srv6.EndDT46:
		return j.endDecapsulate(sid)
	case srv6.EndMAP:
		return j.endMAP(sid)
	case srv6.EndMGTP6D, srv6.EndMGTP6DDi:
		return j.endMGTP6D(sid)
	case srv6.EndMGTP6E:
		return j.endMGTP6E(sid)
	case srv6.EndMGTP4E:
		return j.endMGTP4E(sid)
	}
	return j.untouched()
}

func has(sid *srv6.LocalSID, f srv6.Flavor) bool { return slices.Contains(sid.Flavors, f) }

// end is End, End.X and End.T (and End.Limit's forwarding).
func (j *journey) end(sid *srv6.LocalSID) Result {
	if has(sid, srv6.NextCSID) && anyBits(j.packet[24:40], sid.SID.Bits()) {
		return j.nextCSID(sid)
	}
	c, f := walk(j.packet, true)
	if f != nil {
		return j.fail(f)
	}
	if c.left == 0 && c.upper == protoFragment {
		return j.reassemble()
	}
	if c.left == 0 {
		return j.endLast(sid, c)
	}
	p, f := advance(j.packet, c)
	if f != nil {
		return j.fail(f)
	}
	if has(sid, srv6.PSP) && c.left == 1 {
		p = withoutSRH(p, c)
	}
	return j.forwardOuter(sid, p)
}

// advance does steps S09 to S14 of RFC 8986 section 4.1 on a copy.
func advance(packet []byte, c chain) ([]byte, *fault) {
	if f := checkSRH(packet, c); f != nil {
		return nil, f
	}
	p := slices.Clone(packet)
	p[7]--
	p[c.srh+3]--
	// Segments Left = Last Entry + 1 is allowed: it becomes Last Entry.
	copy(p[24:40], segment(p, c, int(p[c.srh+3])))
	return p, nil
}

// nextCSID shifts the argument (RFC 9800 section 4.1.1).
func (j *journey) nextCSID(sid *srv6.LocalSID) Result {
	if v6(j.packet).hopLimit() <= 1 {
		return j.hopLimitExceeded(j.l3)
	}
	p := slices.Clone(j.packet)
	p[7]--
	block, length := int(sid.BlockLength), sid.SID.Bits()
	dst := p[24:40]
	for i := range 128 - block {
		var bit uint64
		if length+i < 128 {
			bit = getBits(j.packet[24:40], length+i, 1)
		}
		putBits(dst, block+i, 1, bit)
	}
	return j.forwardOuter(sid, p)
}

// forwardOuter sends a packet that keeps its IPv6 header.
func (j *journey) forwardOuter(sid *srv6.LocalSID, p []byte) Result {
	o := outbound{packet: p, hash: v6(p).flowLabel() * 0x9E3779B1, quoted: j.packet, l3: j.l3}
	j.by(sid, &o)
	return j.send(o)
}

// by is where a SID's packets go on: adjacency or table.
func (j *journey) by(sid *srv6.LocalSID, o *outbound) {
	switch sid.Behavior {
	case srv6.EndX, srv6.EndDX4, srv6.EndDX6:
		if sid.NextHop.IsValid() {
			o.via, o.only = Key{NextHop: sid.NextHop, Interface: sid.Interface}, true
		}
	case srv6.EndT, srv6.EndDT4, srv6.EndDT6, srv6.EndDT46:
		o.table = sid.Table
	}
}

// endLast is End with Segments Left 0 or no SRH.
func (j *journey) endLast(sid *srv6.LocalSID, c chain) Result {
	if has(sid, srv6.USD) && (c.upper == protoIPv4 || c.upper == protoIPv6) {
		return j.decapsulate(sid, c)
	}
	p := j.packet
	if has(sid, srv6.USP) && c.srh != 0 {
		p = withoutSRH(p, c)
	}
	if !sid.AllowUpperLayer {
		return j.fail(problem(UpperLayer, 4, c.at))
	}
	if len(p) == len(j.packet) {
		return j.untouched()
	}
	// Tags before the packet and padding behind it stay.
	out := append(slices.Clone(j.frame[:j.l3]), p...)
	return Result{Reason: Passed, Out: append(out, j.frame[j.l3+len(j.packet):]...)}
}

// upperLayer is what a behaviour does with an upper layer it does not take
// (RFC 8986 section 4.1.1).
func (j *journey) upperLayer(sid *srv6.LocalSID, c chain) Result {
	if sid.AllowUpperLayer {
		return j.untouched()
	}
	return j.fail(problem(UpperLayer, 4, c.at))
}

// takes says which upper layers a decapsulating behaviour takes.
func takes(b srv6.Behavior, protocol uint8) bool {
	switch b {
	case srv6.EndDX2:
		return protocol == protoEthernet
	case srv6.EndDX4, srv6.EndDT4:
		return protocol == protoIPv4
	case srv6.EndDX6, srv6.EndDT6:
		return protocol == protoIPv6
	}
	return protocol == protoIPv4 || protocol == protoIPv6
}

// endDecapsulate is End.DX2, DX4, DX6, DT4, DT6, DT46.
func (j *journey) endDecapsulate(sid *srv6.LocalSID) Result {
	c, f := walkToUpperLayer(j.packet, 0)
	if f != nil {
		return j.fail(f)
	}
	sessions := j.m.sessions.inSIDs[sid.SID.Masked()]
	if sessions && sid.Behavior == srv6.EndDT46 && c.upper == protoEthernet {
		return j.frameInSID(sid.SID, c)
	}
	if !takes(sid.Behavior, c.upper) {
		return j.upperLayer(sid, c)
	}
	if sid.Behavior == srv6.EndDX2 {
		return j.endDX2(sid, c)
	}
	return j.decapsulate(sid, c)
}

func (j *journey) endDX2(sid *srv6.LocalSID, c chain) Result {
	frame := j.packet[c.at:]
	if len(frame) < 14 {
		return j.drop(InnerMalformed)
	}
	a := j.m.adjacency[Key{Interface: sid.Interface}]
	if a == nil {
		return j.drop(NoRoute)
	}
	if len(frame)-14 > a.MTU {
		return j.drop(TooBig)
	}
	out := appendTags(append([]byte{}, frame[:12]...), a.VLAN)
	return j.forward(append(out, frame[12:]...), a)
}

// decapsulate forwards the inner packet of an IPv6 one.
func (j *journey) decapsulate(sid *srv6.LocalSID, c chain) Result {
	want := 6
	if c.upper == protoIPv4 {
		want = 4
	}
	inner, ok := whole(j.packet[c.at:], want)
	if !ok {
		return j.drop(InnerMalformed)
	}
	if j.m.sessions.inSIDs[sid.SID.Masked()] {
		return j.sessionInSID(inner, j.l3+c.at)
	}
	o := outbound{}
	j.by(sid, &o)
	return j.release(inner, j.l3+c.at, v6(j.packet).trafficClass(), o)
}

// release spends an inner packet's hop limit, applies RFC 6040, and sends it.
func (j *journey) release(inner []byte, l3 int, outerClass uint8, o outbound) Result {
	p, r := j.departing(tpdu{packet: inner, l3: l3, outer: int(outerClass)})
	if p == nil {
		return r
	}
	o.packet, o.hash, o.quoted, o.l3, o.fragments = p, flowHash(inner, false), inner, l3, true
	return j.send(o)
}

// whole cuts a packet to its header's length; false where there is less, or
// where it is not of the version that is wanted.
func whole(p []byte, want int) ([]byte, bool) {
	if version(p) != want || (want != 4 && want != 6) {
		return nil, false
	}
	if want == 4 {
		if len(p) < 20 || v4(p).header() < 20 || v4(p).length() < v4(p).header() || v4(p).length() > len(p) {
			return nil, false
		}
		return p[:v4(p).length()], true
	}
	if len(p) < 40 || v6(p).length() > len(p) {
		return nil, false
	}
	return p[:v6(p).length()], true
}

// spent is a copy of a packet with its hop limit or TTL one less; nil and the
// end of the journey where there is none left.
func (j *journey) spent(p []byte, l3 int) ([]byte, Result) {
	left := v4(p).ttl()
	if version(p) == 6 {
		left = v6(p).hopLimit()
	}
	if left <= 1 {
		return nil, j.hopLimitExceeded(l3)
	}
	out := slices.Clone(p)
	if version(p) == 6 {
		out[7]--
	} else {
		v4(out).change(8, left-1)
	}
	return out, Result{}
}

// noOuter is the traffic class of an outer header that there was not.
const noOuter = -1

// departing is a packet as a header is pushed onto it: its hop spent, and the
// congestion mark of a header that was taken off before taken over. nil comes
// with the end of the journey.
func (j *journey) departing(t tpdu) ([]byte, Result) {
	p, r := j.spent(t.packet, t.l3)
	if p == nil {
		return nil, r
	}
	if t.outer != noOuter && !combineECN(p, uint8(t.outer)) {
		return nil, j.drop(ECN)
	}
	if j.port.PartialChecksum {
		completeChecksum(p)
	}
	return p, Result{}
}

// class is a packet's traffic class or TOS.
func class(p []byte) uint8 {
	if version(p) == 6 {
		return v6(p).trafficClass()
	}
	return v4(p).tos()
}

// combineECN writes the ECN codepoint that RFC 6040 gives the inner packet;
// false where it must be dropped.
func combineECN(p []byte, outer uint8) bool {
	codepoint, ok := ecn(outer, class(p))
	if !ok {
		return false
	}
	tc := class(p)&^3 | codepoint
	if version(p) == 6 {
		v6(p).setTrafficClass(tc)
	} else if tc != class(p) {
		v4(p).change(1, tc)
	}
	return true
}

// endB6 is End.B6.Encaps and End.B6.Encaps.Red.
func (j *journey) endB6(sid *srv6.LocalSID) Result {
	c, f := walk(j.packet, true)
	if f != nil {
		return j.fail(f)
	}
	if c.left == 0 && c.upper == protoFragment {
		return j.reassemble()
	}
	if c.left == 0 {
		return j.upperLayer(sid, c)
	}
	p, f := advance(j.packet, c)
	if f != nil {
		return j.fail(f)
	}
	hash := flowHash(j.packet, false)
	list, f := j.choose(sid.Policy, hash)
	if f != nil {
		return j.fail(f)
	}
	h := outer{src: list.source, segments: list.segments, reduced: reduced(list.policy.Behavior),
		next: protoIPv6, hopLimit: j.m.hopLimit, class: v6(p).trafficClass(), label: hash}
	return j.sendList(list, h.push(p), hash, outbound{quoted: j.packet, l3: j.l3})
}

// endMAP is End.MAP (RFC 9433 section 6.2).
func (j *journey) endMAP(sid *srv6.LocalSID) Result {
	if v6(j.packet).hopLimit() <= 1 {
		return j.hopLimitExceeded(j.l3)
	}
	p := v6(slices.Clone(j.packet))
	p[7]--
	old := p.dst()
	p.setDst(sid.Map)
	rewriteChecksum(p, old, sid.Map)
	return j.send(outbound{packet: p, via: Key{NextHop: sid.Map}, hash: p.flowLabel() * 0x9E3779B1,
		quoted: j.packet, l3: j.l3})
}

// rewriteChecksum keeps the checksum of an upper layer directly behind the
// IPv6 header right when the destination changes.
func rewriteChecksum(p v6, old, changed netip.Addr) {
	at := checksumOffset(p.next())
	if at < 0 || p.next() == protoICMP || len(p) < 40+at+2 {
		return
	}
	field := p[40+at:]
	checksum := be.Uint16(field)
	if p.next() == protoUDP && checksum == 0 {
		return
	}
	a, b := old.As16(), changed.As16()
	for i := 0; i < 16; i += 2 {
		checksum = updated(checksum, be.Uint16(a[i:]), be.Uint16(b[i:]))
	}
	if p.next() == protoUDP && checksum == 0 {
		checksum = 0xffff
	}
	be.PutUint16(field, checksum)
}
