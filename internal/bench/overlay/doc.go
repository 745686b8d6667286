// Package overlay is the experiment `culvert bench overlay`: what pods of two nodes
// get from SRv6 beside flat routing, VXLAN and the kernel's SRv6 (paper 002, figure
// 15), and what pods, paths and a thousand nodes cost the agent.
//
// Traffic goes through the laboratory overlay-bench. Sender, both nodes and receiver
// run on one CPU: see flow.
package overlay
