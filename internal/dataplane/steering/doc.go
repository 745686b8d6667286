// Package steering owns which packets are steered into SR policies, GTP-U tunnels
// and H.M.GTP4.D, by destination or by interface, and the node's own addresses,
// which are not steered.
//
// A prefix of one address (IPv6: /64) in a UE pool has its entry in table tunnel,
// where the pool leads; all others are in package target's tables.
//
// The data path's lock guards the Table. Put, Delete, PutLocal and DeleteLocal take
// it; the other methods expect the caller to hold it. Package dataplane sets IsLink.
package steering
