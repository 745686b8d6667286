package model

import (
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/srv6"
)

// receiveSession is a G-PDU or End Marker whose TEID is a session's.
func (j *journey) receiveSession(rules []*ruleState, msg message) Result {
	if msg.kind == endMarker {
		if r := rules[0]; r.Action == ActionForward && r.Forward.Kind == ForwardGTPU {
			return j.relay(r.tunnel(), msg, r.marking(), outbound{quoted: j.packet, l3: j.l3})
		}
		return j.drop(GTPUMessage)
	}
	if rules[0].Ethernet {
		return j.receiveFrame(rules, msg)
	}
	inner, reason := j.wholeTPDU(msg.body)
	if inner == nil {
		return j.drop(reason)
	}
	j.around = map[int]int{4: 20, 6: 40}[version(j.packet)] + 8 + 16
	return j.meet(rules, tpdu{packet: inner, l3: j.l3 + msg.at, qfi: msg.qfi, message: &msg, outer: noOuter})
}

// toUE is a packet that arrived for a UE without GTP-U.
func (j *journey) toUE(rules []*ruleState) Result {
	return j.meet(rules, tpdu{packet: j.packet, l3: j.l3, outer: noOuter})
}

// sessionInSID is what End.DT4, DT6 and DT46 took out for a UE: it must be fit
// to go on, then it meets the rules of its destination.
func (j *journey) sessionInSID(inner []byte, l3 int) Result {
	t := tpdu{packet: inner, l3: l3, outer: int(class(j.packet))}
	if p, r := j.departing(t); p == nil {
		return r
	}
	_, dst := addresses(inner)
	rules, _ := j.m.ueOrFramed(dst)
	j.around = l3 - j.l3
	return j.meet(rules, t)
}

// meet takes a packet through section 7's steps.
func (j *journey) meet(rules []*ruleState, t tpdu) Result {
	if len(rules) == 0 {
		return j.drop(NoPDR)
	}
	if !t.frame && j.gtpuInGTPU(t.packet) {
		return j.drop(GTPUMessage)
	}
	choose := classify
	if t.frame {
		choose = classifyFrame
	}
	r, reason := choose(rules, t)
	if r == nil {
		return j.drop(reason)
	}
	switch r.Action {
	case ActionDrop:
		return j.drop(FARDrop)
	case ActionGate:
		j.refuse(r, len(t.packet))
		return j.drop(GateClosed)
	case ActionBuffer:
		return Result{Reason: SlowPath, Punt: j.puntOf(PuntBuffer, r, t)}
	}
	j.session = !t.frame
	if reason := j.use(r, len(t.packet)); reason != "" {
		return j.drop(reason)
	}
	if r.Duplicate {
		j.copies = append(j.copies, j.puntOf(PuntDuplicate, r, t))
	}
	j.count(RuleName(r.session, r.ID), len(t.packet))
	if r.Forward.Slice != 0 {
		j.count(SliceName(r.Forward.Slice, r.Direction), len(t.packet))
	}
	result := j.forwardBy(r, t)
	if result.Reason == Forwarded || result.Reason == Passed {
		r.octets += uint64(len(t.packet))
	}
	return result
}

func (j *journey) puntOf(kind PuntKind, r *ruleState, t tpdu) *Punt {
	p := j.punt(kind, t.l3)
	p.Session, p.Rule = r.session, r.ID
	return p
}

// reached says whether a rule's volume is at a mark, which is rounded up to
// 256 octets; 0 is none.
func (r *ruleState) reached(mark uint64) bool { return at(r.octets, mark) }

func at(octets, mark uint64) bool { return mark != 0 && octets >= (mark+255)/256*256 }

// refuse counts what QoS enforcement drops, up to the quota's end.
func (j *journey) refuse(r *ruleState, octets int) {
	if r.reached(r.StopAt) {
		return
	}
	r.refused += uint64(octets)
	j.refused = append(j.refused, pending{RefusedName(r.session, r.ID), octets})
	if at(r.refused, r.RefusedNotifyAt) {
		j.tell(r, EventNotify, &r.told)
	}
}

// use is steps 5 to 7: quota, rates, notification. It returns why the packet
// may not go, or nothing.
func (j *journey) use(r *ruleState, octets int) Reason {
	if r.reached(r.StopAt) {
		j.tell(r, EventStop, &r.stopped)
		return QuotaUsedUp
	}
	if reason := j.rates(r, octets); reason != "" {
		j.refuse(r, octets)
		return reason
	}
	if r.reached(r.NotifyAt) {
		j.tell(r, EventNotify, &r.notified)
	}
	return ""
}

// rates is step 6.
func (j *journey) rates(r *ruleState, octets int) Reason {
	now := j.m.now()
	if !r.bucket.lets(uint32(r.octets), now) {
		return RateExceeded
	}
	for _, m := range r.shared {
		if !m.pass(octets, now) {
			return RateExceeded
		}
	}
	if !j.m.sessions.slices[r.Forward.Slice][r.Direction].pass(octets, now) {
		return SliceRate
	}
	return ""
}

