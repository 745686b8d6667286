// Package netdev is the kernel's view of the network, in types of our own:
// links, addresses, routes, neighbours and rules, kept current from netlink;
// and what follows from it for the data path: how frames reach a next hop
// (Resolve), which routes the data path may look up itself (Mirror), and which
// addresses are the node's (Snapshot.Local).
//
// It is the only importer of vishvananda/netlink and safchain/ethtool beside
// internal/cni, the laboratory, its benches and internal/testutil; none of their types are in an exported
// signature.
package netdev
