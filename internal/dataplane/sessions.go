package dataplane

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/ref"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// sessionNode is the node that a data path's sessions are on.
type sessionNode struct{ d *DataPlane }

func (n sessionNode) Acquire(k adjacency.Key) (uint32, error) { return n.d.Adjacencies.Acquire(k) }
func (n sessionNode) Release(keys ...adjacency.Key) error     { return n.d.Adjacencies.Release(keys...) }

func (n sessionNode) Toward(remote netip.Addr) adjacency.Key {
	return n.d.Adjacencies.Toward(remote)
}

func (n sessionNode) Policy(name string) (index uint32, layer2, found bool) {
	p := n.d.Policies.Get(name)
	if p == nil {
		return 0, false, false
	}
	return p.Index(), p.Layer2(), true
}

func (n sessionNode) ClassNumber(name string) uint8 { return uint8(n.d.Classes.Number(name)) }

func (n sessionNode) UsePolicy(name string, used bool) {
	by := ref.User{Kind: ref.Session, Key: "forwarding"}
	if used {
		n.d.Policies.Get(name).Use(by)
	} else {
		n.d.Policies.Get(name).Unuse(by)
	}
}

func (n sessionNode) UsePeer(a netip.Addr) error   { return n.d.reach.Use(a) }
func (n sessionNode) UnusePeer(a netip.Addr) error { return n.d.reach.Unuse(a) }

func (n sessionNode) LinkNumber(l ethernet.Link) uint32 { return n.d.Links.NumberOf(l) }

func (n sessionNode) OuterSource(f *session.Forwarding) netip.Addr {
	if f.Kind == session.ForwardSRv6 {
		return n.d.settings.Want.Source
	}
	return n.d.settings.GTPUSource(f.Remote)
}

func (n sessionNode) Targets() *target.Table { return n.d.targets }

func (n sessionNode) Steered(p netip.Prefix) bool { return n.d.Steering.Has(p) }

func (n sessionNode) TunnelOf(teid uint32) (name string, found bool) {
	return n.d.Tunnels.ByTEID(teid)
}

func (n sessionNode) ForgetPorts(ue netip.Addr) { n.d.NAT.Forget(ue) }

func (n sessionNode) SetUEs(ues uint32) {
	if n.d.settings.Get().Ues != ues {
		n.d.settings.Change(func(s *abi.Settings) { s.Ues = ues })
	}
}

func (n sessionNode) ForgetLookups() { n.d.settings.ForgetLookups() }

// SessionEvents calls f for each event of a rule, until ctx ends. There is one
// reader at a time. An event may come again, or about limits that have changed
// since: Sessions.Usage says what is true.
func (d *DataPlane) SessionEvents(ctx context.Context, f func(session.Event)) error {
	return event.Read(ctx, d.rings, abi.MapSessionEvents, func(r *abi.SessionEvent) {
		if e, ok := d.Sessions.Event(r); ok {
			f(e)
		}
	})
}

// EndMarkers calls f for each End Marker that an SMF asked the data path for, with the
// word of pdr that says where it goes (Sessions.LeadsTo), until ctx ends.
func (d *DataPlane) EndMarkers(ctx context.Context, f func(out uint64)) error {
	return event.Read(ctx, d.rings, abi.MapN4Events, func(e *abi.N4Event) { f(e.Out) })
}
