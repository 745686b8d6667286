// Package instance is a topology on this machine: its state file, its lock and
// its processes.
//
// To build one:
//
//  1. Open locks the instance's name and reads its state; Close releases the name.
//  2. Begin starts a new state with a new mark.
//  3. Start writes a process to the state; package network writes namespaces before
//     it makes them.
//  4. Down removes everything that the state names, also after a crash. It leaves
//     alone what does not carry the mark.
//
// An Instance belongs to one goroutine while it is built or taken down. Checks read
// it from several at the same time.
package instance
