package dataplane

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/ref"
)

// node is the rest of the data path, as far as sessions refer to it. Its
// methods are called with the lock of Sessions held.
type node interface {
	// acquire refers to the adjacency of a next hop, release ends that.
	acquire(AdjacencyKey) (uint32, error)
	release(...AdjacencyKey) error
	// policy finds an SR policy; layer2: it carries frames.
	policy(name string) (index uint32, layer2, found bool)
	// usePolicy notes whether sessions refer to a policy.
	usePolicy(name string, used bool)
	// linkNumber is that of a link; 0: nobody has put it.
	linkNumber(Link) uint32
	// outerSource is the node's own source address for what a rule forwards.
	outerSource(*Forwarding) netip.Addr
	// targetAt, putTarget and delTarget are about target_by_dst4 and 6.
	targetAt(netip.Prefix) abi.Target
	putTarget(netip.Prefix, abi.Target) error
	delTarget(netip.Prefix) error
	targets() map[uint32]bool // indices of pdr that it leads to
	// steered says whether steering, or the node itself, has a prefix.
	steered(netip.Prefix) bool
	// tunnelOf is the tunnel that has a TEID.
	tunnelOf(teid uint32) (name string, found bool)
	// setUEs tells packets whether pdr_by_ue holds anything: 0 or 1.
	setUEs(uint32)
}

// sessionNode is the node that a data path's sessions are on.
type sessionNode struct{ d *DataPlane }

func (n sessionNode) acquire(k AdjacencyKey) (uint32, error)       { return n.d.Adjacencies.Acquire(k) }
func (n sessionNode) release(keys ...AdjacencyKey) error           { return n.d.Adjacencies.Release(keys...) }
func (n sessionNode) delTarget(p netip.Prefix) error               { return n.d.targets.Delete(p) }
func (n sessionNode) putTarget(p netip.Prefix, t abi.Target) error { return n.d.targets.Put(p, t) }

func (n sessionNode) policy(name string) (index uint32, layer2, found bool) {
	p := n.d.Policies.Get(name)
	if p == nil {
		return 0, false, false
	}
	return p.Index(), p.Layer2(), true
}

func (n sessionNode) usePolicy(name string, used bool) {
	by := ref.User{Kind: ref.Session, Key: "forwarding"}
	if used {
		n.d.Policies.Get(name).Use(by)
	} else {
		n.d.Policies.Get(name).Unuse(by)
	}
}

func (n sessionNode) linkNumber(l Link) uint32 { return n.d.Links.NumberOf(l) }

func (n sessionNode) outerSource(f *Forwarding) netip.Addr {
	if f.Kind == ForwardSRv6 {
		return n.d.settings.Want.Source
	}
	for _, a := range n.d.settings.Want.GTPUAddresses {
		if a.Is4() == f.Remote.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

func (n sessionNode) targetAt(p netip.Prefix) abi.Target { return n.d.targets.At(p) }

func (n sessionNode) targets() map[uint32]bool {
	out := map[uint32]bool{}
	for _, t := range n.d.targets.All() {
		if t.Kind == uint32(abi.TargetKindTARGET_PDR) {
			out[t.Index] = true
		}
	}
	return out
}

func (n sessionNode) steered(p netip.Prefix) bool { return n.d.Steering.Has(p) }

func (n sessionNode) tunnelOf(teid uint32) (name string, found bool) {
	return n.d.Tunnels.ByTEID(teid)
}

func (n sessionNode) setUEs(ues uint32) {
	if (n.d.settings.Get().Ues != 0) != (ues != 0) {
		n.d.settings.Change(func(s *abi.Settings) { s.Ues = ues })
	}
}

// SessionEvents calls f for each event of a rule, until ctx ends. There is one
// reader at a time. An event may come again, or about limits that have changed
// since: Sessions.Usage says what is true.
func (d *DataPlane) SessionEvents(ctx context.Context, f func(SessionEvent)) error {
	return event.Read(ctx, d.rings, abi.MapSessionEvents, func(r *abi.SessionEvent) {
		if e, ok := d.Sessions.event(r); ok {
			f(e)
		}
	})
}
