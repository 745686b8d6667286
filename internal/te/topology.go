package te

import (
	"net/netip"
	"slices"
	"time"
)

// Topology is a network of SRv6 nodes as an IGP sees it.
type Topology struct {
	Nodes []Node `json:"nodes"`
	Links []Link `json:"links"`
}

// Node is a router, or a node of a cluster.
type Node struct {
	Name string `json:"name"`
	// SID is the node's End SID: a list visits the node by it. A node without one carries
	// traffic, and is no waypoint.
	SID netip.Addr `json:"sid,omitzero"`
	// Locator holds the node's SIDs; the SID of a policy's endpoint is in it.
	Locator netip.Prefix `json:"locator,omitzero"`
	// Addresses are others of the node: endpoints of policies, and SIDs outside of its locator.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// MaxSegments is how many segments the node pushes as a headend (RFC 8476: Maximum SID
	// Depth); 0: as many as Culvert does.
	MaxSegments int `json:"max_segments,omitempty"`
}

// Link is one direction of a link. It is used only where the topology has the other
// direction too.
type Link struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Name distinguishes links between the same nodes.
	Name string `json:"name,omitempty"`
	// Metric is what the IGP's shortest paths minimise, at least 1.
	Metric uint32 `json:"metric"`
	// Capacity is in bit/s.
	Capacity float64 `json:"capacity"`
	// Delay is in one direction.
	Delay time.Duration `json:"delay,omitempty"`
	// Affinity is the administrative group: 32 bits that a class asks for or avoids
	// (RFC 9552: TLV 1088).
	Affinity uint32 `json:"affinity,omitempty"`
	// SRLG are the groups of links that fail together (RFC 9552: TLV 1096).
	SRLG []uint32 `json:"srlg,omitempty"`
	// SID is the End.X SID of this direction at From.
	SID netip.Addr `json:"sid,omitzero"`
}

// Direction names a link's direction: FROM-TO, with :NAME where it has one.
func (l Link) Direction() string {
	if l.Name != "" {
		return l.From + "-" + l.To + ":" + l.Name
	}
	return l.From + "-" + l.To
}

// Owner is the name of the node that an address leads to: the one whose SID or address it is, or
// whose locator has it, the longest where several do. Empty: no node.
func (t Topology) Owner(a netip.Addr) (name string) {
	longest := -1
	for _, n := range t.Nodes {
		if a.IsValid() && (n.SID == a || slices.Contains(n.Addresses, a)) {
			return n.Name
		}
		if n.Locator.Contains(a) && n.Locator.Bits() > longest {
			name, longest = n.Name, n.Locator.Bits()
		}
	}
	return name
}

// LeftOut is a part of a network that a topology does not have, and why.
type LeftOut struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// String says both.
func (l LeftOut) String() string { return l.What + " is left out: " + l.Why }
