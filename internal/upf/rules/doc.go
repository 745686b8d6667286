// Package rules turns a session's PDRs, FARs and QERs into the rules of the data
// path. It is a pure function: it changes nothing, and looks at nothing but its
// arguments.
//
// A rule has the ID of its PDR. A PDR whose packets come over N9 has a second
// rule, for what comes by SRv6 instead of GTP-U: PDR finds the PDR of either.
package rules
