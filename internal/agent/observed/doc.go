// Package observed is what others say: BGP peers and the Kubernetes API of
// candidate paths, nodes, prefixes and of this node. What the kernel says is a
// *netdev.Snapshot.
//
// A State is kept over a restart, which must not move traffic. It is no part of
// the desired state: a configuration holds together without it.
//
// Its user
//
//  1. starts the control planes of a configuration with Sources.Adjust, and
//     calls it again when the configuration or this node changes,
//  2. waits for Queue.Ready, takes the Updates from the Queue and applies them
//     to a copy of the State (State.Edit), and
//  3. applies Withdraw in place of Apply for an Update that cannot be used, and
//     keeps a Refusal.
//
// A Queue and the Sources lock themselves. One goroutine at a time calls
// Sources.Adjust. The speaker of BGP and the watcher of Kubernetes run
// goroutines of their own, which push Updates and never wait for the agent.
package observed
