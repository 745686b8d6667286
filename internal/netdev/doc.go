// Package netdev models the kernel's network in types of its own: links, addresses,
// routes, neighbours and rules. It answers the data path's questions about it: how
// frames reach a next hop (Snapshot.Resolve), which routes the data path may look up
// itself (Mirror), and which addresses are the node's (Snapshot.Local).
//
// The user
//
//  1. calls NewWatcher, and Run in a goroutine;
//  2. gets a new Snapshot by Options.OnChange whenever the network changes.
//
// Snapshots never change. A Watcher's methods may be called from any goroutine. Run
// starts a goroutine for each netlink socket.
//
// Besides internal/cni, the laboratory and internal/testutil, only netdev imports
// vishvananda/netlink and safchain/ethtool. No exported signature has their types.
package netdev
