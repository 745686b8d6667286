// Package machine is a node of a laboratory that is a machine for packages: a fresh Debian 12,
// whose systemd boots in a container of systemd-nspawn, with the node's network, a bpffs of its
// own, and all capabilities. Checks and events run scripts in it, as its operator would.
//
// The bare tree is made by mmdebstrap, once, and cached. Each start unpacks it anew.
package machine
