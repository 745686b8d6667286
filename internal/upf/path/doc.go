// Package path manages GTP-U paths (TS 29.281 section 7.2): it asks the peers
// that sessions send to whether they are there, and sends End Markers and
// duplicates.
//
// The data path answers the Echo Requests of peers. Their answers and their Error
// Indications pass through it to the sockets here.
//
// The user
//
//  1. calls New, and Run in a goroutine;
//  2. calls Move whenever a session begins, changes or ends.
//
// One mutex guards a Paths; no function of Options is called with it held. Run
// starts one goroutine for each of our addresses.
package path
