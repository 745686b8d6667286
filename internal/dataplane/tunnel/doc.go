// Package tunnel owns GTP-U tunnels (TS 29.281): the table tunnel (Entries) and
// tunnel_by_teid (Table).
//
// An entry either receives, found by its TEID, or sends, found by steering. Where a
// TEID's low 24 bits lead to a free entry, that is the one; other TEIDs are found by
// tunnel_by_teid. Tunnels that switch to another hold a copy of what it sends.
//
// The data path's lock guards both types. Put, Delete and Counters take it; the
// other methods expect the caller to hold it. Package dataplane sets Steering, since
// that imports this package.
package tunnel
