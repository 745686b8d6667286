// Package overlay is what the nodes of a cluster tell each other, and what a
// node makes of it: SIDs, SR policies, steering and the kernel's routes.
package overlay

import (
	"net/netip"
)

// Node is what a node of the cluster tells the others.
type Node struct {
	Name string `json:"name"`
	// Address of the underlay, IPv6: outer source, and endpoint of the policies
	// to the node.
	Address netip.Addr `json:"address,omitzero"`
	// Addresses are others that the node has, of either family: what pods send to
	// them stays in the cluster, and is not masqueraded.
	Addresses []netip.Addr   `json:"addresses,omitempty"`
	Prefixes  []netip.Prefix `json:"prefixes,omitempty"` // of its pods
	Locator   netip.Prefix   `json:"locator,omitzero"`
	// IPv4 and IPv6 are the segment lists to its End.DT4 and End.DT6: one
	// segment or two.
	IPv4 []netip.Addr `json:"ipv4,omitempty"`
	IPv6 []netip.Addr `json:"ipv6,omitempty"`
	// BSID4 and BSID6 are binding SIDs that it suggests for these policies.
	BSID4 netip.Addr `json:"bsid4,omitzero"`
	BSID6 netip.Addr `json:"bsid6,omitzero"`
}

// Reach says that what is in Prefix is behind the node with Address.
type Reach struct {
	Prefix  netip.Prefix `json:"prefix"`
	Address netip.Addr   `json:"address"`
	From    netip.Addr   `json:"from,omitzero"` // the peer that told it
	// Segments lead to a SID of the prefix's own, of a layer-3 service (RFC
	// 9252); without, the policies to Address do.
	Segments []netip.Addr `json:"segments,omitempty"`
}

// Rival is a prefix that a node tells of, and that another one's is used of.
type Rival struct {
	Reach
	Owner netip.Addr // whose is used; not valid: this node's
	Why   string
}

// Colors of the policies to a node, by what they carry.
const (
	ColorIPv4 = 4
	ColorIPv6 = 6
)
