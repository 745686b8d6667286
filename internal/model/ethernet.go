package model

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/srv6"
)

// Link is where the data network of Ethernet sessions is.
type Link struct {
	Interface string `json:"interface"`
	VLAN      uint16 `json:"vlan,omitempty"` // 0: no tag
}

// FrameFilter is an Ethernet packet filter; what is not set matches anything.
type FrameFilter struct {
	Source      *MAC `json:"source,omitempty"`
	Destination *MAC `json:"destination,omitempty"`
	// SourceTo and DestinationTo are the last addresses of ranges.
	SourceTo      *MAC    `json:"source_to,omitempty"`
	DestinationTo *MAC    `json:"destination_to,omitempty"`
	EtherType     *uint16 `json:"ether_type,omitempty"`
	CTag          *uint16 `json:"c_tag,omitempty"` // VLAN ids
	STag          *uint16 `json:"s_tag,omitempty"`
	// IP: an IP packet is in the frame, which the rest of the filter is about.
	IP bool `json:"ip,omitempty"`
}

// station is a MAC address on a link.
type station struct {
	link Link
	mac  MAC
}

// frameHeader is the least that a frame has.
const frameHeader = 14

// fromLink gives a frame to the session whose station it is for, or hands it up.
func (u upf) fromLink(l Link) Result {
	at := 0
	if l.VLAN != 0 {
		at = 4
	}
	frame := append(append([]byte{}, u.j.frame[:12]...), u.j.frame[12+at:]...)
	to := MAC(frame)
	if to[0]&1 == 0 {
		rules := u.j.m.sessions.byLink[u.j.m.sessions.stations[station{l, to}]]
		if len(rules) > 0 && rules[0].Link == l {
			return u.meet(rules, tpdu{packet: frame, l3: at, outer: noOuter, frame: true})
		}
	}
	return Result{Reason: SlowPath, Punt: u.j.punt(PuntFlood, at)}
}

// decapsulatedFrame is what a SID of a slice took out: its argument says whose.
func (u upf) decapsulatedFrame(sid netip.Prefix, slice uint32, c chain) Result {
	frame := u.j.packet[c.at:]
	if len(frame) < frameHeader {
		return u.j.drop(InnerMalformed)
	}
	if sid.Bits()+40 > 128 {
		return u.j.drop(NoPDR)
	}
	whose := argsOf(getBits(u.j.packet[24:40], sid.Bits(), 40))
	rules := u.j.m.sessions.atSID[atSID{slice: slice, teid: whose.teid}]
	switch {
	case len(rules) == 0 && u.j.m.sessions.byTEID[whose.teid].ofOtherSlice(slice):
		return u.j.drop(OtherSlice)
	case len(rules) == 0 || !rules[0].Ethernet:
		return u.j.drop(NoPDR)
	}
	return u.meet(rules, tpdu{packet: frame, l3: u.j.l3 + c.at, qfi: whose.qfi, outer: noOuter, frame: true, bySID: true})
}

// frameInSRv6 sends a frame to the forwarding's SID, or by its policy. The
// argument of the last segment says whose it is.
func (u upf) frameInSRv6(r *ruleState, frame []byte) Result {
	if r.Forward.ArgsOffset == 0 {
		return u.j.drop(FARDrop)
	}
	hash := flowHash(frame, true)
	list, f := u.listOf(r)(hash)
	if f != nil {
		return u.j.fail(f)
	}
	h := outer{next: protoEthernet, class: r.marking().of(0), label: hash}
	return u.j.headend().send(list, h, frame, outbound{silent: true})
}

// forwardFrame is step 9.
func (u upf) forwardFrame(r *ruleState, t tpdu) Result {
	switch {
	case r.Forward.Kind == ForwardLink && (t.message != nil || t.bySID):
		return u.ontoLink(r, t.packet)
	case r.Forward.Kind == ForwardSRv6 || r.Forward.Kind == ForwardPolicy:
		return u.frameInSRv6(r, t.packet)
	case r.Forward.Kind != ForwardGTPU:
		return u.j.drop(FARDrop)
	case t.message == nil:
		end := tunnelEnd{hopLimit: u.j.m.hopLimit, class: r.marking().of(0)}
		return u.j.gtpu().sendGPDU(r.tunnel(), r.RQI, end, t.packet, true, outbound{silent: true})
	case r.Container == srv6.ContainerNone || t.message.container:
		return u.j.gtpu().relay(r.tunnel(), *t.message, r.marking(), outbound{silent: true})
	}
	return u.relayMarked(r, t, outbound{silent: true})
}

// ontoLink lets a frame leave as it is, and learns where it came from.
func (u upf) ontoLink(r *ruleState, frame []byte) Result {
	if from := MAC(frame[6:]); from[0]&1 == 0 && from != (MAC{}) && len(u.j.m.sessions.byLink[r.session]) > 0 {
		u.j.m.sessions.stations[station{r.Forward.Link, from}] = r.session
	}
	a := u.j.m.adjacency[Key{Interface: r.Forward.Link.Interface}]
	if a == nil || a.Pass {
		return u.j.drop(NoRoute)
	}
	if len(frame)-frameHeader > a.MTU {
		return u.j.drop(TooBig)
	}
	tags := slices.Clone(a.VLAN)
	if vlan := r.Forward.Link.VLAN; vlan != 0 && len(tags) < 2 {
		tags = append(tags, VLAN{TPID: 0x8100, ID: vlan})
	}
	out := appendTags(append([]byte{}, frame[:12]...), tags)
	return u.j.forward(append(out, frame[12:]...), a)
}

func (f Filter) takesFrame(frame []byte, d Direction) bool {
	e := f.Frame
	if e == nil {
		return true
	}
	// The ids of the first two tags, by TPID (the first of each).
	tags := map[uint16]uint16{}
	etherType, rest := be.Uint16(frame[12:]), frame[frameHeader:]
	for n := 0; n < 2 && (etherType == 0x8100 || etherType == 0x88a8) && len(rest) >= 4; n++ {
		if _, had := tags[etherType]; !had {
			tags[etherType] = be.Uint16(rest) & 0xfff
		}
		etherType, rest = be.Uint16(rest[2:]), rest[4:]
	}
	var inner []byte
	if etherType == 0x0800 {
		inner, _ = whole(rest, 4)
	} else if etherType == 0x86dd {
		inner, _ = whole(rest, 6)
	}
	tagged := func(want *uint16, tpid uint16) bool {
		id, is := tags[tpid]
		return want == nil || is && id == *want
	}
	return between(MAC(frame[6:]), e.Source, e.SourceTo) && between(MAC(frame), e.Destination, e.DestinationTo) &&
		(e.EtherType == nil || *e.EtherType == etherType) &&
		tagged(e.CTag, 0x8100) && tagged(e.STag, 0x88a8) &&
		(!e.IP || inner != nil && f.matches(inner, d))
}

// between says whether an address is the one that is wanted, or in the range.
func between(a MAC, from, to *MAC) bool {
	switch {
	case from == nil:
		return true
	case to == nil:
		return a == *from
	}
	return bytes.Compare(a[:], from[:]) >= 0 && bytes.Compare(a[:], to[:]) <= 0
}
