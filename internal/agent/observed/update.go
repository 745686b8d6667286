package observed

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// PutPath adds or replaces a candidate path.
func (s *State) PutPath(name string, p Path) {
	edit(&s.Paths, &s.own.paths)
	s.Paths[name], s.Touched[name] = p, true
}

// DropPath removes a candidate path, if it is there.
func (s *State) DropPath(name string) {
	if _, there := s.Paths[name]; there {
		edit(&s.Paths, &s.own.paths)
		s.Touched[name] = true
		delete(s.Paths, name)
	}
}

// dropAdvertised removes the paths that have the NLRI of an advertisement.
func (s *State) dropAdvertised(a srpolicy.Advertised) {
	for name, p := range s.Paths {
		if p.Kube == "" && p.Path.Color == a.Color && p.Endpoint == a.Endpoint && p.Distinguisher == a.Distinguisher {
			s.DropPath(name)
		}
	}
}

// PutNode adds or replaces another node. One that claims something else than before comes
// last: what others hold by now stays theirs.
func (s *State) PutNode(n overlay.Node) {
	edit(&s.Nodes, &s.own.nodes)
	m, there := s.Nodes[n.Name]
	if !there || !m.claims(n) {
		s.Last++
		m.Number = s.Last
	}
	m.Node, m.Refused, m.Faults = n, n.Refused, n.Faults
	s.Nodes[n.Name] = m
}

// DropNode removes another node.
func (s *State) DropNode(name string) {
	edit(&s.Nodes, &s.own.nodes)
	delete(s.Nodes, name)
}

// PutReach replaces the routes to a destination.
func (s *State) PutReach(to overlay.Destination, routes []bgp.Route) {
	s.leave(to, routes)
	edit(&s.Reaches, &s.own.reaches)
	r, there := s.Reaches[to]
	if !there {
		s.Last++
		r.Number = s.Last
	}
	r.Routes, r.awaited = routes, nil
	s.Reaches[to] = r
}

// leave notes the next hop of a destination that has other routes from now on.
func (s *State) leave(to overlay.Destination, routes []bgp.Route) {
	before := s.Reaches[to].Routes
	if len(before) == 0 || !before[0].Best || len(routes) > 0 && routes[0].Best && routes[0].Address == before[0].Address {
		return
	}
	edit(&s.Left, &s.own.left)
	s.Left[before[0].Address] = time.Now()
}

// ForgetLeft removes the addresses that nodes have left for LeftTime.
func (s *State) ForgetLeft(now time.Time) {
	for a, since := range s.Left {
		if now.Sub(since) >= LeftTime {
			edit(&s.Left, &s.own.left)
			delete(s.Left, a)
		}
	}
}

// DropReach removes all routes to a destination.
func (s *State) DropReach(to overlay.Destination) {
	s.leave(to, nil)
	edit(&s.Reaches, &s.own.reaches)
	delete(s.Reaches, to)
}

// forget removes the paths and prefixes that the two functions choose.
func (s *State) forget(path func(Path) bool, reach func(Reach) bool) {
	for name, p := range s.Paths {
		if path(p) {
			s.DropPath(name)
		}
	}
	for to, r := range s.Reaches {
		if reach(r) {
			s.DropReach(to)
		}
	}
}

// MarkStale marks what peers say as the state of an earlier daemon. A watcher of
// Kubernetes needs no mark: it gets a list of what was there, and removes what is
// gone.
func (s *State) MarkStale() {
	edit(&s.Paths, &s.own.paths)
	for name, p := range s.Paths {
		p.Stale = p.Kube == ""
		s.Paths[name] = p
	}
	edit(&s.Reaches, &s.own.reaches)
	for to, r := range s.Reaches {
		r.awaited = nil
		for _, o := range r.Routes {
			r.awaited = append(r.awaited, o.From)
		}
		s.Reaches[to] = r
	}
}

// complete removes what a peer, which has sent everything now, has not sent
// again.
func (s *State) complete(peer netip.Addr) {
	s.forget(func(p Path) bool { return p.Stale && p.Peer == peer }, func(Reach) bool { return false })
	for to, r := range s.Reaches {
		if !slices.Contains(r.awaited, peer) {
			continue
		}
		r.awaited = slices.DeleteFunc(slices.Clone(r.awaited), func(a netip.Addr) bool { return a == peer })
		if len(r.awaited) == 0 {
			s.DropReach(to)
			continue
		}
		edit(&s.Reaches, &s.own.reaches)
		s.Reaches[to] = r
	}
}

// expire removes what is of an earlier daemon and nobody has sent again, except for peers to
// wait for.
func (s *State) expire(waitsFor func(peer netip.Addr) bool) {
	s.forget(func(p Path) bool { return p.Stale && !waitsFor(p.Peer) },
		func(r Reach) bool { return r.awaited != nil && !slices.ContainsFunc(r.awaited, waitsFor) })
}

// Cleared is s without anything in it.
func (s State) Cleared() State {
	s = s.Edit()
	s.forget(func(Path) bool { return true }, func(Reach) bool { return true })
	s.Nodes, s.Families, s.Self, s.Former, s.Left, s.Classes = nil, nil, Self{}, nil, nil, nil
	return s
}

// Update is one thing that somebody says.
type Update struct {
	Entry Entry // zero: the update is about several entries
	Apply func(*State)
	// Withdraw is in place of Apply where this node cannot use the entry; nil:
	// the state stays as it is.
	Withdraw func(*State)
	// Retry: a refused update is applied again from time to time, until another one
	// about its entry comes. What it conflicts with may be gone.
	Retry bool
	// KubeName is the watcher's name of the path; "": it is none of Kubernetes.
	KubeName string
}

// Refusal is an update that this node cannot use, and why.
type Refusal struct {
	Update
	Why error
}

// Entry names a part of a State.
type Entry struct {
	Kind EntryKind
	Key  string
}

// EntryKind is the kind of an Entry.
type EntryKind string

// The kinds, and the Key of each.
const (
	EntryPath     EntryKind = "candidate path" // name on this node
	EntryNode     EntryKind = "node"           // name
	EntryReach    EntryKind = "prefix"         // overlay.Destination
	EntryFamilies EntryKind = "families of"    // address of the BGP peer
	EntrySelf     EntryKind = "this node:"     // part of Self
	EntryClasses  EntryKind = "classes of"     // Kubernetes
)

// String is "node node-2".
func (e Entry) String() string { return string(e.Kind) + " " + e.Key }

// Queue holds updates until the agent takes them.
type Queue struct {
	mu      sync.Mutex
	updates []Update
	ready   chan struct{}
}

// NewQueue is an empty one.
func NewQueue() *Queue { return &Queue{ready: make(chan struct{}, 1)} }

// Ready receives after updates came. It is for one receiver.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Push adds an update. It never waits.
func (q *Queue) Push(u Update) {
	q.mu.Lock()
	q.updates = append(q.updates, u)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Take removes and returns all updates in the order in which they came.
func (q *Queue) Take() []Update {
	q.mu.Lock()
	defer q.mu.Unlock()
	updates := q.updates
	q.updates = nil
	return updates
}
