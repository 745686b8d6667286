// Package table holds the ways in which the daemon writes the data path's maps.
//
//   - Array is an array map in our memory, written one 64-bit word at a time, so
//     that a packet sees each word either old or new.
//   - Hash is a hash or a trie whose contents we know, so that nothing is written
//     where nothing changes, and entries of an earlier daemon are found and swept.
//   - Names says what indices mean, for a daemon that starts again.
//   - Indexes hands out the entries of an array.
//   - Grace and Periods wait until packets have left that may still see what was
//     taken away. Grace serves callers who hold the lock meanwhile; Periods lets
//     several callers share one wait.
//
// Who takes an entry away from packets does it in this order:
//
//  1. Delete what leads to it.
//  2. Indexes.Retire: the index comes back after a grace period.
//
// None of the types but Periods has a lock: their owner has one. The package
// starts no goroutine.
package table
