package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/srv6"
)

// upf is a packet or a frame at the user plane function: it meets the rules of a
// session (section 7).
type upf struct{ j *journey }

func (j *journey) upf() upf { return upf{j} }

// receive is a G-PDU or End Marker whose TEID is a session's.
func (u upf) receive(rules []*ruleState, msg message) Result {
	if msg.kind == endMarker {
		if r := rules[0]; r.Action == ActionForward && r.Forward.Kind == ForwardGTPU {
			return u.j.gtpu().relay(r.tunnel(), msg, r.marking(), outbound{quoted: u.j.packet, l3: u.j.l3})
		}
		return u.j.drop(GTPUMessage)
	}
	if rules[0].Ethernet {
		if len(msg.body) < frameHeader {
			return u.j.drop(InnerMalformed)
		}
		msg.frame = true
		return u.meet(rules, tpdu{packet: msg.body, l3: u.j.l3 + msg.at, qfi: msg.qfi, message: &msg, outer: noOuter, frame: true})
	}
	inner, reason := u.j.gtpu().wholeTPDU(msg.body)
	if inner == nil {
		return u.j.drop(reason)
	}
	u.j.around = map[int]int{4: 20, 6: 40}[version(u.j.packet)] + 8 + 16
	return u.meet(rules, tpdu{packet: inner, l3: u.j.l3 + msg.at, qfi: msg.qfi, message: &msg, outer: noOuter})
}

// toUE is a packet that arrived for a UE without GTP-U.
func (u upf) toUE(rules []*ruleState) Result {
	if martian(addresses(u.j.packet)) {
		return u.j.drop(Martian)
	}
	return u.meet(rules, tpdu{packet: u.j.packet, l3: u.j.l3, outer: noOuter})
}

// meet takes a packet through section 7's steps.
func (u upf) meet(rules []*ruleState, t tpdu) Result {
	if len(rules) == 0 {
		return u.j.drop(NoPDR)
	}
	if !t.frame && u.j.gtpu().gtpuInGTPU(t.packet) {
		return u.j.drop(GTPUMessage)
	}
	r, reason := classify(rules, t)
	if r == nil {
		return u.j.drop(reason)
	}
	switch r.Action {
	case ActionDrop:
		return u.j.drop(FARDrop)
	case ActionGate:
		u.refuse(r, len(t.packet))
		return u.j.drop(GateClosed)
	case ActionBuffer:
		return Result{Reason: SlowPath, Punt: u.punt(PuntBuffer, r, t)}
	}
	u.j.session = !t.frame
	if reason := u.use(r, len(t.packet)); reason != "" {
		return u.j.drop(reason)
	}
	if r.Duplicate {
		u.j.copies = append(u.j.copies, u.punt(PuntDuplicate, r, t))
	}
	u.j.count(RuleName(r.session, r.ID), len(t.packet))
	if r.Forward.Slice != 0 {
		u.j.count(SliceName(r.Forward.Slice, r.Direction), len(t.packet))
	}
	result := u.forward(r, t)
	if result.Reason == Forwarded || result.Reason == Passed {
		r.octets += uint64(len(t.packet))
	}
	return result
}

func (u upf) punt(kind PuntKind, r *ruleState, t tpdu) *Punt {
	p := u.j.punt(kind, t.l3)
	p.Session, p.Rule = r.session, r.ID
	return p
}

// reached says whether a volume is at a mark, which is rounded up to 256 octets;
// 0 is none.
func reached(octets, mark uint64) bool { return mark != 0 && octets >= (mark+255)/256*256 }

// refuse counts what QoS enforcement drops, up to the quota's end.
func (u upf) refuse(r *ruleState, octets int) {
	if reached(r.octets, r.StopAt) {
		return
	}
	r.refused += uint64(octets)
	u.j.refused = append(u.j.refused, pending{RefusedName(r.session, r.ID), octets})
	if reached(r.refused, r.RefusedNotifyAt) {
		u.report(r, EventNotify, &r.refusedNotified)
	}
}

// use is steps 5 to 7: quota, rates, notification. It returns why the packet
// may not go, or nothing.
func (u upf) use(r *ruleState, octets int) Reason {
	if reached(r.octets, r.StopAt) {
		u.report(r, EventStop, &r.stopped)
		return QuotaUsedUp
	}
	if reason := u.rates(r, octets); reason != "" {
		u.refuse(r, octets)
		return reason
	}
	if reached(r.octets, r.NotifyAt) {
		u.report(r, EventNotify, &r.notified)
	}
	return ""
}

// rates is step 6.
func (u upf) rates(r *ruleState, octets int) Reason {
	now := u.j.m.now()
	if !r.bucket.lets(uint32(r.octets), now) {
		return RateExceeded
	}
	for _, m := range r.shared {
		if !m.pass(octets, now) {
			return RateExceeded
		}
	}
	if !u.j.m.sessions.slices[r.Forward.Slice][r.Direction].pass(octets, now) {
		return SliceRate
	}
	return ""
}

