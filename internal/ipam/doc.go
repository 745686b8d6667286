// Package ipam hands out the addresses of a node's pods: one of each family,
// from the node's prefixes, in turn, so that an address that was given back is
// not given to the next one who asks. Who holds which is on disk before anybody
// hears of it: a crash leaks no address and gives none twice.
package ipam
