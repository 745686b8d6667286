// Package lab is `culvert lab`: small networks of network namespaces on one
// machine, with the culvert binary, the kernel's own SRv6 routers, FRR and SMFs
// in them, and checks by real traffic.
//
// A topology (topologies/*.yaml) says which nodes and links there are and
// what is checked. Up builds it, Down takes it away, Run does both around the
// checks. What a lab made is written to a state file before it is made, and
// every namespace carries a mark, so that Down finds all of it after a crash
// and nothing that is not the lab's is ever touched.
//
// The daemon is run as a process and looked at through its command line: what
// measures shares no code with what it measures. The network is built with
// iproute2, in whose grammar routes are written in the topologies.
package lab
