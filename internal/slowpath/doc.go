// Package slowpath does for the data path what takes more than a packet at a
// time, or more room: it puts fragments together (RFC 791, RFC 8200), cuts IPv4
// packets that are too big, and sends ICMP errors and GTP-U Error Indications.
//
// What comes back whole, or cut, goes through the data path again, as if it had
// been received so; errors are the node's own packets, which the kernel routes.
package slowpath
