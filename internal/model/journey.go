package model

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// journey is one frame on its way. What it counts is kept until it is known
// whether it was forwarded.
type journey struct {
	m       *Model
	frame   []byte
	port    *Port
	guard   *guard
	foreign bool // the frame is for another device, of this host or of another one
	ifindex int
	vlan    uint16 // outermost tag; 0: none
	came    int    // octets of the frame that was received
	l3      int    // where the layer-3 packet starts in frame
	packet  []byte // layer 3 without padding, as received; never written
	beyond  bool   // the packet reaches beyond what is kept of it
	pending []pending
	refused []pending // counted although the packet is dropped
	copies  []*Punt   // duplicates for the daemon
	events  []Event
	class   string // that counts the packet; "": none

	turn  int      // how often the packet was for this node again
	own   bool     // the outermost header is one that this node pushed
	after *journey // the next turn's

	session bool  // it meets a session's rule
	control *Punt // what is handed up where only the kernel leads; nil: nothing
	around  int   // octets that come around a session's T-PDU on its way in

	now     []byte // the frame as NAT left it; nil: as received
	fromNAT bool   // a NAT has translated the packet on its way in, and not on its way out
}

// pending is a counter to be increased once the packet is forwarded.
type pending struct {
	name  string
	bytes int
}

// Run takes a frame that was received on an interface through section 2.
func (m *Model) Run(frame []byte, ifindex int) Result {
	j := &journey{m: m, frame: frame, came: len(frame), ifindex: ifindex, port: m.ports[ifindex]}
	j.guard = m.guardOf(j.port)
	r := j.run()
	// Where the frame itself is wanted, all of it is.
	part := []PuntKind{PuntICMP, PuntErrorIndication, PuntDuplicate, PuntPathMTU, PuntFragmentOuter} // the last one is short
	if r.Reason == SlowPath && len(j.last().frame) > puntData && !slices.Contains(part, r.Punt.Kind) {
		r.Reason, r.Punt = SlowPathSize, nil
	}
	r.Copies, r.Events = j.copies, j.events
	if r.Counts == nil {
		r.Counts = Counts{}
	}
	r.Counts.add(OutcomeName(r.Reason), len(frame))
	for _, p := range j.refused {
		r.Counts.add(p.name, p.bytes)
	}
	return r
}

func (j *journey) run() Result {
	if j.port == nil || len(j.frame) < 14 {
		return j.untouched()
	}
	key, etherType, ok := j.tags()
	if !ok {
		return j.untouched()
	}
	j.vlan = key.outer
	if j.turn > 0 {
		return j.layer3(key, etherType, false)
	}
	byPort := j.m.byPort[key] != nil
	r, taken := j.wholeFrame(key, j.l3-14)
	// What takes whole frames takes those with tags of their own, too.
	if !taken && !byPort && key.outer != 0 {
		r, taken = j.wholeFrame(portKey{ifindex: key.ifindex, outer: key.outer}, 4)
	}
	if !taken && !byPort {
		r, taken = j.wholeFrame(portKey{ifindex: key.ifindex}, 0)
	}
	if taken {
		return r
	}
	return j.layer3(key, etherType, byPort)
}

// wholeFrame has a policy for frames, or a link, take the frame; false: none is there. So many
// octets of tags led to the policy.
func (j *journey) wholeFrame(key portKey, tags int) (Result, bool) {
	to, isLink := j.m.byPort[key], key.inner == 0 && j.m.sessions.links[Link{j.port.Name, key.outer}]
	isPolicy := to != nil && to.Policy != "" && slices.Contains([]srv6.Behavior{srv6.HEncapsL2, srv6.HEncapsL2Red}, j.m.policies[to.Policy].Behavior)
	switch r := j.guard.steers(to); {
	case !isPolicy && !isLink:
		return Result{}, false
	case r != "":
		return j.drop(r), true
	case isPolicy:
		return j.headend().encapsulateFrame(to.Policy, tags), true
	}
	return j.upf().fromLink(Link{j.port.Name, key.outer}), true
}

