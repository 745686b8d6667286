// Package replay plays the control plane's part of a captured N4 conversation
// (TS 29.244) to another UPF, and compares what that one answers.
//
// Read reads a capture file, and Capture.Conversation picks the messages of one
// SMF and one UPF as exchanges: a request and its answer. A Player sends the SMF's
// requests one after another through a Client. Session i of the capture is played
// `times` times at once: each copy has SEIDs, TEIDs and UE addresses of its own,
// and the first those of the capture. What only the live UPF can say, its SEIDs and
// the F-TEIDs that it chose, is learned from its answers, for each copy.
//
// It knows a Client by an interface: package smf, which has transactions and the
// socket, is above it.
package replay
