// Package connectivity tests the network of a cluster from inside. Pods on the
// nodes, and the nodes themselves, send real packets to each other, to Services and
// along SR policies; the package reports what arrived. It reaches the cluster
// through the interface Cluster, which internal/kube/operator implements.
package connectivity
