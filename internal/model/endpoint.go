package model

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/srv6"
)

// endpoint is a packet at a local SID (sections 4 and 5).
type endpoint struct {
	j   *journey
	sid *srv6.LocalSID
}

// process runs the SID's behaviour.
func (e endpoint) process() Result {
	e.j.count(SIDName(e.sid.SID), v6(e.j.packet).length())
	switch e.sid.Behavior {
	case srv6.End, srv6.EndX, srv6.EndT:
		return e.end()
	case srv6.EndLimit:
		return e.endLimit()
	case srv6.EndB6Encaps, srv6.EndB6EncapsRed:
		return e.endB6()
	case srv6.EndDX2, srv6.EndDX4, srv6.EndDX6, srv6.EndDT4, srv6.EndDT6, srv6.EndDT46:
		return e.endDecapsulate()
	case srv6.EndMAP:
		return e.endMAP()
	case srv6.EndMGTP6D, srv6.EndMGTP6DDi:
		return e.endMGTP6D()
	case srv6.EndMGTP6E:
		return e.endMGTP6E()
	case srv6.EndMGTP4E:
		return e.endMGTP4E()
	}
	return e.j.untouched()
}

func has(sid *srv6.LocalSID, f srv6.Flavor) bool { return slices.Contains(sid.Flavors, f) }

// end is End, End.X and End.T (and End.Limit's forwarding).
func (e endpoint) end() Result {
	if has(e.sid, srv6.NextCSID) {
		// there is another C-SID behind ours
		if dst := v6(e.j.packet).dst(); dst != netip.PrefixFrom(dst, e.sid.SID.Bits()).Masked().Addr() {
			return e.nextCSID()
		}
	}
	c, f := walkToSegment(e.j.packet)
	if f != nil {
		return e.j.fail(f)
	}
	if c.left == 0 {
		return e.endLast(c)
	}
	p, f := advance(e.j.packet, c)
	if f != nil {
		return e.j.fail(f)
	}
	if has(e.sid, srv6.PSP) && c.left == 1 {
		p = withoutSRH(p, c)
	}
	return e.forwardOuter(p)
}

