// Package proc chooses CPUs, binds threads to them, and reads the CPU time of
// threads and of the kernel's softirq threads.
//
// Pin, Clock.During and GoAhead act on threads: lock the goroutine to its thread
// first.
package proc
