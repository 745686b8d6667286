// Package store owns the sessions: what the SMF said last, what was used since,
// and the journal that keeps both over a restart.
//
// A Store also keeps the state of the N4 server, and the index of each slice.
//
// Memory: a million sessions are packed outside of Go's heap (arena.go), because
// the collector would look at each of them time and again.
//
// Locks: an Entry's lock guards everything of one session, and is held while it
// changes in the data path. A Store's own locks are held for a lookup only, and
// may be taken while an Entry is locked, not the other way round. The package
// starts no goroutines.
package store
