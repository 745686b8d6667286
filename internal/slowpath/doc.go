// Package slowpath does for the data path what takes more than a packet at a
// time, or more room: it puts fragments together (RFC 791, RFC 8200), cuts IPv4
// packets that are too big, and sends ICMP errors and GTP-U Error Indications.
//
// What comes back whole, or cut, goes through the data path again, as if it had
// been received so. Errors are the node's own packets: those about a packet as it was
// received go back to where it came from, those about one that was inside go by
// the table that it was looked up in. Frames whose next hop nobody has asked for
// wait here until the kernel has.
package slowpath
