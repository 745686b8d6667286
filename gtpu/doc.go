// Package gtpu models GTP-U (TS 29.281): tunnels, views of its header and
// extension headers, the PDU Session Container (TS 38.415), and the messages
// of path and tunnel management.
//
// It imports the standard library and package srv6 only.
package gtpu
