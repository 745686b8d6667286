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

// ownPort is the interface by which the daemon's own packets come in.
const ownPort = 1

// receive is a G-PDU or End Marker whose TEID is a session's. The daemon gets an End Marker
// first, and sends it in again if the session takes one from that peer.
func (u upf) receive(rules []*ruleState, msg message) Result {
	if msg.kind == endMarker {
		if r := rules[0]; r.Action == ActionForward && r.Forward.Kind == ForwardGTPU {
			if u.j.ifindex != ownPort {
				return u.j.leave(u.j.untouched())
			}
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

// decapsulated is a packet that a SID of a slice took out, and that is fit to go on.
func (u upf) decapsulated(sid netip.Prefix, slice uint32, t tpdu) Result {
	if slice&ofVPN != 0 {
		return u.fromVPN(slice&^ofVPN, t)
	}
	known, t2 := u.j.m.sessions, t
	t2.bySID = true
	if sid.Bits()+40 <= 128 {
		if whose := argsOf(getBits(u.j.packet[24:40], sid.Bits(), 40)); whose.teid != 0 {
			t2.qfi = whose.qfi
			rules := known.atSID[atSID{slice: slice, teid: whose.teid}]
			if len(rules) == 0 && known.byTEID[whose.teid].ofOtherSlice(slice) {
				return u.j.drop(OtherSlice)
			}
			return u.meetIP(rules, t2)
		}
	}
	t2.anyQFI = true
	src, dst := addresses(t.packet)
	up := known.atSID[atSID{slice: slice, ue: ueOf(src), direction: Uplink}]
	down := known.atSID[atSID{slice: slice, ue: ueOf(dst), direction: Downlink}]
	switch {
	case len(up) > 0 && len(down) > 0:
		return u.j.drop(UEToUE)
	case len(up) > 0:
		return u.meetIP(up, t2)
	case len(down) > 0:
		return u.meetIP(down, t2)
	}
	for _, a := range []netip.Addr{dst, src} {
		if rules, _ := u.j.m.ueOrFramed(a); ruleList(rules).ofOtherSlice(slice) {
			return u.j.drop(OtherSlice)
		}
	}
	return u.j.drop(NoPDR)
}

// fromVPN is a packet that the SID of a slice's VPN took out.
func (u upf) fromVPN(slice uint32, t tpdu) Result {
	src, dst := addresses(t.packet)
	rules, _ := u.j.m.ueOrFramed(dst)
	_, ue := u.j.m.ue(src)
	switch {
	case len(rules) == 0:
		return u.j.drop(NoPDR)
	case rules[0].Group.Slice != slice:
		return u.j.drop(OtherSlice)
	case ue || within(u.j.m.network.Config.GTPU.Pools, src):
		return u.j.drop(UESource)
	}
	t.bySID = true
	return u.meetIP(rules, t)
}

// meetIP is meet where rules must not be an Ethernet session's.
func (u upf) meetIP(rules ruleList, t tpdu) Result {
	if len(rules) > 0 && rules[0].Ethernet {
		return u.j.drop(NoPDR)
	}
	return u.meet(rules, t)
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
	case ActionFull:
		return u.j.drop(BufferFull)
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
	if r.Forward.Control {
		u.j.control = u.punt(PuntSend, r, t)
	}
	result := u.forward(r, t)
	byDaemon := result.Punt != nil && (result.Punt == u.j.control || result.Punt.Kind == PuntFragmentOuter)
	if result.Reason == Forwarded || result.Reason == Passed || byDaemon {
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

// ended says whether nothing more may go by a rule: it is at its stop or, where that is the end
// of its share, a quota is used up. Nobody who uses that quota has a share then.
func (r *ruleState) ended() bool {
	if !r.Shares {
		return reached(r.octets, r.StopAt)
	}
	if !r.over && r.octets/256 < r.StopAt/256 {
		return false
	}
	r.endShares()
	return len(r.quotas) == 0 || slices.ContainsFunc(r.quotas, quotaState.usedUp)
}

// endShares ends the shares of all rules that use a quota of this one.
func (r *ruleState) endShares() {
	for _, q := range r.quotas {
		for _, other := range q.of {
			other.over = true
		}
	}
}

// usedUp says whether the rules counted as much as the quota together.
func (q quotaState) usedUp() bool {
	octets := uint64(0)
	for _, r := range q.of {
		octets += r.octets
		if q.Refused {
			octets += r.refused
		}
	}
	return octets >= q.Until
}

// refuse counts what QoS enforcement drops, up to the quota's end.
func (u upf) refuse(r *ruleState, octets int) {
	if r.ended() {
		return
	}
	r.refused += uint64(octets)
	u.j.refused = append(u.j.refused, pending{RefusedName(r.session, r.ID), octets})
	if reached(r.refused, r.RefusedNotifyAt) {
		u.report(r, EventNotify, &r.refusedNotified)
		r.over = true
	}
}

// use is steps 5 to 7: quota, rates, notification. It returns why the packet
// may not go, or nothing.
func (u upf) use(r *ruleState, octets int) Reason {
	if r.ended() {
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
		case r.Container != srv6.ContainerNone && !t.message.container, r.Forward.Control && t.message.container:
			return u.relayMarked(r, t, r.onward(t))
		default:
			o := r.onward(t)
			o.trailing = len(t.message.body) - len(t.packet)
			return u.j.gtpu().relay(r.tunnel(), *t.message, r.marking(), o)
		}
		return u.j.gtpu().intoTunnel(r.tunnel(), r.RQI, t, r.marking())
	case ForwardSRv6, ForwardPolicy: // H.Encaps.Red with one segment, or a policy
		return u.j.headend().encapsulateBy(u.listOf(r), t, r.marking())
	}
	if t.message == nil && (!t.bySID || r.Direction == Downlink) {
		return u.j.drop(FARDrop)
	}
	if t.message != nil {
		if martian(addresses(t.packet)) {
			return u.j.drop(Martian)
		}
		t.outer = int(class(u.j.packet))
		if p, end := u.j.departing(t); p == nil {
			return end
		}
	}
	src, dst := addresses(t.packet)
	rules, ue := u.j.m.ueOrFramed(dst)
	if ue && !r.Forward.Internal {
		if reason := u.j.m.meetUE(r.Group, src, dst, rules); reason != "" {
			return u.j.drop(reason)
		}
	}
	switch {
	case ue && (r.Forward.Internal || r.Group.UEToUE == BetweenUEsRoute):
		return u.meetAsUE(rules, t)
	case !r.Forward.Internal && u.j.m.core(dst):
		return u.j.drop(UEToCore)
	}
	if r.Forward.Kind == ForwardVPN {
		return u.intoVPN(r, t)
	}
	return u.outside(r, t)
}

// intoVPN is a packet that leaves by the longest route of a VPN.
func (u upf) intoVPN(r *ruleState, t tpdu) Result {
	_, dst := addresses(t.packet)
	routes := u.j.m.ofTenant[r.Forward.VPN]
	i := slices.IndexFunc(routes, func(s steering) bool { return s.prefix.Contains(dst) })
	if i < 0 {
		return u.j.drop(NoVPNRoute)
	}
	return u.j.headend().encapsulate(routes[i].to.Policy, t, r.marking())
}

// meetAsUE is meet for a packet that another UE sent.
func (u upf) meetAsUE(rules []*ruleState, t tpdu) Result {
	t.message, t.qfi, t.bySID, t.anyQFI = nil, 0, false, false
	return u.meet(rules, t)
}

// meetUE says why a packet of a UE of a group does not reach the UE at dst, which has rules,
// or nothing.
func (m *Model) meetUE(group Group, src, dst netip.Addr, rules []*ruleState) Reason {
	switch own, _ := m.ueOrFramed(src); {
	case group.UEToUE == "":
		return UEToUE
	case len(rules) == 0:
		return NoPDR
	case rules[0].Group != group:
		return OtherSlice
	case len(own) > 0 && own[0].session == rules[0].session,
		group.UEToUE == BetweenUEsN6 && (m.natOfUE(src) != nil || m.natOfUE(dst) != nil):
		return UEToUE
	}
	return ""
}

// returns says whether a packet comes back from N6 that a UE may have sent to another one
// by there.
func (m *Model) returns(src, dst netip.Addr) bool {
	own, _ := m.ueOrFramed(src)
	rules, _ := m.ueOrFramed(dst)
	return len(own) > 0 && own[0].Group.UEToUE == BetweenUEsN6 && m.meetUE(own[0].Group, src, dst, rules) == ""
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

// listOf chooses the segment list that a rule forwards by. The argument of the last
// segment says whose the packet is, where the rule has room for it.
func (u upf) listOf(r *ruleState) func(hash uint32) (chosen, *fault) {
	return func(hash uint32) (chosen, *fault) {
		list := u.toSID(r)
		if r.Forward.Kind == ForwardPolicy {
			policy, name := u.j.m.classifyFlow(&r.Forward)
			if policy == "" {
				return list, plain(NoClassPolicy)
			}
			u.j.class = name
			var f *fault
			if list, f = u.j.headend().choose(policy, hash); f != nil {
				return list, f
			}
		}
		if at := int(r.Forward.ArgsOffset); at != 0 {
			list.written = slices.Clone(list.segments)
			last := len(list.written) - 1
			list.written[last] = withArgs(list.written[last], at, args{qfi: r.QFI, r: r.RQI, teid: r.Forward.TEID})
		}
		return list, nil
	}
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
	return m.sessions.peers[dst] || m.isOwn(dst)
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
