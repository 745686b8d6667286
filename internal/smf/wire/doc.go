// Package wire reads PFCP messages (TS 29.244) as octets: headers, IEs and what every
// answer is asked for. go-pfcp reads the rest.
package wire
