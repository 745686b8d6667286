// Package netpol says what NetworkPolicies (networking.k8s.io/v1) mean for the pods of a
// node: who a peer is, and what each pod takes from it and may send to it. It knows
// neither the API server nor the data path: internal/kube tells it what the cluster has,
// internal/dataplane/netpol puts the result into tables.
//
// A policy only ever allows. A pod that no policy selects for a direction is not isolated
// in it: everything passes. A pod that one selects takes what any of its policies allows.
package netpol

import "net/netip"

// Peer is an address, or a prefix, that identities are known by. Of several prefixes that
// hold an address the longest counts.
type Peer struct {
	// Tenant is the id of the tenant whose addresses they are; 0: the cluster's.
	Tenant uint8
	Prefix netip.Prefix
}

// Desired is what the data path of a node is to hold.
type Desired struct {
	// Peers has everybody that a rule may mean: pods of all nodes, and the prefixes of
	// ipBlocks and their exceptions. Others are nobody's identity, and only rules for
	// everybody allow them.
	Peers map[Peer]*Identity
	// Pods are this node's, by the index of the host's end of their veth.
	Pods map[int]Isolation
}

// Isolation is what policies say of a pod. A direction without a list is not isolated.
type Isolation struct {
	Ingress, Egress *List
}

// Ports are what a rule allows of a peer's packets: those of one protocol, to one of the
// ports from First to Last at the end that did not begin the flow.
type Ports struct {
	// Protocol is TCP (6), UDP (17) or SCTP (132); 0: everything, ICMP too. Then First
	// and Last are 0 and 65535.
	Protocol    uint8
	First, Last uint16
}

// Identity is all that a rule can know a peer by: a pod's namespace, labels and named
// ports, and the longest prefix of an ipBlock that holds its address.
type Identity struct {
	key string
}

// Key is the same for identities that are the same, and for no others.
func (i *Identity) Key() string { return i.key }

// List is what the policies of a pod allow in one direction, together.
type List struct {
	key string
}

// Key is the same for lists that allow the same, and for no others.
func (l *List) Key() string { return l.key }

// Allows says what packets of a peer (ingress) or to it (egress) are allowed. Without an
// identity it is what everybody is allowed.
func (l *List) Allows(*Identity) []Ports { return nil }