// layer3 is the packet in the frame, which interface steering may take.
func (j *journey) layer3(key portKey, etherType uint16, byPort bool) Result {
	p := j.frame[j.l3:]
	foreign := j.turn == 0 && j.port.MAC != (MAC{}) && j.port.MAC != MAC(j.frame[:6])
	group := j.frame[0]&1 != 0 // its packets are the kernel's, which would take them
	switch {
	case foreign && (etherType == 0x86dd && len(p) >= 40 && version(p) == 6 || etherType == 0x0800 && len(p) >= 20 && version(p) == 4):
		j.packet, j.foreign = p, !group
		return j.leave(j.untouched())
	case etherType == 0x86dd && len(p) >= 40 && version(p) == 6:
		j.packet = p[:min(len(p), v6(p).length())]
		return j.ipv6(v6(p), byPort, key)
	case etherType == 0x0800 && len(p) >= 20 && version(p) == 4:
		// A total length below the header's is no packet; ours drops it.
		j.packet = p[:min(len(p), max(v4(p).length(), 20))]
		return j.ipv4(v4(p), byPort, key)
	case isTag(etherType) && j.guard != nil:
		return j.drop(Tags) // the kernel takes more tags off than are looked behind
	}
	return j.untouched()
}

// tags walks at most two VLAN tags and sets where layer 3 starts; false where
// one is cut short.
func (j *journey) tags() (portKey, uint16, bool) {
	key := portKey{ifindex: j.ifindex, again: j.turn > 0}
	at, etherType := 14, be.Uint16(j.frame[12:])
	for _, id := range []*uint16{&key.outer, &key.inner} {
		if !isTag(etherType) {
			break
		}
		if len(j.frame) < at+4 {
			return key, etherType, false
		}
		*id = be.Uint16(j.frame[at:]) & 0xfff
		etherType = be.Uint16(j.frame[at+2:])
		at += 4
	}
	j.l3 = at
	return key, etherType, true
}

func isTag(etherType uint16) bool { return etherType == 0x8100 || etherType == 0x88a8 }

func (j *journey) ipv6(p v6, byPort bool, key portKey) Result {
	m := j.m
	dst := p.dst()
	sid, gtpu := m.localSID(dst), m.isGTPU(dst)
	rules, ue := m.ue(dst)
	ue = ue && j.guard.isN6()
	s, steered := m.steeredFrom(key, dst, j.guard.isN6())
	refused := j.guard.edge(p)
	if sid != nil {
		refused = j.guard.sid(sid, p.src())
	} else if refused == "" && !gtpu {
		refused = j.guard.ue(p.src(), dst)
	}
	if refused != "" {
		return j.drop(refused)
	}
	var take func() Result
	switch {
	case sid != nil:
		take = endpoint{j, sid}.process
	case gtpu && p.next() == protoFragment:
		if refused = j.guard.gtpu(p.src()); refused == "" {
			return j.reassemble() // whoever puts it together looks at its length
		}
	case gtpu && p.next() == protoUDP && toGTPU(p[40:]):
		refused = j.guard.gtpu(p.src())
		take = func() Result { return j.gtpu().process(40) }
	case gtpu:
	case ue:
		take = func() Result { return j.upf().toUE(rules) }
	case steered && s.passes():
	case steered && s.rules != nil:
		refused = j.guard.steers(nil)
		take = func() Result { return j.upf().toUE(s.rules) }
	case steered:
		refused = j.guard.steersTo(s.to, dst)
		take = func() Result { return j.steer(s.to) }
	case byPort && !nobody(dst):
		refused = j.guard.steers(m.byPort[key])
		take = func() Result { return j.steer(m.byPort[key]) }
	}
	switch {
	case refused != "":
		return j.drop(refused)
	case take == nil:
		return j.leave(j.untouched())
	case p.length() > len(p):
		return j.drop(IPv6Malformed)
	}
	return take()
}

