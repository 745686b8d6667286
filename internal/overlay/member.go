package overlay

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Member is what is inside the SR domain of a cluster: the address of a node, from which it
// sends to SIDs of the others, or a prefix of SIDs, which pods must not reach.
type Member struct {
	Prefix netip.Prefix
	SIDs   bool
}

// String is the member in messages: "2001:db8::1/128", or "SIDs fc00:0:1::/48".
func (m Member) String() string {
	if m.SIDs {
		return "SIDs " + m.Prefix.String()
	}
	return m.Prefix.String()
}

// Members are this node, the others, whoever advertises layer-3 services, addresses that they had
// until a moment ago, configured BGP peers, and the SIDs of all of them, of the pool of locators (if there is one) and of other
// segment lists. An address of a node that is a SID, too, is a node's: pods may reach nodes.
// Nodes of which nothing is used are none.
func (w *Wanted) Members(self Self, bgp []netip.Addr, pool netip.Prefix, lists []srpolicy.SegmentList) []Member {
	m := members{kind: map[netip.Prefix]bool{}}
	peers := slices.DeleteFunc(slices.Clone(w.Peers), func(p Peer) bool { return p.Unused })
	for _, a := range slices.Concat([]netip.Addr{self.Address, self.Former}, bgp, w.Left) {
		m.add(Member{Prefix: hostPrefix(a)})
	}
	for _, p := range peers {
		m.add(Member{Prefix: hostPrefix(p.Address)})
		m.add(Member{Prefix: hostPrefix(p.Former)})
	}
	m.addSIDs(pool)
	m.addSIDs(self.Locator)
	for _, p := range peers {
		m.addSIDs(p.Locator)
	}
	for _, s := range self.SIDs() {
		m.addSIDs(s.SID)
	}
	for _, p := range peers {
		m.addList(p.IPv4)
		m.addList(p.IPv6)
	}
	for _, p := range w.Policies {
		m.addLists(p.SegmentLists)
	}
	for _, p := range w.Paths {
		m.addLists(p.SegmentLists)
	}
	m.addLists(lists)
	return m.list
}

// members are those that were added, each once.
type members struct {
	list []Member
	kind map[netip.Prefix]bool // whether it is one of SIDs
	bits []int                 // lengths of the prefixes of SIDs
}

func (m *members) add(one Member) {
	one.Prefix = one.Prefix.Masked()
	if _, there := m.kind[one.Prefix]; there || !one.Prefix.IsValid() || !one.Prefix.Addr().Is6() {
		return
	}
	m.kind[one.Prefix] = one.SIDs
	m.list = append(m.list, one)
}

// addSIDs adds SIDs that are in no prefix of SIDs yet.
func (m *members) addSIDs(p netip.Prefix) {
	if !p.IsValid() {
		return
	}
	for _, bits := range m.bits {
		if around, err := p.Addr().Prefix(bits); err == nil && bits <= p.Bits() && m.kind[around] {
			return
		}
	}
	m.add(Member{p, true})
	if !slices.Contains(m.bits, p.Bits()) {
		m.bits = append(m.bits, p.Bits())
	}
}

func (m *members) addList(segments []netip.Addr) {
	for _, a := range segments {
		m.addSIDs(hostPrefix(a))
	}
}

func (m *members) addLists(lists []srpolicy.SegmentList) {
	for _, l := range lists {
		m.addList(l.Segments)
	}
}
