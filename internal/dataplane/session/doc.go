// Package session writes the sessions of a UPF into the data path's tables: the
// rules that packets meet behind a TEID, a UE's address or a link, with their
// filters, meters, limits and forwardings.
//
// A change of a session has two steps. Planner.Plan compares the tables with the
// session and returns the writes in their order; it writes nothing.
// Sessions.Apply does these writes. So tests check a plan in memory, and one list
// states the order that packets depend on:
//
//  1. What no packet reaches: meters, runs of filters, entries of rules that move.
//  2. Keys that lead to entries which lead nowhere yet. Only this can fail.
//  3. Heads that the session no longer has, unless they are rules.
//  4. Each rule, where it is, by one word.
//  5. Each head, by one word: first those that are rules, last those that were.
//  6. Heads that were rules and that the session no longer has.
//  7. Where the sources of a head turn: a wait until no packet sees the old ones,
//     then the new sources.
//
// A packet meets each rule as it was or as it will be. A daemon that dies after
// any write leaves tables that the next one recovers from.
//
// To use the package:
//
//  1. Open opens the tables, which may hold sessions of an earlier daemon.
//  2. Put each session. It takes over the entries that its keys lead to.
//  3. Sweep removes the sessions that nobody put.
//  4. Put, SetLimits, Usage, Remove, as the SMF asks.
//  5. Close, before the tables go.
//
// What a session gives up goes through Sessions.later: packets may still see it,
// so that it is free only after a grace period. A goroutine settles it
// (settleLater); it ends when nothing is left to settle. Plan returns a busyError
// where it needs such an entry; Put waits for that period and plans again.
//
// The lock is that of the whole data path, given to Open. Exported methods take it
// unless they say that the caller holds it.
package session
