package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// outbound is a finished packet that looks for its next hop.
type outbound struct {
	packet []byte
	via    Key // adjacency of what matched; zero: none
	// along are the destinations that the packet has one after another, of a segment list or a
	// tunnel; nil: those of neither.
	along  []netip.Addr
	only   bool   // nothing but via will do
	table  uint32 // where the destination is looked up otherwise
	hash   uint32
	routed netip.Addr // looked up in place of the destination, if valid
	// quoted is the packet as received that a Packet Too Big is about, and l3
	// where it starts in the frame.
	quoted []byte
	l3     int
	// fragments says that an IPv4 packet without DF is fragmented: at headends and
	// decapsulators.
	fragments bool
	answers   bool // nothing of what was received is in it
	silent    bool // a packet that is too big is dropped without an error
	header    outermost
	// tpdu is an IP T-PDU between GTP-U and SRv6, and tpduL3 where it starts in the frame; nil: it
	// is none.
	tpdu   []byte
	tpduL3 int
	// trailing octets are behind a session's T-PDU, which is what is quoted.
	trailing int
}

// outermost is where the outermost header of a finished packet comes from.
type outermost int

const (
	received outermost = iota // it is the one that was received
	pushed                    // this node pushed it, as it is configured
	bySender                  // this node pushed it, with addresses that the sender chose
	inner                     // it was inside of the one that was received
)

// send is section 3's "Next hop".
func (j *journey) send(o outbound) Result {
	main := !o.only && (o.table == 0 || o.table == MainTable)
	a := j.nextHop(o)
	leads := o.via != (Key{}) && a != nil && !a.Pass
	switch {
	case main && !leads && j.isAgain(o):
		return j.again(o)
	case a == nil && !o.only && !main && (o.silent || o.quoted == nil):
		return j.drop(NoRoute)
	case a == nil && !o.only && !main:
		return j.icmpError(NoRoute, o.l3, unreachable, 0, 0)
	case (a == nil || a.Pass) && !main:
		return j.drop(NoNeighbour)
	case a != nil && a.Pass && j.control != nil:
		return Result{Reason: SlowPath, Punt: j.control, Counts: j.due()}
	case a == nil || a.Pass:
		return j.leaveFinished(o)
	}
	along := o.along
	if along == nil && main && o.via == (Key{}) {
		along = []netip.Addr{o.routedTo()}
	}
	mtu := j.m.network.pathMTU(along, a.MTU)
	fits := len(o.packet) <= mtu
	if !fits && !o.leavesInFragments() {
		return j.tooBig(o, mtu-(len(o.packet)-len(o.quoted)))
	}
	j.clampMSS(o, mtu)
	frame := append(append([]byte{}, a.Dst[:]...), a.Src[:]...)
	frame = be.AppendUint16(appendTags(frame, a.VLAN), etherTypeOf(o.packet))
	l3 := len(frame)
	frame = slices.Concat(frame, o.packet, j.behind(o))
	if fits {
		return j.forward(frame, a)
	}
	whole := j.punt(PuntFragmentOuter, l3)
	whole.Info, whole.Data = uint32(mtu), frame
	return Result{Reason: SlowPath, Egress: j.m.portNames[a.Out].Ifindex, Punt: whole, Counts: j.due()}
}

// leavesInFragments says that a packet which nobody makes smaller is in a header of this node's.
func (o *outbound) leavesInFragments() bool {
	inside := o.quoted
	if o.tpdu != nil {
		inside = o.tpdu
	}
	pushes := o.header == pushed || o.header == bySender
	return pushes && inside != nil && version(inside) == 6 && len(inside) <= leastMTU
}

// leastMTU is that of IPv6 (RFC 8200 section 5).
const leastMTU = 1280

// leaveFinished hands a packet to the kernel, which must not have all that came out of another
// one here. A header that this node pushed, as it is configured, is trusted.
func (j *journey) leaveFinished(o outbound) Result {
	own := o.header == pushed || o.header == received && j.own
	refused, ours := j.guard.inside(kernelPacketOf(o.packet)(o.packet))
	switch {
	case ours && !own && refused != "":
		return j.drop(refused)
	case ours && !own:
		j.clampMSS(o, 0)
		return Result{Reason: Passed, Out: finished(j.frame, o.packet, j.behind(o)), Counts: j.due()}
	}
	j.clampMSS(o, 0)
	return j.passFinished(o)
}

