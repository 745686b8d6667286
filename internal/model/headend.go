package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// chosen is the segment list that a packet takes.
type chosen struct {
	name     string // of its counter; "": none
	source   netip.Addr
	segments []netip.Addr
	reduced  bool         // what is pushed leaves the first segment out of the SRH
	written  []netip.Addr // the segments with an argument in the last one; nil: without
}

// headend is the node as the headend of an SR policy, and at H.M.GTP4.D: it
// pushes the outer headers.
type headend struct{ j *journey }

func (j *journey) headend() headend { return headend{j} }

// choose is the first list whose threshold is not below the hash; thresholds
// share 2^32 out by weight. The lists that protect the policy count where they alone carry packets.
func (n headend) choose(policy string, hash uint32) (chosen, *fault) {
	p := n.j.m.policies[policy]
	if p == nil || len(p.SegmentLists) == 0 {
		return chosen{}, plain(NoSegmentList)
	}
	lists, before, isUp := inUse(p)
	at := placeOf(lists, hash)
	if !isUp(at) {
		again := placeOf(lists, hash*0x9E3779B1)
		for i := range lists { // if none is up, the hash's own stays
			if next := (again + i) % len(lists); isUp(next) {
				at = next
				break
			}
		}
	}
	source := cmp.Or(p.Source, n.j.m.network.Config.Encapsulation.Source)
	return chosen{name: ListName(p.Name, before+at), source: source, segments: lists[at].Segments, reduced: reduced(p.Behavior)}, nil
}

// inUse is which lists of a policy packets take, how many come before them, and whether packets take
// one of them: those that are neither down nor slow, or else the slow ones, or else none.
func inUse(p *srpolicy.Policy) (lists []srpolicy.SegmentList, before int, isUp func(int) bool) {
	for _, slow := range []bool{false, true} {
		before := 0
		for _, lists := range [][]srpolicy.SegmentList{p.SegmentLists, p.Protection} {
			isUp := func(i int) bool { return p.DownAt(before+i) == "" && (slow || p.SlowAt(before+i) == "") }
			for i := range lists {
				if isUp(i) {
					return lists, before, isUp
				}
			}
			before += len(lists)
		}
	}
	return p.SegmentLists, 0, func(int) bool { return false }
}

// placeOf is the list that a hash falls to by the weights.
func placeOf(lists []srpolicy.SegmentList, hash uint32) (at int) {
	weight := func(i int) uint64 { return uint64(max(lists[i].Weight, 1)) }
	var total, sum uint64
	for i := range lists {
		total += weight(i)
	}
	for ; at < len(lists)-1; at++ {
		sum += weight(at)
		if uint64(hash) < sum<<32/total {
			break
		}
	}
	return at
}

// outer is an IPv6 header to push, with the SRH that its segments need.
type outer struct {
	src      netip.Addr
	segments []netip.Addr // first destination first
	reduced  bool         // the first segment is left out of the SRH
	always   bool         // an SRH also where a reduced one would be none
	tag      uint16
	next     uint8
	hopLimit uint8
	class    uint8
	label    uint32
}

// push is the header in front of a payload.
func (h outer) push(payload []byte) []byte {
	srh := h.srh()
	p := make([]byte, 40, 40+len(srh)+len(payload))
	be.PutUint32(p, 6<<28|uint32(h.class)<<20|h.label&0xfffff)
	be.PutUint16(p[4:], uint16(len(srh)+len(payload)))
	p[6], p[7] = h.next, h.hopLimit
	if srh != nil {
		p[6] = protoRouting
	}
	copy(p[8:], h.src.AsSlice())
	copy(p[24:], h.segments[0].AsSlice())
	return append(append(p, srh...), payload...)
}

// srh is the Segment Routing Header (RFC 8754 section 2), or nil.
func (h outer) srh() []byte {
	written := slices.Clone(h.segments)
	left := len(written) - 1
	if h.reduced {
		written = written[1:]
	}
	if len(written) == 0 {
		if !h.always {
			return nil
		}
		written = h.segments
	}
	slices.Reverse(written)
	b := []byte{h.next, byte(2 * len(written)), 4, byte(left), byte(len(written) - 1), 0, byte(h.tag >> 8), byte(h.tag)}
	for _, s := range written {
		b = append(b, s.AsSlice()...)
	}
	return b
}

// send sends a payload behind the header h, which takes from the list what it does
// not have of its own.
func (n headend) send(list chosen, h outer, payload []byte, o outbound) Result {
	if !h.src.IsValid() {
		h.src = list.source
	}
	if h.segments == nil {
		h.segments = list.segments
		if list.written != nil {
			h.segments = list.written
		}
	}
	h.reduced, h.hopLimit = list.reduced, cmp.Or(h.hopLimit, n.j.m.hopLimit)
	o.packet, o.hash, o.via, o.header = h.push(payload), h.label, Key{NextHop: list.segments[0]}, pushed
	o.along = list.segments
	if list.name != "" {
		n.j.count(list.name, len(o.packet))
	}
	if n.j.class != "" {
		n.j.count(ClassName(n.j.class), len(o.packet))
	}
	return n.j.send(o)
}

// encapsulate is H.Encaps and H.Encaps.Red.
func (n headend) encapsulate(policy string, t tpdu, mark marking) Result {
	return n.encapsulateBy(func(hash uint32) (chosen, *fault) { return n.choose(policy, hash) }, t, mark)
}

// encapsulateBy is encapsulate with the list that `choose` gives.
func (n headend) encapsulateBy(choose func(hash uint32) (chosen, *fault), t tpdu, mark marking) Result {
	inner, r := n.j.departing(t)
	if inner == nil {
		return r
	}
	hash := flowHash(t.packet, false)
	list, f := choose(hash)
	if f != nil {
		return n.j.fail(f)
	}
	h := outer{next: nextHeader(inner), class: mark.of(class(inner)), label: hash}
	return n.send(list, h, inner, outbound{quoted: t.packet, l3: t.l3, fragments: true})
}

// nextHeader is how IPv6 names a packet that it carries.
func nextHeader(p []byte) uint8 {
	if version(p) == 4 {
		return protoIPv4
	}
	return protoIPv6
}

// encapsulateFrame is H.Encaps.L2 and H.Encaps.L2.Red, on the frame less so many octets of its
// tags.
func (n headend) encapsulateFrame(policy string, tags int) Result {
	frame := append(append([]byte{}, n.j.frame[:12]...), n.j.frame[12+tags:]...)
	hash := flowHash(frame, true)
	list, f := n.choose(policy, hash)
	if f != nil {
		return n.j.fail(f)
	}
	// Ethernet has no error message for a packet that is too big.
	return n.send(list, outer{next: protoEthernet, label: hash}, frame, outbound{silent: true})
}
