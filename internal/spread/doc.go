// Package spread decides which CPU handles which packets: Balancer looks at the load of
// buckets and CPUs now and then, and says what moves (docs/adr/0021-packets-over-cpus.md).
//
// It is a model: plain values, no clock, no I/O, no lock.
package spread
