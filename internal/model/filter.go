package model

import (
	"net/netip"
	"slices"
)

// tpdu is a packet that meets the rules of a session.
type tpdu struct {
	packet  []byte   // on arrival, cut to its own length
	l3      int      // where it starts in the frame
	qfi     uint8    // of the G-PDU's container
	message *message // the G-PDU, on the receive side
	// outer is the traffic class of a header that was taken off on the way to
	// the send side, -1 where there was none.
	outer int
	frame bool // packet is an Ethernet frame
	bySID bool // a SID took it out and led it to its session
	// anyQFI: nothing tells what QFI it has.
	anyQFI bool
}

// linkLocal is where a UE with an IPv6 prefix may send from besides.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// sameFewSources says whether all rules have the same sources, few enough for
// step 2 of section 7; otherwise they are a part of step 3.
func sameFewSources(rules []*ruleState) bool {
	first := rules[0].Sources
	counts := map[bool]int{}
	for _, p := range first {
		if !isUE(p) {
			return false
		}
		counts[p.Addr().Is4()]++
	}
	missing := func(of, in []netip.Prefix) bool {
		return slices.ContainsFunc(of, func(p netip.Prefix) bool { return !slices.Contains(in, p) })
	}
	return len(first) > 0 && counts[true] <= 1 && counts[false] <= 1 &&
		!slices.ContainsFunc(rules, func(r *ruleState) bool { return missing(r.Sources, first) || missing(first, r.Sources) })
}

// fromUE says whether a T-PDU's source is one of a rule's.
func (r *ruleState) fromUE(source netip.Addr) bool {
	has6 := slices.ContainsFunc(r.Sources, func(p netip.Prefix) bool { return p.Addr().Is6() })
	return within(r.Sources, source) || has6 && linkLocal.Contains(source)
}

// classify is steps 2 and 3 of section 7: the rule that takes the packet. A frame's
// source is no UE's address.
func classify(rules []*ruleState, t tpdu) (*ruleState, Reason) {
	var source netip.Addr
	if !t.frame {
		source, _ = addresses(t.packet)
	}
	received := (t.message != nil || t.bySID && !t.anyQFI) && !t.frame
	checked := received && sameFewSources(rules)
	if checked && !rules[0].fromUE(source) {
		return nil, UESource
	}
	for _, r := range rules {
		own := !received || checked || len(r.Sources) == 0 || r.fromUE(source)
		if !own || len(r.QFIs) > 0 && !t.anyQFI && !slices.Contains(r.QFIs, t.qfi) {
			continue
		}
		matches := Filter.matches
		if t.frame {
			matches = Filter.takesFrame
		}
		if len(r.Filters) == 0 || slices.ContainsFunc(r.Filters, func(f Filter) bool { return matches(f, t.packet, r.Direction) }) {
			return r, ""
		}
	}
	return nil, NoPDR
}

// matches says whether an SDF filter takes a packet of that direction.
func (f Filter) matches(p []byte, d Direction) bool {
	local, remote := addresses(p)
	if d == Downlink {
		local, remote = remote, local
	}
	in := func(want netip.Prefix, a netip.Addr) bool { return !want.IsValid() || want.Contains(a) }
	protocol, upper := upperLayer(p)
	if version(p) == 4 && be.Uint16(p[6:])&0x1fff != 0 { // a later fragment
		upper = nil
	}
	return in(f.Remote, remote) && in(f.Local, local) &&
		class(p)&f.ToSMask == f.ToS&f.ToSMask &&
		(f.Protocol == nil || *f.Protocol == protocol) &&
		(f.FlowLabel == nil || version(p) == 6 && v6(p).flowLabel() == *f.FlowLabel) &&
		f.matchesPorts(protocol, upper, d) &&
		// The Security Parameters Index (RFC 4302, 4303).
		(f.SPI == nil || protocol == protoESP && len(upper) >= 4 && be.Uint32(upper) == *f.SPI ||
			protocol == protoAH && len(upper) >= 8 && be.Uint32(upper[4:]) == *f.SPI)
}

func (f Filter) matchesPorts(protocol uint8, upper []byte, d Direction) bool {
	unlimited := func(p *[2]uint16) bool { return p == nil || *p == [2]uint16{0, 65535} }
	if unlimited(f.RemotePorts) && unlimited(f.LocalPorts) {
		return true
	}
	if protocol != protoTCP && protocol != protoUDP && protocol != protoSCTP || len(upper) < 4 {
		return false
	}
	local, remote := be.Uint16(upper), be.Uint16(upper[2:])
	if d == Downlink {
		local, remote = remote, local
	}
	in := func(p *[2]uint16, port uint16) bool { return p == nil || p[0] <= port && port <= p[1] }
	return in(f.RemotePorts, remote) && in(f.LocalPorts, local)
}