func (j *journey) ipv4(p v4, byPort bool, key portKey) Result {
	m := j.m
	malformed := p.malformed()
	if m.isGTPU(p.dst()) {
		return j.ipv4GTPU(p, malformed, func() Result { return j.gtpu().process(p.header()) })
	}
	refused := j.guard.ue(p.src(), p.dst())
	if refused == "" && j.guard.isN6() {
		if r, ends := j.fromOutside(p, malformed); ends {
			return r
		}
		if j.fromNAT {
			p = j.packet
		}
	}
	s, steered := m.steeredFrom(key, p.dst(), j.guard.isN6())
	rules, ue := m.ue(p.dst())
	ue = ue && j.guard.isN6()
	if j.guard.isN6() && !ue && steered && s.rules != nil {
		rules, ue = s.rules, true
	}
	switch {
	case refused != "":
	case !ue && steered && !s.passes():
		refused = j.guard.steersTo(s.to, p.dst())
	case !ue && !steered && byPort && !nobody(p.dst()):
		refused = j.guard.steers(m.byPort[key])
	}
	switch {
	case refused != "":
		return j.drop(refused)
	case !ue && steered && s.passes():
		return j.leave(j.untouched())
	case !ue && steered && s.to.GTP4D != nil:
		return j.ipv4GTPU(p, malformed, func() Result { return j.headend().hMGTP4D(s.to.GTP4D) })
	case (ue || steered) && malformed:
		return j.drop(IPv4Malformed)
	case ue:
		return j.upf().toUE(rules)
	case steered:
		return j.steer(s.to)
	case byPort && !nobody(p.dst()):
		if malformed {
			return j.drop(IPv4Malformed)
		}
		return j.steer(m.byPort[key])
	}
	return j.leave(j.untouched())
}

// leave drops what the kernel must not have.
func (j *journey) leave(r Result) Result {
	if r.Reason != Passed || j.guard == nil {
		return r
	}
	p := j.frame[j.l3:]
	k := kernelPacketOf(p)
	if j.turn > 0 {
		switch refused, ours := j.guard.inside(k(p)); {
		case refused != "":
			return j.drop(refused)
		case ours:
			return kept(r, j.l3)
		}
		return r
	}
	refused := j.guard.kernel(k(p), j.foreign)
	told := j.punt(PuntPathMTU, j.l3)
	told.Info = j.guard.vouches(k(p))
	forPort := j.port.MAC == (MAC{}) || j.port.MAC == MAC(j.frame[:6])
	switch {
	case told.Info != 0 && forPort && refused != "":
		return Result{Reason: SlowPath, Punt: told}
	case refused != "":
		return j.drop(refused)
	case told.Info != 0 && forPort:
		j.copies = append(j.copies, told)
	}
	return r
}

func kernelPacketOf(p []byte) func([]byte) kernelPacket {
	if version(p) == 6 {
		return kernelPacket6
	}
	return kernelPacket4
}

// kept is what the kernel keeps of what came out of another packet: it spends no hop, so that
// the one which it was given to spend is taken back.
func kept(r Result, l3 int) Result {
	r.Out = slices.Clone(r.Out)
	spend(r.Out[l3:])
	return r
}

// spend takes a hop off a packet.
func spend(p []byte) {
	if version(p) == 6 {
		p[7]--
		return
	}
	v4(p).change(8, v4(p).ttl()-1)
}

