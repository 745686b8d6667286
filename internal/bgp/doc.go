// Package bgp speaks BGP for a headend and for a node of a cluster. It turns what
// peers advertise into candidate paths of SR policies (SAFI 73) and into routes to
// the prefixes of other nodes (unicast, and L3VPN through SRv6), and advertises
// this node's own. GoBGP speaks the protocol; none of its types leaves the package.
//
// To use it:
//
//  1. Call Start with a Config and a Handler, which receives candidate paths. A
//     node of a cluster, or a speaker with VPNs, also has a ReachHandler, which
//     receives routes.
//  2. Call SetNode (a node of a cluster), Originate (one that advertises prefixes of
//     its own), Advertise, or Injector.Set.
//  3. Call Stop, or Leave if the process is about to end.
//
// GoBGP calls the Speaker from its own goroutines. Speaker.reporting is held while
// a handler is called and guards what was reported; Speaker.mu guards what this
// node advertises.
//
// GoBGP discards a Prefix-SID attribute that it cannot read. A VPN route is then
// not usable; a unicast route is reached by its next hop.
package bgp
