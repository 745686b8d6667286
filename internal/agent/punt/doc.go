// Package punt handles the packets that the data path hands up: those that wait for
// a neighbour, that are fragments, that want an ICMP error, or that the user plane
// function buffers.
//
// Its user makes a Handler (New), runs it in a goroutine (Run) and calls Retry when
// the links change. A Handler needs no lock: the slow path and the UPF lock
// themselves, and Counters may be called at any time.
package punt