// report reports an event once.
func (u upf) report(r *ruleState, kind EventKind, reported *bool) {
	if !*reported {
		*reported = true
		u.j.events = append(u.j.events, Event{r.session, r.ID, kind})
	}
}

// forward is step 9.
func (u upf) forward(r *ruleState, t tpdu) Result {
	if t.frame {
		return u.forwardFrame(r, t)
	}
	switch r.Forward.Kind {
	case ForwardGTPU:
		switch {
		case t.message == nil:
		case r.Container != srv6.ContainerNone && !t.message.container:
			return u.relayMarked(r, t, r.onward(t))
		default:
			o := r.onward(t)
			o.trailing = len(t.message.body) - len(t.packet)
			return u.j.gtpu().relay(r.tunnel(), *t.message, r.marking(), o)
		}
		return u.j.gtpu().intoTunnel(r.tunnel(), r.RQI, t, r.marking())
	case ForwardSRv6: // H.Encaps.Red with one segment
		list := u.toSID(r)
		return u.j.headend().encapsulateBy(func(uint32) (chosen, *fault) { return list, nil }, t, r.marking())
	case ForwardPolicy:
		return u.j.headend().encapsulate(r.Forward.Policy, t, r.marking())
	}
	if t.message == nil {
		return u.j.drop(FARDrop)
	}
	if martian(addresses(t.packet)) {
		return u.j.drop(Martian)
	}
	t.outer = int(class(u.j.packet))
	if p, end := u.j.departing(t); p == nil {
		return end
	}
	_, dst := addresses(t.packet)
	rules, ue := u.j.m.ueOrFramed(dst)
	switch {
	case ue && r.Forward.Internal:
		t.message, t.qfi = nil, 0
		return u.meet(rules, t)
	case ue:
		return u.j.drop(UEToUE)
	case !r.Forward.Internal && u.j.m.core(dst):
		return u.j.drop(UEToCore)
	}
	return u.j.release(t.packet, t.l3, uint8(t.outer), outbound{table: r.Forward.Table})
}

// relayMarked is relay for a T-PDU that came without a container and gets the
// rule's.
func (u upf) relayMarked(r *ruleState, t tpdu, o outbound) Result {
	hop := hops(u.j.packet)
	if hop <= 1 {
		return u.j.hopLimitExceeded(u.j.l3)
	}
	end := tunnelEnd{hopLimit: hop - 1, class: r.marking().of(class(u.j.packet))}
	return u.j.gtpu().sendGPDU(r.tunnel(), r.RQI, end, u.j.completed(t.packet, !t.frame), t.frame, o)
}

// onward is what becomes of a T-PDU that came in GTP-U and is too big to leave
// in it again: the error goes to its sender if that is the UE.
func (r *ruleState) onward(t tpdu) outbound {
	return outbound{quoted: t.packet, l3: t.l3, fragments: true, silent: r.Direction == Downlink}
}

// toSID is the segment list with the one segment that a rule forwards to.
func (u upf) toSID(r *ruleState) chosen {
	source := cmp.Or(r.Forward.Source, u.j.m.network.Config.Encapsulation.Source)
	return chosen{source: source, segments: []netip.Addr{r.Forward.Remote}, reduced: true}
}

// core says whether a packet is for what UEs have no business with.
func (m *Model) core(dst netip.Addr) bool {
	if nobody(dst) || m.localSID(dst) != nil || m.inDomain(dst) {
		return true
	}
	closed, open := longest(m.network.Protected, dst), longest(m.network.MayReach, dst)
	if open >= 0 || closed >= 0 {
		return closed >= open
	}
	return m.sessions.peers[dst] || m.isGTPU(dst) || slices.Contains(m.network.Local, dst)
}

// longest is the length of the longest prefix that has an address; -1: none has.
func longest(list []netip.Prefix, a netip.Addr) int {
	bits := -1
	for _, p := range list {
		if p.Contains(a) {
			bits = max(bits, p.Bits())
		}
	}
	return bits
}

// tunnel is a rule's Outer Header Creation.
func (r *ruleState) tunnel() *gtpu.Tunnel {
	return &gtpu.Tunnel{Remote: r.Forward.Remote, RemoteTEID: r.Forward.TEID, Source: r.Forward.Source,
		PDUSessionContainer: r.Container, QFI: r.QFI}
}

// marking is the transport level marking of a header that is pushed.
type marking struct{ tos, mask uint8 }

func (m marking) of(class uint8) uint8 { return class&^m.mask | m.tos&m.mask }

func (r *ruleState) marking() marking { return marking{r.Forward.ToS, r.Forward.ToSMask} }
