// Package instance is a topology on this machine: its state file, its lock, and the
// namespaces, links and processes that it made.
//
// Who builds one:
//
//  1. Open locks the instance's name and reads its state; Close gives the name free.
//  2. Begin starts a new state with a new mark.
//  3. MakeNamespace, MakeLinks, Configure and Start write what they make to the state
//     before they make it.
//  4. Down takes away all that the state names, also after a crash. What does not
//     carry the mark is left alone.
//
// An Instance belongs to one goroutine while it is built or taken down. Checks read
// it from several at the same time.
package instance
