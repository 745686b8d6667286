// Package pod owns this node's pods: table pod, the targets of their addresses, and
// the program on the host's end of their veth.
//
//  1. Put each pod; a second Put changes its addresses.
//  2. Sweep, once all are put, removes those of an earlier daemon.
//
// The data path's lock guards the Table. Put, Delete and List take it; Sweep expects
// the caller to hold it.
package pod
