// Package rig surrounds a node with programs that make frames and sink them, and
// measures the CPU time of a frame.
//
//  1. New makes the node; Sink attaches the program that counts what comes out.
//  2. Warm finds what a run costs besides its packets.
//  3. OnCPU calls a function on a thread of its own, bound to one CPU; Live and
//     TestRun measure there.
//
// Each run checks that every frame came out, and that the first one is as wanted.
package rig
