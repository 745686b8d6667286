// Package spread has packets handled by the CPU that their UE, or their flow, belongs
// to, instead of the one that received them (docs/adr/0021-packets-over-cpus.md).
//
// A packet hashes to a bucket, a bucket is at a place: a CPU's queue, or the CPU that
// received the packet. A bucket moves with the packet before which no other of it is on
// its way: nothing is lost, and nothing overtakes. Each CPU has a queue in either of two
// maps, so that a new build's program takes over in the same way.
//
// All methods may be called concurrently.
package spread
