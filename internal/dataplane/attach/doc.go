// Package attach puts the data path's programs on interfaces: XDP the gateway's and
// the UPF's program, TCX the programs for pods, which are loaded when the first pod
// or uplink comes.
//
// With a pin.Dir each link is pinned, so that it outlives the daemon; TakeOver lets
// the links of an earlier daemon run this build's program.
//
// The data path's lock guards both types. Attach, Detach, Attached and the methods
// for uplinks and the entry take it; the other methods expect the caller to hold it.
package attach
