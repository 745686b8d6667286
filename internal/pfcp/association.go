package pfcp

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// association is one with an SMF. Its plain fields never change: another
// Recovery Time Stamp or address makes another association.
type association struct {
	node   string
	serial uint64 // tells it from all others of this process
	// addrs are the peer's. Our requests go to the first, which set up the
	// association.
	addrs    []netip.Addr
	recovery uint32 // its Recovery Time Stamp
	since    time.Time
	// lapsed: the SMF has restarted since it was set up. The SMF that the
	// configuration names in connect waits for us to set it up again.
	lapsed bool
	// renewed: with it the SMF gets a later Recovery Time Stamp of ours, which tells it
	// that its sessions are removed.
	renewed bool

	sessions atomic.Int64
	unnamed  unnamed
	// down: the peer does not answer heartbeats. Its sessions are still served:
	// a control plane that is away for a while must not interrupt its users'
	// traffic (TS 23.527 section 4.4). If it has lost them when it returns, its
	// Recovery Time Stamp says so, and they are removed.
	down atomic.Bool
	// proven: it has answered a heartbeat of ours, so its address is not forged.
	// missed: it has left one unanswered. asked: we wait for an answer. doubts counts heartbeats with another
	// Recovery Time Stamp, until the SMF has said which one it has.
	proven, missed, asked atomic.Bool
	doubts                atomic.Uint64
	noNodeReports         atomic.Bool // it has refused or ignored one
	// keeps is set once the association ends: it says which sessions stay, with
	// its successor. No request is answered for the others, although the purge
	// has not reached them yet.
	keeps atomic.Pointer[func(*session.Session) bool]
	// purged counts the sessions that were removed since.
	purged atomic.Int64
	// apps are its PFDs: filters by application ID. Other SMFs cannot change
	// them.
	apps atomic.Pointer[map[string][]session.Filter]
}

var associations atomic.Uint64 // that there were

func newAssociation(node string, recovery uint32, addrs ...netip.Addr) *association {
	a := &association{node: node, serial: associations.Add(1), recovery: recovery, addrs: addrs, since: time.Now()}
	a.apps.Store(&map[string][]session.Filter{})
	return a
}

func (a *association) has(from netip.Addr) bool { return slices.Contains(a.addrs, from) }

// end marks an association that ends, before anybody sees its successor. keep
// says which sessions stay; nil: none.
func (a *association) end(keep func(*session.Session) bool) {
	if keep == nil {
		keep = func(*session.Session) bool { return false }
	}
	a.keeps.Store(&keep)
}

// ends says whether a session goes with the association, which has ended.
func (a *association) ends(s *session.Session) bool {
	keep := a.keeps.Load()
	return keep != nil && !(*keep)(s)
}

func (a *association) peer() netip.AddrPort { return netip.AddrPortFrom(a.addrs[0], Port) }

// filters returns the filters of an application, and whether it has PFDs.
func (a *association) filters(id string) ([]session.Filter, bool) {
	if a == nil {
		return nil, true // a request without an association is refused anyway
	}
	filters, ok := (*a.apps.Load())[id]
	return filters, ok
}

// peers are all associations. The node's goroutine publishes a new value for
// each change; a published value never changes.
type peers struct {
	byNode map[string]*association
	byAddr map[netip.Addr][]*association
}

func (p *peers) at(from netip.Addr) []*association { return p.byAddr[from] }

// find returns the association that a request names by its Node ID, if the
// request comes from one of its addresses; else nil.
func (p *peers) find(from netip.Addr, l wire.IEs) *association {
	var d wire.Decoder
	var found *association
	for i := range d.Each(l) {
		if i.Type() == ie.NodeID && found == nil {
			found = p.byNode[i.NodeID()]
		}
	}
	if found == nil || !found.has(from) {
		return nil
	}
	return found
}

// deserted returns the oldest association that nobody has used: it has no sessions,
// and its SMF has left a heartbeat unanswered, and answered none; or nil. Its place is
// needed: anybody may ask for an association with a forged address.
func (p *peers) deserted() (oldest *association) {
	for _, a := range p.byNode {
		if a.missed.Load() && !a.proven.Load() && a.sessions.Load() == 0 && (oldest == nil || a.since.Before(oldest.since)) {
			oldest = a
		}
	}
	return oldest
}

// with returns p with a in place of the association with the same Node ID.
func (p *peers) with(a *association) *peers { return p.rebuild(a.node, a) }

func (p *peers) without(node string) *peers { return p.rebuild(node, nil) }

func (p *peers) rebuild(node string, a *association) *peers {
	out := &peers{byNode: map[string]*association{}, byAddr: map[netip.Addr][]*association{}}
	maps.Copy(out.byNode, p.byNode)
	delete(out.byNode, node)
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

// sorted returns the associations by Node ID.
func (p *peers) sorted() []*association {
	return slices.SortedFunc(maps.Values(p.byNode), func(a, b *association) int { return strings.Compare(a.node, b.node) })
}

// Association describes an association with an SMF.
type Association struct {
	Node  string       `json:"node"`  // Node ID
	Addrs []netip.Addr `json:"addrs"` // of the SMF
	Since time.Time    `json:"since"`
	// Recovery is the SMF's Recovery Time Stamp.
	Recovery time.Time `json:"recovery"`
	// Up: the SMF answers heartbeats. Sessions stay while it does not.
	Up           bool     `json:"up"`
	Sessions     int      `json:"sessions"`
	Applications []string `json:"applications,omitempty"` // with PFDs
}

// Associations returns all associations by Node ID. The UPF has the sessions,
// with their Node IDs.
func (s *Server) Associations() []Association {
	var list []Association
	for _, a := range s.peers.Load().sorted() {
		list = append(list, Association{
			Node: a.node, Addrs: slices.Clone(a.addrs), Since: a.since,
			Recovery: time.Unix(int64(a.recovery)-wire.Epoch, 0).UTC(),
			Up:       !a.down.Load(), Sessions: int(a.sessions.Load()),
			Applications: slices.Sorted(maps.Keys(*a.apps.Load())),
		})
	}
	return list
}
