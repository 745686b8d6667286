// Package golden reads the data path's golden files
// (internal/dataplane/testdata): for each SRv6 behaviour (behavior) or subject
// of sessions (session) a network, then rows of a frame, and how its journey
// must end to the byte.
//
// A row's frame is written in layers (package packet), or is another row's
// with one thing changed:
//
//   - name: segments left past the list
//     of: two segments
//     with: {srh: {left: 4}}
//
// The flag -update writes the expected results from the reference model. Each row's
// check, which tshark evaluates, is written by hand: it says in the standard's
// words what the frame must be.
package golden
