// Package node makes what is measured: network namespaces with interfaces between a
// source and a sink, and a daemon that runs the culvert binary in one of them.
//
//  1. NewNetwork makes the namespaces, with addresses, routes and neighbours.
//  2. Start runs the daemon there and fills its tables through the management API.
//  3. Daemon.Close and Network.Close take all of it away, in this order.
//
// Namespace.Do runs a function inside the namespace, on a thread that ends with it. A
// Daemon has one goroutine, which waits for the process to end.
package node
