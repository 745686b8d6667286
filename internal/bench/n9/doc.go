// Package n9 is the experiment `culvert bench slices`: figures 5 and 6 of
// "Experimenting with SRv6" (Gramaglia et al.). Two slices behind a shared UPF
// send at once, up or down, through the laboratory slices-bench, whose N9 is
// GTP-U or SRv6 with 1, 2 or 3 segments. Measured are what is delivered of what
// is offered, what a packet costs the CPU, and how long it takes.
//
// Packets are made on one CPU. On another runs the thread that receives them at
// the first UPF, and with it, in its softirqs, all of the nodes behind: one core
// that is overloaded loses packets in the queue before it, as a UPF does.
package n9
