// Package pool hands out UE addresses.
//
// Pools owns every UE address that a session has: those of its pools, an IPv4
// address or an IPv6 /64 each, and those that an SMF chose elsewhere. Each taken
// address is given back by Free, once. One mutex guards a Pools; the package
// starts no goroutines.
package pool
