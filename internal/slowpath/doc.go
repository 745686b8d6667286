// Package slowpath does what the data path cannot do within one packet: it reassembles
// fragments (RFC 791, RFC 8200), fragments IPv4 packets that are too big, and sends
// ICMP errors and GTP-U Error Indications. It also holds frames until the kernel has
// resolved their next hop.
//
// Reassembled packets and fragments go through the data path again, as if they had been
// received like that. Errors are packets of the node itself. An error about a packet as
// it was received goes back to where the packet came from. An error about an inner
// packet is routed by the table in which that was looked up.
//
// The user
//
//  1. calls New, and Run in a goroutine;
//  2. calls Handle for each packet that the data path hands up;
//  3. calls Retry when the network changes.
//
// Handle, Retry and Expire may be called from several goroutines. One mutex guards the
// unfinished datagrams, another one the waiting frames.
package slowpath
