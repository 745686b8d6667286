// Package softrun runs culvert-soft: the data path's C sources as a program of user
// space, over AF_XDP, on the tables of a running daemon (bpf/soft, `make soft`). It is
// what the data path in the kernel is compared with, and not for operators.
//
// Start puts soft_receive in the place of the program that the daemon attached, and Stop
// puts that back; a daemon that starts again takes its interfaces back itself. soft_receive
// gives a packet to the socket of its queue. Where there is no socket, because culvert-soft
// died, the packet takes the daemon's program: forwarding goes on. So do ARP, neighbour
// discovery and N4 at all times.
//
// Each worker is a thread with one or more queues of each interface, and sends by a queue of
// its own: receive-side scaling alone says which worker handles a packet. A worker sleeps
// where nothing comes, unless it is to spin.
//
// User space handles a packet to its end. What it cannot do it asks of the kernel by test
// runs of soft_call: look-ups in the kernel's routes, records for the daemon's queues (the
// slow path, session events, traces), and additions to the counters of the CPU that it runs
// on, every 100 ms and at the end. What the kernel is to have comes in again, by a live
// test run.
//
// What differs from the kernel: arrays that are not mapped (ports, access, next hops,
// segment lists) are copies at most 10 ms old. End.Limit and the budget of ICMP errors are
// each worker's own, as the latter is each CPU's. A record for which the daemon's queue is
// full is counted as handed up, and in Result.NotHandedUp. The kernel drops frames longer
// than 3.5 kB: they do not fit into a buffer. AF_XDP copies packets unless the driver can do
// without, see Queue.ZeroCopy.
package softrun