// advance does steps S09 to S14 of RFC 8986 section 4.1 on a copy, after section
// 3's checks of an SRH whose Segments Left is not 0.
func advance(packet []byte, c chain) ([]byte, *fault) {
	if v6(packet).hopLimit() <= 1 {
		return nil, &fault{reason: HopLimit, kind: timeExceeded}
	}
	if f := checkSegments(packet, c); f != nil {
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
func (e endpoint) nextCSID() Result {
	if v6(e.j.packet).hopLimit() <= 1 {
		return e.j.hopLimitExceeded(e.j.l3)
	}
	p := slices.Clone(e.j.packet)
	p[7]--
	block, length := int(e.sid.BlockLength), e.sid.SID.Bits()
	dst := p[24:40]
	for i := range 128 - block {
		var bit uint64
		if length+i < 128 {
			bit = getBits(e.j.packet[24:40], length+i, 1)
		}
		putBits(dst, block+i, 1, bit)
	}
	return e.forwardOuter(p)
}

// forwardOuter sends a packet that keeps its IPv6 header.
func (e endpoint) forwardOuter(p []byte) Result {
	o := outbound{packet: p, hash: v6(p).flowLabel() * 0x9E3779B1, quoted: e.j.packet, l3: e.j.l3}
	e.by(&o)
	return e.j.send(o)
}

// ofSlice is the slice that receives at the SID, if one does.
func (e endpoint) ofSlice() (uint32, bool) { return e.j.m.network.SliceOf(e.sid.SID) }

// by is where a SID's packets go on: adjacency or table.
func (e endpoint) by(o *outbound) {
	switch e.sid.Behavior {
	case srv6.EndX, srv6.EndDX4, srv6.EndDX6:
		if e.sid.NextHop.IsValid() {
			o.via, o.only = Key{NextHop: e.sid.NextHop, Interface: e.sid.Interface}, true
		}
	case srv6.EndT, srv6.EndDT4, srv6.EndDT6, srv6.EndDT46:
		o.table = e.sid.Table
	}
}

// endLast is End with Segments Left 0 or no SRH.
func (e endpoint) endLast(c chain) Result {
	if has(e.sid, srv6.USD) && (c.upper == protoIPv4 || c.upper == protoIPv6) {
		return e.decapsulate(c)
	}
	p := e.j.packet
	if has(e.sid, srv6.USP) && c.srh != 0 {
		p = withoutSRH(p, c)
	}
	if !e.sid.AllowUpperLayer {
		return e.j.fail(problem(UpperLayer, 4, c.at))
	}
	if len(p) == len(e.j.packet) {
		return e.j.atSID(e.j.untouched(), c)
	}
	// Tags before the packet and padding behind it stay.
	out := append(slices.Clone(e.j.frame[:e.j.l3]), p...)
	return e.j.atSID(Result{Reason: Passed, Out: append(out, e.j.frame[e.j.l3+len(e.j.packet):]...)}, c)
}

// upperLayer is what a behaviour does with an upper layer it does not take
// (RFC 8986 section 4.1.1).
func (e endpoint) upperLayer(c chain) Result {
	if e.sid.AllowUpperLayer {
		return e.j.atSID(e.j.untouched(), c)
	}
	return e.j.fail(problem(UpperLayer, 4, c.at))
}

// taken are the upper layers that the decapsulating behaviours take.
var taken = map[srv6.Behavior][]uint8{
	srv6.EndDX2: {protoEthernet},
	srv6.EndDX4: {protoIPv4}, srv6.EndDT4: {protoIPv4},
	srv6.EndDX6: {protoIPv6}, srv6.EndDT6: {protoIPv6}, srv6.EndDT46: {protoIPv4, protoIPv6},
}

// endDecapsulate is End.DX2, DX4, DX6, DT4, DT6, DT46.
func (e endpoint) endDecapsulate() Result {
	c, f := walkToUpperLayer(e.j.packet, 0)
	if f != nil {
		return e.j.fail(f)
	}
	if slice, has := e.ofSlice(); has && e.sid.Behavior == srv6.EndDT46 && c.upper == protoEthernet {
		return e.j.upf().decapsulatedFrame(e.sid.SID, slice, c)
	}
	if !slices.Contains(taken[e.sid.Behavior], c.upper) {
		return e.upperLayer(c)
	}
	if e.sid.Behavior == srv6.EndDX2 {
		return e.endDX2(c)
	}
	return e.decapsulate(c)
}

func (e endpoint) endDX2(c chain) Result {
	frame := e.j.packet[c.at:]
	if len(frame) < 14 {
		return e.j.drop(InnerMalformed)
	}
	a := e.j.m.adjacency[Key{Interface: e.sid.Interface}]
	if a == nil {
		return e.j.drop(NoRoute)
	}
	if len(frame)-14 > a.MTU {
		return e.j.drop(TooBig)
	}
	out := appendTags(append([]byte{}, frame[:12]...), a.VLAN)
	return e.j.forward(append(out, frame[12:]...), a)
}

// decapsulate forwards the inner packet of an IPv6 one.
func (e endpoint) decapsulate(c chain) Result {
	inner, ok := whole(e.j.packet[c.at:], versionOf[c.upper])
	if !ok {
		return e.j.drop(InnerMalformed)
	}
	if martian(addresses(inner)) {
		return e.j.drop(Martian)
	}
	if slice, has := e.ofSlice(); has { // it must be fit to go on, then it meets the rules of its session
		t := tpdu{packet: inner, l3: e.j.l3 + c.at, outer: int(class(e.j.packet))}
		if p, r := e.j.departing(t); p == nil {
			return r
		}
		e.j.around = c.at
		return e.j.upf().decapsulated(e.sid.SID, slice, t)
	}
	o := outbound{}
	e.by(&o)
	return e.j.release(inner, e.j.l3+c.at, v6(e.j.packet).trafficClass(), o)
}

// release spends an inner packet's hop limit, applies RFC 6040, and sends it.
func (j *journey) release(packet []byte, l3 int, outerClass uint8, o outbound) Result {
	p, r := j.departing(tpdu{packet: packet, l3: l3, outer: int(outerClass)})
	if p == nil {
		return r
	}
	o.packet, o.hash, o.quoted, o.l3, o.fragments, o.header = p, flowHash(packet, false), packet, l3, true, inner
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

// noOuter is the traffic class of an outer header that there was not.
const noOuter = -1

// departing is a packet as a header is pushed onto it: its hop spent, and the
// congestion mark of a header that was taken off before taken over. nil comes
// with the end of the journey.
func (j *journey) departing(t tpdu) ([]byte, Result) {
	left := hops(t.packet)
	if left <= 1 {
		return nil, j.hopLimitExceeded(t.l3)
	}
	p := slices.Clone(t.packet)
	spend(p)
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

// combineECN writes the ECN codepoint that the decapsulator's table of RFC 6040,
// figure 4, gives the inner packet; false where it must be dropped.
func combineECN(p []byte, outer uint8) bool {
	const ect1, ect0, ce = 1, 2, 3
	tc := class(p)
	switch inner := tc & 3; {
	case outer&3 == ce && inner == 0:
		return false
	case outer&3 == ce, outer&3 == ect1 && inner == ect0:
		tc = tc&^3 | outer&3
	}
	if version(p) == 6 {
		p[0], p[1] = 0x60|tc>>4, tc<<4|p[1]&0x0f
	} else if tc != class(p) {
		v4(p).change(1, tc)
	}
	return true
}

// endB6 is End.B6.Encaps and End.B6.Encaps.Red.
func (e endpoint) endB6() Result {
	c, f := walkToSegment(e.j.packet)
	if f != nil {
		return e.j.fail(f)
	}
	if c.left == 0 {
		return e.upperLayer(c)
	}
	p, f := advance(e.j.packet, c)
	if f != nil {
		return e.j.fail(f)
	}
	hash := flowHash(e.j.packet, false)
	list, f := e.j.headend().choose(e.sid.Policy, hash)
	if f != nil {
		return e.j.fail(f)
	}
	h := outer{next: protoIPv6, class: v6(p).trafficClass(), label: hash}
	return e.j.headend().send(list, h, p, outbound{quoted: e.j.packet, l3: e.j.l3})
}

// endMAP is End.MAP (RFC 9433 section 6.2).
func (e endpoint) endMAP() Result {
	if v6(e.j.packet).hopLimit() <= 1 {
		return e.j.hopLimitExceeded(e.j.l3)
	}
	p := v6(slices.Clone(e.j.packet))
	p[7]--
	old := p.dst()
	copy(p[24:40], e.sid.Map.AsSlice())
	rewriteChecksum(p, old, e.sid.Map)
	return e.j.send(outbound{packet: p, via: Key{NextHop: e.sid.Map}, hash: p.flowLabel() * 0x9E3779B1,
		quoted: e.j.packet, l3: e.j.l3})
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
