// Package wire is PFCP as octets (TS 29.244 sections 7.2 and 8): headers, IEs,
// their values, the reasons why a request is refused, and the IEs of answers.
package wire
