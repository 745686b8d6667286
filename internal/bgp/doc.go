// Package bgp speaks BGP for a headend and for a node of a cluster: it turns what
// peers advertise into candidate paths of SR policies (SAFI 73) and into what is
// behind which node (unicast, and L3VPN through SRv6), and the reverse. GoBGP
// speaks the protocol; no type of its leaves this package.
//
// GoBGP discards a Prefix-SID attribute that it cannot read: a route of the VPN is
// then not usable, and a unicast one is reached by its next hop.
package bgp
