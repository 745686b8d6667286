// Package ipam hands out the addresses of a node's pods: one of each family, from
// the node's prefixes, in turn, so that the next pod does not get an address that
// was just released. It writes each assignment to disk before it returns the
// address: a crash leaks no address and assigns none twice.
package ipam
