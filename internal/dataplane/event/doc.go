// Package event reads what the data path reports to the daemon through ring buffers:
// packets for the slow path (Punts), traced journeys (Tracer) and records of pods' flows
// (Flows); others read a ring of their own records by Read.
//
// Each ring has one reader at a time, which blocks until its context ends. The
// package starts no goroutine but the one that ends a reader.
package event
