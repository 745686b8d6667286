// Package daemon runs programs in the nodes of a laboratory: culvert, FRR, GTP-U
// endpoints and SMFs.
//
// Start... starts a program and returns when it answers. Ask and AskJSON run a
// culvert command against a node's daemon, Step has an SMF do a step: all of them
// look at a program through what it shows to everybody.
package daemon
