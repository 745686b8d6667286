// Package table writes the maps of the data path.
//
//   - Open opens the tables that a struct describes.
//   - Array is an array map in our memory, written one 64-bit word at a time, so
//     that a packet sees each word either old or new.
//   - Hash is a hash or a trie that knows its contents: it writes only changes, and
//     finds and sweeps the entries of an earlier daemon.
//   - Names stores what indices mean, for a daemon that starts again.
//   - Indexes hands out the entries of an array.
//   - Grace and Periods wait until all packets have left that may still see a
//     removed entry. Grace serves callers who hold the lock meanwhile; Periods
//     lets several callers share one wait.
//
// To hide an entry from packets and use it again:
//
//  1. Delete the entries that lead to it.
//  2. Call Indexes.Retire: the index becomes free after a grace period.
//
// Only Periods has a lock; the owner locks the other types. The package
// starts no goroutine.
package table