func (j *journey) tell(r *ruleState, kind EventKind, told *bool) {
	if !*told {
		*told = true
		j.events = append(j.events, Event{r.session, r.ID, kind})
	}
}

// forwardBy is step 9.
func (j *journey) forwardBy(r *ruleState, t tpdu) Result {
	if t.frame {
		return j.forwardFrame(r, t)
	}
	switch r.Forward.Kind {
	case ForwardGTPU:
		switch {
		case t.message == nil:
		case r.Container != ContainerNone && !t.message.container:
			return j.relayMarked(r, t)
		default:
			o := r.onward(t)
			o.trailing = len(t.message.body) - len(t.packet)
			return j.relay(r.tunnel(), *t.message, r.marking(), o)
		}
		return j.intoTunnel(r.tunnel(), r.RQI, t, r.marking())
	case ForwardSRv6:
		return j.intoSRv6(r, t)
	case ForwardPolicy:
		return j.encapsulate(r.Forward.Policy, t, r.marking())
	}
	if t.message == nil {
		return j.drop(FARDrop)
	}
	t.outer = int(class(j.packet))
	if p, end := j.departing(t); p == nil {
		return end
	}
	src, dst := addresses(t.packet)
	rules, ue := j.m.ueOrFramed(dst)
	switch {
	case ue && r.Forward.Internal:
		t.message, t.qfi = nil, 0
		return j.meet(rules, t)
	case ue:
		return j.drop(UEToUE)
	case !r.Forward.Internal && j.m.core(src, dst):
		return j.drop(UEToCore)
	}
	return j.release(t.packet, t.l3, uint8(t.outer), outbound{table: r.Forward.Table})
}

// relayMarked is relay for a T-PDU that came without a container and gets the
// rule's.
func (j *journey) relayMarked(r *ruleState, t tpdu) Result {
	hop := v4(j.packet).ttl()
	if version(j.packet) == 6 {
		hop = v6(j.packet).hopLimit()
	}
	if hop <= 1 {
		return j.hopLimitExceeded(j.l3)
	}
	to, inner := r.tunnel(), j.completed(t.packet, true)
	hash := flowHash(inner, false)
	header := gtpuHeader(to.PDUSessionContainer, to.RemoteTEID, to.QFI, r.RQI, len(inner))
	p := j.wrap(to, tunnelEnd{hopLimit: hop - 1, class: r.marking().of(class(j.packet)), hash: hash}, header, inner)
	o := r.onward(t)
	o.packet, o.via, o.hash = p, Key{NextHop: to.Remote}, hash
	return j.send(o)
}

// onward is what becomes of a T-PDU that came in GTP-U and is too big to leave
// in it again: it is its sender's, who is told if it is the UE.
func (r *ruleState) onward(t tpdu) outbound {
	return outbound{quoted: t.packet, l3: t.l3, fragments: true, silent: r.Direction == Downlink}
}

// core says whether a packet is for what UEs have no business with, or from
// nobody in particular.
func (m *Model) core(src, dst netip.Addr) bool {
	return m.gtpu[dst] || m.local[dst] || m.localSID(dst) != nil || m.inDomain(dst) ||
		within(m.network.Protected, dst.Unmap()) || within(m.network.Protected, dst) || nobody(src) || nobody(dst)
}

// intoSRv6 is H.Encaps.Red with one segment, to where a rule says.
func (j *journey) intoSRv6(r *ruleState, t tpdu) Result {
	inner, end := j.departing(t)
	if inner == nil {
		return end
	}
	source := r.Forward.Source
	if !source.IsValid() {
		source = j.m.network.Config.Encapsulation.Source
	}
	hash := flowHash(t.packet, false)
	h := outer{src: source, segments: []netip.Addr{r.Forward.Remote}, reduced: true, next: nextHeader(inner),
		hopLimit: j.m.hopLimit, class: r.marking().of(class(inner)), label: hash}
	return j.send(outbound{packet: h.push(inner), via: Key{NextHop: r.Forward.Remote}, hash: hash,
		quoted: t.packet, l3: t.l3, fragments: true})
}

// tunnel is a rule's Outer Header Creation.
func (r *ruleState) tunnel() *gtpu.Tunnel {
	container := map[Container]srv6.ContainerType{ContainerNone: srv6.ContainerNone,
		ContainerDownlink: srv6.ContainerDownlink, ContainerUplink: srv6.ContainerUplink}[r.Container]
	return &gtpu.Tunnel{Remote: r.Forward.Remote, RemoteTEID: r.Forward.TEID, Source: r.Forward.Source,
		PDUSessionContainer: container, QFI: r.QFI}
}

// marking is the transport level marking of a header that is pushed.
type marking struct{ tos, mask uint8 }

func (m marking) of(class uint8) uint8 { return class&^m.mask | m.tos&m.mask }

func (r *ruleState) marking() marking { return marking{r.Forward.ToS, r.Forward.ToSMask} }
