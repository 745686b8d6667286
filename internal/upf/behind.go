package upf

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/announce"
	"github.com/culvert-net/culvert/internal/session"
)

// behind are the sessions with networks behind their UEs: framed routes, and delegated
// prefixes, which are shorter than the /64 of a UE.
type behind struct {
	mu       sync.Mutex
	sessions map[uint64]announce.Session // by SEID
}

// put notes a session as it is now; nil: it exists no more.
func (b *behind) put(seid uint64, s *session.Session) {
	v := networksBehind(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(v.Routes) == 0:
		delete(b.sessions, seid)
	case b.sessions == nil:
		b.sessions = map[uint64]announce.Session{seid: v}
	default:
		b.sessions[seid] = v
	}
}

func networksBehind(s *session.Session) (v announce.Session) {
	if s == nil {
		return v
	}
	for i := range s.PDRs {
		p := &s.PDRs[i].PDI
		v.Routes = append(v.Routes, p.FramedRoutes...)
		for _, ue := range p.UE {
			if ue.Addr().Is6() && ue.Bits() < 64 {
				v.Routes = append(v.Routes, ue)
			}
		}
	}
	if len(v.Routes) > 0 {
		slices.SortFunc(v.Routes, netip.Prefix.Compare)
		v.Routes, v.UE = slices.Compact(v.Routes), s.UEs()
	}
	return v
}

// Behind lists the sessions of a UPF with networks behind their UEs, in no order.
func Behind(u *UPF) []announce.Session {
	u.behind.mu.Lock()
	defer u.behind.mu.Unlock()
	return slices.Collect(maps.Values(u.behind.sessions))
}
