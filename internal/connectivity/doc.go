// Package connectivity tests the network of a cluster from inside: it has pods on
// the nodes, and nodes themselves, send real packets to each other, to Services
// and along SR policies, and says what arrived. What a cluster is asked for is an
// interface; internal/kube/operator has it.
package connectivity
