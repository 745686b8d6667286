package pfcp

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// standing is how far a sender is believed to be an SMF. UDP sources can be forged:
// an association alone proves nothing.
type standing uint8

const (
	unknown    standing = iota // it has no association
	unproven                   // it has one, and has answered no heartbeat of ours yet
	knownAsSMF                 // it has answered one, or smfs names its address
)

// standingOf returns the standing of an address that we listen to.
func (s *Server) standingOf(addr netip.Addr) standing {
	of := s.peers.Load().at(addr)
	for _, a := range of {
		if a.proven.Load() {
			return knownAsSMF
		}
	}
	switch {
	case s.smfs.Load().names(addr):
		return knownAsSMF
	case len(of) > 0:
		return unproven
	}
	return unknown
}

// topic is what a request is about.
type topic uint8

const (
	heartbeat    topic = iota
	aboutSession       // establishment, modification, deletion
	aboutNode          // all others
	topics
)

// budget limits the requests of some senders together, by topic.
type budget [topics]*rate.Limiter

const (
	// nodeBurst is how many requests about the node may come at once from all senders
	// together that we do not know.
	nodeBurst = 256
	// knownNodeRate is how many of them one SMF may send in a second, or at once.
	// Nothing else of an SMF that we know is limited.
	knownNodeRate = 1000
)

func newBudget(heartbeats, sessions, nodes int) (b budget) {
	b[heartbeat] = rate.NewLimiter(rate.Limit(heartbeats), heartbeats)
	b[aboutSession] = rate.NewLimiter(rate.Limit(sessions), sessions)
	b[aboutNode] = rate.NewLimiter(rate.Limit(nodes), nodeBurst)
	return b
}

// limits bound what floods make us do (docs/reference/semantics.md, "Floods on N4").
// All senders of a standing share one budget, apart from the SMFs that we know.
type limits struct {
	unknown, unproven budget
	mu                sync.Mutex
	known             map[netip.Addr]*rate.Limiter // of requests about the node
}

func newLimits() *limits {
	return &limits{
		unknown:  newBudget(1000, 1000, 20),
		unproven: newBudget(1000, 20_000, 20),
		known:    map[netip.Addr]*rate.Limiter{},
	}
}

// take says whether a sender may ask for one thing more, and whether we should ask it
// for its heartbeat: half of what it shares with others is used up.
func (l *limits) take(from netip.Addr, is standing, what topic) (ok, ask bool) {
	switch {
	case l == nil:
		return true, false
	case is == knownAsSMF && what != aboutNode:
		return true, false
	case is == knownAsSMF:
		return l.ofKnown(from).Allow(), false
	case is == unknown:
		return l.unknown[what].Allow(), false
	}
	shared, now := l.unproven[what], time.Now()
	ok = shared.AllowN(now, 1)
	return ok, shared.TokensAt(now) < float64(shared.Burst()/2)
}

// ofKnown returns the limiter of an SMF's requests about the node.
func (l *limits) ofKnown(from netip.Addr) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.known[from]
	if own == nil {
		if len(l.known) >= 4*maxAssociations { // their SMFs may have gone
			clear(l.known)
		}
		own = rate.NewLimiter(knownNodeRate, knownNodeRate)
		l.known[from] = own
	}
	return own
}
