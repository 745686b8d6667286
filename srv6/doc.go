// Package srv6 models SRv6 as Culvert speaks it: local SIDs and the behaviours
// bound to them (RFC 8986, RFC 9800, RFC 9433), the Segment Routing Header
// (RFC 8754), and the addresses and arguments of the mobile user plane.
//
// The behaviour table (Table, Lookup) has one row for each behaviour. The
// command line, the configuration's validation and docs/reference/behaviors.md read it,
// so that a new behaviour is described in one place.
//
// The package imports the standard library only.
package srv6