// finished is the frame of a finished packet for the kernel, under the addresses that it came with.
func finished(frame, packet, behind []byte) []byte {
	out := be.AppendUint16(slices.Clone(frame[:12]), etherTypeOf(packet))
	return slices.Concat(out, packet, behind)
}

// Padding of at most maxPadding octets stays in frames of at most maxPadded.
const (
	maxPadding = 46
	maxPadded  = 1024
)

// behind is the padding that stays behind the packet.
func (j *journey) behind(o outbound) []byte {
	end := j.l3 + len(j.packet)
	cut := j.beyond || o.quoted != nil && o.l3+len(o.quoted)+o.trailing != end // not only padding
	if padding := j.frame[end:]; !cut && !o.answers && j.packet != nil && len(padding) <= maxPadding && j.came <= maxPadded {
		return padding
	}
	return nil
}

// pathMTU is the link's MTU, or what a router told of the path.
func (n *Network) pathMTU(ends []netip.Addr, link int) int {
	for _, p := range n.PathMTUs {
		if ends != nil && slices.Equal(p.Ends, ends) {
			return min(p.MTU, link)
		}
	}
	return link
}

func appendTags(frame []byte, tags []VLAN) []byte {
	for _, t := range tags {
		frame = be.AppendUint16(be.AppendUint16(frame, t.TPID), t.ID)
	}
	return frame
}

// forward ends the journey on an interface and makes pending counts real.
func (j *journey) forward(frame []byte, a *Adjacency) Result {
	return Result{Reason: Forwarded, Out: frame, Egress: j.m.portNames[a.Out].Ifindex, Counts: j.due()}
}

func (j *journey) due() Counts {
	c := Counts{}
	for _, p := range j.pending {
		c.add(p.name, p.bytes)
	}
	return c
}

// nextHop is the adjacency of what matched, or, where nothing has one, of the
// route. nil: the kernel is asked, which here knows no routes.
func (j *journey) nextHop(o outbound) *Adjacency {
	via := o.via
	if via == (Key{}) {
		via = j.m.routeOf(o)
	}
	a := j.m.adjacency[normal(via)]
	if a != nil && a.Shared != nil {
		part := o.hash * 0x85EBCA77 >> 26
		a = j.m.adjacency[normal(a.Shared[part%uint32(len(a.Shared))])]
	}
	return a
}

// routeOf is the next hop that the packet's table leads to; the zero Key: none. An address whose
// path has an MTU of its own has a route of its own.
func (m *Model) routeOf(o outbound) Key {
	dst, table := o.routedTo(), cmp.Or(o.table, MainTable)
	if table == MainTable && m.network.pathMTU([]netip.Addr{dst}, 0xffff) != 0xffff {
		return Key{NextHop: dst}
	}
	i := slices.IndexFunc(m.routes, func(r Route) bool { return cmp.Or(r.Table, MainTable) == table && r.Prefix.Contains(dst) })
	if i < 0 || len(m.routes[i].Via) == 0 {
		return Key{}
	}
	via := m.routes[i].Via
	return via[o.hash%uint32(len(via))]
}

// routedTo is the destination that the packet's route is looked up by.
func (o *outbound) routedTo() netip.Addr {
	if o.routed.IsValid() {
		return o.routed
	}
	_, dst := addresses(o.packet)
	return dst
}

func (j *journey) tooBig(o outbound, mtu int) Result {
	cut := func(packet []byte, l3 int) (Result, bool) {
		if version(packet) != 4 || packet[6]&0x40 != 0 { // DF
			return Result{}, false
		}
		r := Result{Reason: SlowPath, Punt: j.punt(PuntFragment, l3)}
		r.Punt.Info = uint32(mtu - len(o.quoted) + len(packet))
		return r, true
	}
	if o.tpdu != nil {
		if r, is := cut(o.tpdu, o.tpduL3); is {
			return r
		}
	}
	if o.fragments {
		if r, is := cut(o.quoted, o.l3); is {
			return r
		}
	}
	switch v6 := version(o.quoted) == 6 && mtu < leastMTU; {
	case o.silent, v6 && len(o.quoted) <= leastMTU:
		return j.drop(TooBig)
	case v6:
		mtu = leastMTU
	}
	return j.icmpError(TooBig, o.l3, packetTooBig, 0, uint32(mtu))
}
