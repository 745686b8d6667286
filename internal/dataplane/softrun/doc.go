// Package softrun runs culvert-soft: the data path's C sources as a program of user
// space, on the tables of a running daemon (bpf/soft, `make soft`). It is what the data path
// in the kernel is compared with, and not for operators.
//
// User space handles a packet to its end. What it cannot do it asks of the kernel by test
// runs of soft_call: look-ups in the kernel's routes, records for the daemon's queues (the
// slow path, session events, traces), and additions to the counters of the CPU that it runs
// on.
//
// What differs from the kernel: arrays that are not mapped (ports, access, next hops,
// segment lists) are copies at most 10 ms old. End.Limit and the budget of ICMP errors are
// each worker's own, as the latter is each CPU's. A record for which the daemon's queue is
// full is counted as handed up.
package softrun
