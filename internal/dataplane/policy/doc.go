// Package policy owns SR policies (RFC 9256): their entries in sr_policy, their
// segment lists and the counters of these.
//
// A policy keeps its index for as long as it exists; local SIDs, steering, tunnels
// and sessions refer to it and count themselves as users (package ref). A change
// writes new segment lists first and then switches sr_policy to them word by word,
// so that every packet finds an old or a new list.
//
// The data path's lock guards the Table. Put, Delete and Counters take it; the other
// methods expect the caller to hold it. Package dataplane sets SIDs, Changed and
// Reap, since these packages import this one.
package policy
