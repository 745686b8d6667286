package observed

import "sync"

// Update is one thing that somebody says.
type Update struct {
	Entry Entry // zero: the update is about several entries
	Apply func(*State)
	// Withdraw is in place of Apply where this node cannot use the entry; nil:
	// the state stays as it is.
	Withdraw func(*State)
	// Refused, if set, is called with the reason then.
	Refused func(error)
}

// Entry names a part of a State.
type Entry struct {
	Kind EntryKind
	Key  string
}

// EntryKind is the kind of an Entry.
type EntryKind string

// The kinds, and the Key of each.
const (
	EntryPath     EntryKind = "candidate path" // name on this node
	EntryNode     EntryKind = "node"           // name
	EntryReach    EntryKind = "prefix"         // prefix
	EntryFamilies EntryKind = "families of"    // address of the BGP peer
	EntrySelf     EntryKind = "this node:"     // part of Self
)

// String is "node node-2".
func (e Entry) String() string { return string(e.Kind) + " " + e.Key }

// Queue holds updates until the agent takes them.
type Queue struct {
	mu      sync.Mutex
	updates []Update
	ready   chan struct{}
}

// NewQueue is an empty one.
func NewQueue() *Queue { return &Queue{ready: make(chan struct{}, 1)} }

// Ready receives after updates came. It is for one receiver.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Push adds an update. It never waits.
func (q *Queue) Push(u Update) {
	q.mu.Lock()
	q.updates = append(q.updates, u)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Take removes and returns all updates in the order in which they came.
func (q *Queue) Take() []Update {
	q.mu.Lock()
	defer q.mu.Unlock()
	updates := q.updates
	q.updates = nil
	return updates
}
