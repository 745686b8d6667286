// Package journal keeps records on disk so that they survive the process.
//
// The directory holds a snapshot, N.snapshot, and the log of what came after it,
// N.log. While a new snapshot is written there are two logs, N.log and N+1.log.
// What is damaged does not hide what comes behind it: reader goes on at the next
// record, and knows which session lost one (docs/adr/0018-a-journal-that-survives-its-disk.md).
// A record is in the kernel's page cache before Append returns: killing the
// daemon does not lose it, a reboot does (docs/adr/0008-session-journal.md).
//
// The user
//
//  1. calls Open, which replays the records of an earlier process, and KeepRoom;
//  2. calls Append for each change, before it answers the request;
//  3. calls Renew when Grown says so, with a record of everything that exists.
//
// The package starts no goroutines. Journal's methods may be called from any.
package journal
