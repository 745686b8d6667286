// Package cni is what the plugin culvert-cni does: CNI's ADD, DEL, CHECK, STATUS
// and GC (versions 1.0.0 and 1.1.0 of its specification). It makes the pod's
// interface; everything that outlives it is the agent's, which it asks over the
// agent's Unix socket.
//
// A pod has a veth whose host's end has a name made of the container's, so that
// it is found without asking anybody, and the MAC address that all host's ends
// have. The pod has host addresses, and sends everything to two gateways that
// are nobody's: permanent neighbours with that MAC address.
package cni
