// Package sourcesink is the experiment `culvert bench source-sink`: figure 6 of "Experimenting
// with SRv6" (Gramaglia et al.). A program sends large UDP datagrams over IPv6 at a low rate
// through the laboratory source-sink, in which one node encapsulates and another decapsulates. It
// measures the CPU time of each of the two, by encapsulation.
//
// One CPU sends and receives. On another each node has a thread that receives its packets and
// handles them, so that the source's work, the sink's, and that of the routers between them are
// apart.
package sourcesink