// atSID leaves the upper layer of a packet to the kernel, at a SID.
func (j *journey) atSID(r Result, c chain) Result {
	switch refused := j.guard.atSID(upperLayer6(v6(j.packet), c)); {
	case refused != "":
		return j.drop(refused)
	case j.turn > 0 && j.guard != nil && j.m.isOwn(v6(j.packet).dst()):
		return kept(r, j.l3)
	}
	return r
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// ipv4GTPU is how G-PDUs are recognised at a GTP-U address and at
// H.M.GTP4.D: UDP to port 2152, or a fragment of UDP.
func (j *journey) ipv4GTPU(p v4, malformed bool, then func() Result) Result {
	switch {
	case p.protocol() != protoUDP:
		return j.leave(j.untouched())
	case !p.fragment() && !toGTPU(p[min(p.header(), len(p)):]):
		return j.leave(j.untouched())
	}
	refused := j.guard.gtpu(p.src())
	switch {
	case refused != "":
		return j.drop(refused)
	case malformed:
		return j.drop(IPv4Malformed)
	case p.fragment():
		return j.reassemble()
	}
	return then()
}

// toGTPU says whether a UDP header is whole and for port 2152.
func toGTPU(udp []byte) bool { return len(udp) >= 8 && be.Uint16(udp[2:]) == 2152 }

func (m *Model) inDomain(a netip.Addr) bool { return within(m.network.Config.SRDomain(), a) }

func (j *journey) steer(to *srpolicy.Steering) Result {
	if martian(addresses(j.packet)) {
		return j.drop(Martian)
	}
	packet := tpdu{packet: j.packet, l3: j.l3, outer: noOuter}
	if to.Tunnel == "" {
		policy, name := j.m.classify(j.port.Name, j.vlan, to, j.packet)
		if policy == "" {
			return j.drop(NoClassPolicy)
		}
		j.class = name
		return j.headend().encapsulate(policy, packet, marking{})
	}
	t := j.m.tunnels[to.Tunnel]
	if !t.Remote.IsValid() {
		return j.drop(TEIDUnknown)
	}
	j.count(SentName(t.Name), len(j.packet))
	return j.gtpu().intoTunnel(t, false, packet, marking{})
}

// count remembers a counter that is due when the packet is forwarded.
func (j *journey) count(name string, bytes int) {
	j.pending = append(j.pending, pending{name, bytes})
}

// The ways out.

func (j *journey) untouched() Result { return Result{Reason: Passed, Out: j.frame} }

func (j *journey) drop(r Reason) Result { return Result{Reason: r} }

func (j *journey) reassemble() Result {
	return Result{Reason: SlowPath, Punt: j.punt(PuntReassemble, j.l3)}
}

func (j *journey) punt(kind PuntKind, l3 int) *Punt {
	frame := j.frame
	if j.now != nil && (kind == PuntDuplicate || kind == PuntFragment && j.fromNAT) {
		frame = j.now
	}
	return &Punt{Kind: kind, L3: l3, Rewritten: j.turn > 0, Data: frame[:min(len(frame), puntData)]}
}

// ICMPv6 types and codes.
const (
	unreachable      = 1
	packetTooBig     = 2
	timeExceeded     = 3
	parameterProblem = 4
)

// icmpError is a drop that the slow path reports to the sender (section 3). The
// report is about the packet that starts at l3 in the frame.
func (j *journey) icmpError(r Reason, l3 int, kind, code uint8, info uint32) Result {
	result := j.drop(r)
	result.Punt = j.punt(PuntICMP, l3)
	result.Punt.Type, result.Punt.Code, result.Punt.Info = kind, code, info
	return result
}

// hopLimitExceeded is the error for a packet that starts at l3 in the frame.
func (j *journey) hopLimitExceeded(l3 int) Result {
	return j.icmpError(HopLimit, l3, timeExceeded, 0, 0)
}

// passFinished hands a packet that only the kernel can send to the kernel, as
// if it had come in untagged. The kernel spends a hop of its own.
func (j *journey) passFinished(o outbound) Result {
	p := slices.Clone(o.packet)
	switch {
	case hops(p) == 255:
	case version(p) == 4:
		v4(p).change(8, v4(p).ttl()+1)
	default:
		p[7]++
	}
	return Result{Reason: Passed, Out: finished(j.frame, p, j.behind(o)), Counts: j.due()}
}

// completed returns an inner packet, with a completed checksum if the port's local
// stack may have left it to hardware.
func (j *journey) completed(p []byte, ip bool) []byte {
	if !ip || !j.port.PartialChecksum {
		return p
	}
	p = slices.Clone(p)
	completeChecksum(p)
	return p
}
