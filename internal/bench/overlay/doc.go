// Package overlay is the experiment `culvert bench overlay`: traffic between
// pods of two nodes over SRv6 beside flat routing, VXLAN, the kernel's SRv6 and eBPF host routing
// (paper 002, figure 15), with Services and without; what NetworkPolicies cost (package policies);
// and the cost of pods, paths and a thousand nodes to the agent.
//
// Traffic goes through the laboratory overlay-bench. Sender, both nodes and receiver
// run on one CPU: see flow.
package overlay
