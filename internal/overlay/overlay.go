// Package overlay computes the pod overlay of a cluster: what a node advertises to the
// others, and the SIDs, SR policies, steering entries and kernel routes that it needs
// to reach them.
//
// Self describes this node, Cluster what it has learned about the others. Remote and
// Self.SIDs are pure functions of these values. The package has no state, no locks
// and no goroutines.
package overlay

import (
	"net/netip"
)

// Node is what a node of the cluster advertises to the others.
type Node struct {
	Name string `json:"name"`
	// Address is the node's IPv6 address in the underlay: the outer source, and the
	// endpoint of the policies to the node.
	Address netip.Addr `json:"address,omitzero"`
	// Addresses are the node's other addresses, of either family. What pods send to
	// them stays in the cluster and is not masqueraded.
	Addresses []netip.Addr   `json:"addresses,omitempty"`
	Prefixes  []netip.Prefix `json:"prefixes,omitempty"` // of its pods
	Locator   netip.Prefix   `json:"locator,omitzero"`
	// IPv4 and IPv6 are the segment lists to its End.DT4 and End.DT6, of one or two
	// segments.
	IPv4 []netip.Addr `json:"ipv4,omitempty"`
	IPv6 []netip.Addr `json:"ipv6,omitempty"`
	// BSID4 and BSID6 are the binding SIDs that it suggests for the policies to it.
	BSID4 netip.Addr `json:"bsid4,omitzero"`
	BSID6 netip.Addr `json:"bsid6,omitzero"`
}

// Reach says that Prefix is behind the node with Address.
type Reach struct {
	Prefix  netip.Prefix `json:"prefix"`
	Address netip.Addr   `json:"address"`
	From    netip.Addr   `json:"from,omitzero"` // the peer that advertised it
	// Segments lead to the prefix's own SID, of a layer-3 service (RFC 9252). Without
	// them packets take the policies to Address.
	Segments []netip.Addr `json:"segments,omitempty"`
}

// Rival is an advertised prefix that is not used, because another node has it.
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
