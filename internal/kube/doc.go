// Package kube makes a node a member of a cluster through the Kubernetes API. It
// observes the other nodes and the candidate paths for this node, publishes this
// node, and reports the state of its paths. client-go speaks the protocol; none of
// its types leaves this directory.
//
// To use it, call Run of a Watcher with a Handler, which receives what changes.
// Publish and SetVerdicts may be called at any time.
//
// An Engine is not a node: it reads which nodes there are, writes candidate paths for
// them, and shares a Lease with other engines.
//
// What a node watches does not grow with the cluster, except for the metadata of
// Nodes, and for what NetworkPolicies depend on, if it enforces them: all pods, of which it
// keeps some hundred octets each, namespaces and policies. Otherwise it watches its own Node, its own ConfigMap, the SRv6Policies that name
// it or choose nodes by labels, traffic classes and their claims with the endpoints of the
// Services in them, and the metadata of its own pods. Packets never wait for this package. While the API
// server is away, slow or reports a conflict, everything observed stays valid.
package kube
