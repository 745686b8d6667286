// Package network builds the network of an instance with iproute2: namespaces with
// the kernel settings that checks need, veth links, addresses and routes.
package network
