// Package netpol says what NetworkPolicies (networking.k8s.io/v1) mean for the pods of a
// node: who a peer is, and what each pod takes from it and may send to it. It knows
// neither the API server nor the data path: internal/kube tells it what the cluster has,
// internal/dataplane/netpol puts the result into tables.
//
// A policy only ever allows. A pod that no policy selects for a direction is not isolated
// in it: everything passes. A pod that one selects takes what any of its policies allows.
//
// Its user keeps a State, has a Compiler make Desired of it after each change, gives that to
// the data path, and calls Compiler.Applied once the data path has it. Explain answers from
// the same State which rule decides.
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
	// Unknown are those of Pods that the state does not have. They are isolated from
	// everybody.
	Unknown []int
	// Prefixes is how many prefixes the policies of each namespace with pods here have, without
	// closed namespaces. Exceeded are those that have too many.
	Prefixes map[string]int
	Exceeded []*ExceededError
}

// Isolation is what policies say of a pod. A direction without a list is not isolated.
type Isolation struct {
	Ingress, Egress *List
	Namespace       string
}

// Ports are what a rule allows of a peer's packets: those of one protocol, to one of the
// ports from First to Last at the end that did not begin the flow.
type Ports struct {
	// Protocol is TCP (6), UDP (17) or SCTP (132); 0: everything, ICMP too. Then First
	// and Last are 0 and 65535.
	Protocol    uint8
	First, Last uint16
}

// Allow says whether the ports have one of a protocol.
func (p Ports) Allow(protocol uint8, port uint16) bool {
	return p.Protocol == 0 || p.Protocol == protocol && p.First <= port && port <= p.Last
}
