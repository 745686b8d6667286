// Package sid owns local SIDs (RFC 8986, RFC 9433): table local_sid, the trie
// sid_by_prefix and the SIDs' counters.
//
// Packets find a SID by index where a locator leads there (settings.Book), and by
// prefix otherwise. A change of more than one word goes to another entry, which
// sid_by_prefix then leads to, so that no packet sees a half of it.
//
//  1. Put the policy that a SID names.
//  2. Put the SID. Binding SIDs are put by their policy (PutBinding), those of the
//     UPF by PutForSessions.
//  3. Sweep, once all are put, removes those of an earlier daemon.
//
// The data path's lock guards the Table. Put, PutForSessions, Delete,
// DeleteForSessions and Counter take it; the other methods expect the caller to hold
// it.
package sid
