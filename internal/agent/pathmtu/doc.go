// Package pathmtu believes routers that say that a packet which this node put into an outer
// header is too big for a link of its path (RFC 8201, RFC 1191): the path gets that MTU for
// ten minutes, and the data path then tells the sources of what it would put into these
// headers.
//
// Whoever sends such an error is not trusted for that alone. The data path hands up only
// errors that a role of the port vouches for; the package demands that they quote a packet
// which this node can have sent, and never goes below the least MTU of IPv6.
//
// Its user makes a Learner (New), calls Handle for each error, and runs it in a goroutine
// (Run), which ends what was learned. A mutex guards all of it.
package pathmtu
