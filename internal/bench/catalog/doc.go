// Package catalog lists the functions that are measured: for each its frame, the
// configuration that makes the node a place for it, what must come out, and what the
// Linux kernel has for the same frame. It measures nothing.
//
// Functions have entries (SIDs, sessions, TEIDs): the key in a frame says which one the
// frame is for, and the generator counts it up at random.
package catalog
