// Package adjacency owns where packets leave: next hops (table adjacency), the
// routes that lead to them (route4, route6), and the outer source addresses that
// encapsulations share (source).
//
// Concepts that send packets refer to a next hop by its Key:
//
//  1. Acquire the Key and write its index into the own table.
//  2. The agent learns of the Key from Changes, resolves it through netlink, and
//     calls SetNextHop. Until then packets to it pass to the kernel.
//  3. Release the Key when the own entry is gone.
//
// The data path's lock guards all types. Keys, Changes, SetNextHop, Put and Delete
// take it; the other methods expect the caller to hold it.
package adjacency
