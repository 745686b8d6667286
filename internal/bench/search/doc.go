// Package search finds throughputs by Multiple Loss Ratio search (RFC 9971): it
// chooses loads and durations, the caller runs the trials, and for every goal it
// returns the loads between which the device stops to reach it. It is the RFC's
// Controller; the load classification and the conditional throughput are those
// of its appendices A and B, and the names are its own.
package search
