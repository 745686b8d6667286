package overlay

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/srv6"
)

// Self is this node.
type Self struct {
	Name      string
	Address   netip.Addr
	Former    netip.Addr   // which it sends from until the others know Address; not valid: they do
	Addresses []netip.Addr // others
	Prefixes  []netip.Prefix
	Locator   netip.Prefix
	// Double says that lists have a segment for the node before the segment that
	// decapsulates. The latter need not be routed.
	Double bool
	// DT4, DT6 and DT46 are configured SIDs, in place of those in the locator. DT46
	// stands for DT4 or DT6 where one is missing.
	DT4, DT6, DT46 netip.Addr
	Tenants        []Tenant
}

// Functions in a node's locator. They are the same on all nodes, so that the locator
// is all that the others need to know.
const (
	FunctionEnd  = 0x1 // for paths through the node
	FunctionDT4  = 0x4
	FunctionDT6  = 0x6
	FunctionBSID = 0xb0 // and the color
	// FunctionProbe is where this node's probes of segment lists return to.
	FunctionProbe = 0xf
)

// functionBits is the length of a function, behind the locator.
const functionBits = 16

// mainTable is the kernel's main table, which holds the routes to pods.
const mainTable = 254

// sid returns the SID of a function in a locator.
func sid(locator netip.Prefix, function uint16) netip.Addr {
	b := locator.Masked().Addr().As16()
	for i := range functionBits {
		if function>>(functionBits-1-i)&1 == 1 {
			bit := locator.Bits() + i
			b[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	return netip.AddrFrom16(b)
}

// families says which address families the prefixes have.
func families(prefixes []netip.Prefix) (ipv4, ipv6 bool) {
	is4 := func(p netip.Prefix) bool { return p.Addr().Is4() }
	return slices.ContainsFunc(prefixes, is4), slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return !is4(p) })
}

// segmentList returns the segments to a SID of the node with an address. It is nil
// without a SID.
func segmentList(node, sid netip.Addr, double bool) []netip.Addr {
	switch {
	case !sid.IsValid():
		return nil
	case double:
		return []netip.Addr{node, sid}
	}
	return []netip.Addr{sid}
}

// Complete fills in what follows from a node's locator: the segment lists and binding
// SIDs for the families of its pods, in the single or the double form.
func Complete(n Node, double bool) Node {
	if !n.Locator.IsValid() {
		return n
	}
	ipv4, ipv6 := families(n.Prefixes)
	if ipv4 && len(n.IPv4) == 0 {
		n.IPv4 = segmentList(n.Address, sid(n.Locator, FunctionDT4), double)
	}
	if ipv6 && len(n.IPv6) == 0 {
		n.IPv6 = segmentList(n.Address, sid(n.Locator, FunctionDT6), double)
	}
	if ipv4 && !n.BSID4.IsValid() {
		n.BSID4 = sid(n.Locator, FunctionBSID|ColorIPv4)
	}
	if ipv6 && !n.BSID6.IsValid() {
		n.BSID6 = sid(n.Locator, FunctionBSID|ColorIPv6)
	}
	return n
}

// Node returns what this node advertises to the others.
func (s Self) Node() Node {
	n := Node{Name: s.Name, Address: s.Address, Former: s.Former, Addresses: s.Addresses, Prefixes: s.Prefixes, Locator: s.Locator}
	ipv4, ipv6 := families(s.Prefixes)
	if ipv4 {
		n.IPv4 = segmentList(s.Address, cmp.Or(s.DT4, s.DT46), s.Double)
	}
	if ipv6 {
		n.IPv6 = segmentList(s.Address, cmp.Or(s.DT6, s.DT46), s.Double)
	}
	return Complete(n, s.Double)
}

// Source is the outer source address of packets to other nodes.
func (s Self) Source() netip.Addr {
	if s.Former.IsValid() {
		return s.Former
	}
	return s.Address
}

// SIDs returns this node's SIDs. Those in the locator are prefixes, which the data path
// finds by index.
func (s Self) SIDs() []srv6.LocalSID {
	n := s.Node()
	var out []srv6.LocalSID
	add := func(list []netip.Addr, behavior srv6.Behavior) {
		if len(list) == 0 {
			return
		}
		v := srv6.LocalSID{SID: s.sidPrefix(list[len(list)-1]), Behavior: behavior, Table: mainTable}
		if list[len(list)-1] == s.DT46 {
			v.Behavior = srv6.EndDT46
		}
		if !slices.ContainsFunc(out, func(o srv6.LocalSID) bool { return o.SID == v.SID }) {
			out = append(out, v)
		}
	}
	add(n.IPv4, srv6.EndDT4)
	add(n.IPv6, srv6.EndDT6)
	switch {
	case len(out) == 0:
	case s.Double:
		// Its own address: packets that end here still belong to the node.
		out = append(out, srv6.LocalSID{SID: netip.PrefixFrom(s.Address, s.Address.BitLen()), Behavior: srv6.End, AllowUpperLayer: true})
	case s.Locator.IsValid() && s.Locator.Contains(out[0].SID.Addr()): // else nobody routes the locator
		out = append(out, srv6.LocalSID{SID: s.sidPrefix(sid(s.Locator, FunctionEnd)), Behavior: srv6.End})
	}
	return append(out, s.tenantSIDs()...)
}

// End returns the SID for paths through a node. It is invalid if unknown.
func (n Node) End() netip.Addr {
	for _, list := range [][]netip.Addr{n.IPv4, n.IPv6} {
		switch {
		case len(list) == 2 && list[0] == n.Address:
			return n.Address
		case len(list) == 1 && n.Locator.IsValid() && n.Locator.Contains(list[0]):
			return sid(n.Locator, FunctionEnd)
		}
	}
	return netip.Addr{}
}

// ProbeSID is where this node's probes of segment lists return to. It is invalid where no
// locator is routed here.
func (s Self) ProbeSID() netip.Addr {
	if !s.Locator.IsValid() || s.Double {
		return netip.Addr{}
	}
	return sid(s.Locator, FunctionProbe)
}

// sidPrefix returns LOC:FUNC of a SID in the locator, or else the whole address.
func (s Self) sidPrefix(a netip.Addr) netip.Prefix {
	if s.Locator.IsValid() && s.Locator.Contains(a) {
		if p := netip.PrefixFrom(a, s.Locator.Bits()+functionBits); p.Masked() == p {
			return p
		}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// Missing returns what the node lacks to be a member, or "".
func (s Self) Missing() string {
	switch {
	case s.Name == "":
		return "the node's name"
	case !s.Address.IsValid():
		return "an IPv6 address of an uplink"
	case len(s.Prefixes) == 0:
		return "prefixes for pods"
	case !s.Locator.IsValid() && !s.DT4.IsValid() && !s.DT6.IsValid() && !s.DT46.IsValid():
		return "a locator"
	}
	return ""
}
