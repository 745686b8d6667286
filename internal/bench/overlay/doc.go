// Package overlay is the experiment `culvert bench overlay`: traffic between
// pods of two nodes over SRv6 beside flat routing, VXLAN and the kernel's SRv6 (paper 002, figure
// 15), and the cost of pods, paths and a thousand nodes to the agent.
//
// Traffic goes through the laboratory overlay-bench. Sender, both nodes and receiver
// run on one CPU: see flow.
package overlay
