package pfcp

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// association is one with an SMF. What does not change is not changed: another
// Recovery Time Stamp or address makes another association.
type association struct {
	node string
	// addrs are the peer's: first the one that the association was set up from,
	// to which our requests go.
	addrs    []netip.Addr
	recovery uint32 // its Recovery Time Stamp
	since    time.Time

	sessions *atomic.Int64
	// down: it does not answer heartbeats. Its sessions stay and are served: a
	// control plane that is away for a while must not take its users' traffic
	// with it (TS 23.527 section 4.4). If it comes back having lost them, its
	// Recovery Time Stamp says so, and they go then. Until it comes back another
	// peer may set up an association with the same Node ID: a name may move.
	down *atomic.Bool
	// apps are its PFDs: filters by application ID. They are its own: another
	// SMF cannot change what this one's sessions match.
	apps *atomic.Pointer[map[string][]session.Filter]
}

func newAssociation(node string, recovery uint32, addrs ...netip.Addr) *association {
	a := &association{
		node: node, recovery: recovery, addrs: addrs, since: time.Now(),
		sessions: &atomic.Int64{}, down: &atomic.Bool{},
		apps: &atomic.Pointer[map[string][]session.Filter]{},
	}
	a.apps.Store(&map[string][]session.Filter{})
	return a
}

func (a *association) has(from netip.Addr) bool { return slices.Contains(a.addrs, from) }

func (a *association) peer() netip.AddrPort { return netip.AddrPortFrom(a.addrs[0], Port) }

// filters are those of an application. Of one whose PFDs were taken away
// nothing matches.
func (a *association) filters(id string) ([]session.Filter, bool) {
	if a == nil {
		return nil, true // the request is refused anyway
	}
	filters, ok := (*a.apps.Load())[id]
	return filters, ok
}

// peers are all associations, as the node goroutine published them: never
// changed, only replaced.
type peers struct {
	byNode map[string]*association
	byAddr map[netip.Addr][]*association
}

func (p *peers) at(from netip.Addr) []*association { return p.byAddr[from] }

// find is the association that a request names by its Node ID, if it comes from
// there.
func (p *peers) find(from netip.Addr, l wire.IEs) *association {
	var d wire.Decoder
	var found *association
	d.Each(l, func(i wire.IE) {
		if i.Type == ie.NodeID && found == nil {
			found = p.byNode[i.NodeID()]
		}
	})
	if found == nil || !found.has(from) {
		return nil
	}
	return found
}

// with is p with a in the place of what had its Node ID.
func (p *peers) with(a *association) *peers { return p.rebuild(a.node, a) }

func (p *peers) without(node string) *peers { return p.rebuild(node, nil) }

func (p *peers) rebuild(node string, a *association) *peers {
	out := &peers{byNode: map[string]*association{}, byAddr: map[netip.Addr][]*association{}}
	for n, other := range p.byNode {
		if n != node {
			out.byNode[n] = other
		}
	}
	if a != nil {
		out.byNode[node] = a
	}
	for _, other := range out.byNode {
		for _, addr := range other.addrs {
			out.byAddr[addr] = append(out.byAddr[addr], other)
		}
	}
	return out
}

// sorted are the associations by Node ID.
func (p *peers) sorted() []*association {
	list := make([]*association, 0, len(p.byNode))
	for _, a := range p.byNode {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *association) int { return strings.Compare(a.node, b.node) })
	return list
}

// Association is one with an SMF, to be shown.
type Association struct {
	Node  string       // Node ID
	Addrs []netip.Addr // of the SMF
	Since time.Time
	// Recovery is the SMF's Recovery Time Stamp.
	Recovery time.Time
	// Up: it answers heartbeats. When it does not its sessions stay.
	Up           bool
	Sessions     int
	Applications []string // with PFDs
}

// Associations are all of them, by Node ID. The sessions themselves, with their
// Node IDs, are the UPF's.
func (s *Server) Associations() []Association {
	var list []Association
	for _, a := range s.peers.Load().sorted() {
		shown := Association{
			Node: a.node, Addrs: slices.Clone(a.addrs), Since: a.since,
			Recovery: time.Unix(int64(a.recovery)-wire.Epoch, 0).UTC(),
			Up:       !a.down.Load(), Sessions: int(a.sessions.Load()),
		}
		for id := range *a.apps.Load() {
			shown.Applications = append(shown.Applications, id)
		}
		slices.Sort(shown.Applications)
		list = append(list, shown)
	}
	return list
}
