// Package n4 is the daemon's side of the tables by which the data path answers PFCP
// (docs/adr/0023-signalling-in-the-data-path.md): what it may answer, and what it has
// changed.
//
// Each session has an entry at its SEID's place. The data path changes it while it is open
// and nobody has locked it. The daemon locks it whenever it looks at the session, learns
// first what was changed (Changed, Entry), and then does what it has to. Before it changes
// the session itself it closes the entry; Open opens it again, with what the session
// became. So whatever an entry says after the daemon died is either complete or closed.
package n4
