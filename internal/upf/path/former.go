package path

import (
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/session"
)

// formerFor is how long a session takes End Markers from a peer that it no longer sends to:
// the gNB that a UE has left forwards what is on its way, and then sends one.
const formerFor = 10 * time.Second

// formerPeers are the peers that sessions have left lately.
type formerPeers struct {
	until map[formerPeer]time.Time
	ages  []formerAge // oldest first
}

type formerPeer struct {
	seid uint64
	addr netip.Addr
}

type formerAge struct {
	formerPeer
	until time.Time
}

func (f *formerPeers) add(who formerPeer, now time.Time) {
	f.forget(now)
	until := now.Add(formerFor)
	f.until[who] = until
	f.ages = append(f.ages, formerAge{who, until})
}

func (f *formerPeers) has(who formerPeer, now time.Time) bool {
	f.forget(now)
	_, has := f.until[who]
	return has
}

// forget forgets those that are too old.
func (f *formerPeers) forget(now time.Time) {
	for len(f.ages) > 0 && !now.Before(f.ages[0].until) {
		if old := f.ages[0]; f.until[old.formerPeer] == old.until { // else it was added again
			delete(f.until, old.formerPeer)
		}
		f.ages = f.ages[1:]
	}
}

// sendsOn says whether a session sends on what arrives for a TEID of ours, and so End
// Markers. s may be nil.
func sendsOn(s *session.Session) bool {
	return s != nil && slices.ContainsFunc(s.PDRs, func(p session.PDR) bool {
		_, on := TunnelOf(s.FAR(p.FAR))
		return on && p.PDI.TEID != 0
	})
}

// TakesEndMarkers says whether a session takes End Markers from a peer: a gNB or UPF that
// it sends UEs' packets to, or did lately.
func (p *Paths) TakesEndMarkers(s *session.Session, from netip.Addr) bool {
	if slices.ContainsFunc(tunnelsOf(s), func(t tunnel) bool { return t.Addr == from && !t.control }) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.former.has(formerPeer{s.SEID, from}, p.o.Now())
}
