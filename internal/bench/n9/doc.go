// Package n9 is the experiment `culvert bench slices`: figures 5 and 6 of
// "Experimenting with SRv6" (Gramaglia et al.). Two slices behind a shared UPF
// send at once, up or down, through the laboratory slices-bench, whose N9 is
// GTP-U or SRv6 with 1, 2 or 3 segments. It measures delivery ratio, CPU time of a
// packet, and latency.
//
// One CPU makes the packets. On another runs the thread that receives them at the
// first UPF, and in its softirqs all nodes behind it: a core that is overloaded loses
// packets in the queue in front of it, as a UPF does.
package n9
