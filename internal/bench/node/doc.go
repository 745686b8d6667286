// Package node makes what is measured: network namespaces with interfaces between a
// source and a sink, and a daemon that runs the culvert binary in one of them.
//
//  1. NewNetwork makes the namespaces, with addresses, routes and neighbours.
//  2. Start runs the daemon there and fills its tables through the management API.
//  3. Daemon.Stop and Network.Delete take all of it away, in this order.
//
// Namespace.Do runs a function on the calling goroutine, locked to its thread, inside
// the namespace. A Daemon has one goroutine, which waits for the process to end.
package node
