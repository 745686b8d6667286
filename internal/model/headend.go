package model

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// chosen is the segment list that a packet takes.
type chosen struct {
	name     string // of its counter
	policy   *srpolicy.Policy
	source   netip.Addr
	segments []netip.Addr
}

// headend is the node as the headend of an SR policy, and at H.M.GTP4.D: it
// pushes the outer headers.
type headend struct{ j *journey }

func (j *journey) headend() headend { return headend{j} }

// choose is the first list whose threshold is not below the hash; thresholds
// share 2^32 out by weight.
func (n headend) choose(policy string, hash uint32) (chosen, *fault) {
	p := n.j.m.policies[policy]
	if p == nil || len(p.SegmentLists) == 0 {
		return chosen{}, plain(NoSegmentList)
	}
	weight := func(i int) uint64 { return uint64(max(p.SegmentLists[i].Weight, 1)) }
	var total, sum uint64
	for i := range p.SegmentLists {
		total += weight(i)
	}
	at := 0
	for ; at < len(p.SegmentLists)-1; at++ {
		sum += weight(at)
		if uint64(hash) < sum<<32/total {
			break
		}
	}
	source := p.Source
	if !source.IsValid() {
		source = n.j.m.network.Config.Encapsulation.Source
	}
	return chosen{ListName(p.Name, at), p, source, p.SegmentLists[at].Segments}, nil
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

// sendList sends a packet that a segment list was pushed on.
func (n headend) sendList(list chosen, p []byte, hash uint32, o outbound) Result {
	n.j.count(list.name, len(p))
	o.packet, o.hash, o.via = p, hash, Key{NextHop: v6(p).dst()}
	return n.j.send(o)
}

// encapsulate is H.Encaps and H.Encaps.Red.
func (n headend) encapsulate(policy string, t tpdu, mark marking) Result {
	inner, r := n.j.departing(t)
	if inner == nil {
		return r
	}
	hash := flowHash(t.packet, false)
	list, f := n.choose(policy, hash)
	if f != nil {
		return n.j.fail(f)
	}
	h := outer{src: list.source, segments: list.segments, reduced: reduced(list.policy.Behavior), next: nextHeader(inner),
		hopLimit: n.j.m.hopLimit, class: mark.of(class(inner)), label: hash}
	return n.sendList(list, h.push(inner), hash, outbound{quoted: t.packet, l3: t.l3, fragments: true})
}

// nextHeader is how IPv6 names a packet that it carries.
func nextHeader(p []byte) uint8 {
	if version(p) == 4 {
		return protoIPv4
	}
	return protoIPv6
}

// encapsulateFrame is H.Encaps.L2 and H.Encaps.L2.Red, on the frame less its
// tags.
func (n headend) encapsulateFrame(policy string) Result {
	frame := append(append([]byte{}, n.j.frame[:12]...), n.j.frame[n.j.l3-2:]...)
	hash := flowHash(frame, true)
	list, f := n.choose(policy, hash)
	if f != nil {
		return n.j.fail(f)
	}
	h := outer{src: list.source, segments: list.segments, reduced: reduced(list.policy.Behavior),
		next: protoEthernet, hopLimit: n.j.m.hopLimit, label: hash}
	p := h.push(frame)
	n.j.count(list.name, len(p))
	a := n.j.nextHop(outbound{packet: p, via: Key{NextHop: v6(p).dst()}, hash: hash})
	if a != nil && !a.Pass && len(p) > a.MTU {
		return n.j.drop(TooBig) // Ethernet has nobody to tell
	}
	return n.j.send(outbound{packet: p, via: Key{NextHop: v6(p).dst()}, hash: hash})
}
