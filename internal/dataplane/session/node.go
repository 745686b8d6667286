package session

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
)

// Node is the rest of the data path, as far as sessions refer to it. Its methods
// are called with the lock of Sessions held.
type Node interface {
	// Acquire refers to the adjacency of a next hop, Release ends that.
	Acquire(adjacency.Key) (uint32, error)
	Release(...adjacency.Key) error
	// Policy finds an SR policy; layer2: it carries frames.
	Policy(name string) (index uint32, layer2, found bool)
	// UsePolicy notes whether sessions refer to a policy.
	UsePolicy(name string, used bool)
	// LinkNumber is that of a link; 0: nobody has put it.
	LinkNumber(Link) uint32
	// OuterSource is the node's own source address for what a rule forwards.
	OuterSource(*Forwarding) netip.Addr
	// TargetAt, PutTarget and DeleteTarget are about target_by_dst4 and 6.
	TargetAt(netip.Prefix) abi.Target
	PutTarget(netip.Prefix, abi.Target) error
	DeleteTarget(netip.Prefix) error
	// Targets are the entries of pdr that target_by_dst leads to.
	Targets() map[uint32]bool
	// Steered says whether steering, or the node itself, has a prefix.
	Steered(netip.Prefix) bool
	// TunnelOf is the tunnel that has a TEID.
	TunnelOf(teid uint32) (name string, found bool)
	// SetUEs tells packets whether pdr_by_ue holds anything: 0 or 1.
	SetUEs(uint32)
}
