// Package kube makes a node a member of a cluster by the Kubernetes API: it
// hears of the other nodes and of candidate paths for this one, and tells what
// this node is and what became of the paths. client-go speaks the protocol; no
// type of its leaves this folder.
//
// What is watched does not grow with the cluster, but for the metadata of its
// Nodes: this node's own Node, its own ConfigMap, and those SRv6Policies that
// name it, or choose nodes by labels. Nothing here is in a packet's way, and an
// API server that is away, slow or in conflict takes back nothing that was told.
package kube
