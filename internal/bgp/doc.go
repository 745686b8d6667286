// Package bgp speaks BGP for a headend: it turns what peers advertise into
// candidate paths of SR policies, and the reverse. GoBGP speaks the protocol; no
// type of its leaves this package.
package bgp
