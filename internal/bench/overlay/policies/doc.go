// Package policies measures what NetworkPolicies cost a packet: the CPU time of a node for packets
// of many established flows to and from pods, each pod with policies of another number of rules,
// beside pods without policies, a node that does not enforce any, and L2 forwarding.
//
//  1. Open starts two nodes, each with an agent and pods, and has the flows established.
//  2. Rig.Measure takes a sample of each at a point.
//  3. Rig.Close takes everything away.
package policies
