package bgp

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/culvert-net/culvert/internal/logevent"
)

// LimitPause is how long a peer that advertises too much stays disconnected.
const LimitPause = time.Minute

// lookEvery is how often checkLimit runs while peers advertise something. GoBGP's
// own limit counts all routes with every update.
const lookEvery = time.Second

// checkLimit suspends peers that advertise too much of a family.
func (s *Speaker) checkLimit() {
	s.reporting.Lock()
	s.limitDue = false
	stopped := s.stopped
	s.reporting.Unlock()
	if stopped {
		return
	}
	most := map[netip.Addr]uint64{}
	err := s.server.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		at, err := netip.ParseAddr(p.GetConf().GetNeighborAddress())
		for _, f := range p.GetAfiSafis() {
			if err == nil {
				most[at] = max(most[at], f.GetState().GetReceived())
			}
		}
	})
	if err != nil {
		s.log.Error("cannot count the routes of BGP peers", "event", logevent.BGPLimitFailed, "error", err)
	}
	for peer, n := range most {
		if n > uint64(s.config.MaxPrefixes) {
			s.suspend(peer, n)
		}
	}
}

// suspend disconnects a peer for LimitPause.
func (s *Speaker) suspend(peer netip.Addr, n uint64) {
	pause := cmp.Or(s.config.pause, LimitPause)
	s.log.Error("BGP peer advertises too much; disconnecting it", "event", logevent.BGPMaxPrefixes, "peer", peer, "of_a_family", n, "max_prefixes", s.config.MaxPrefixes, "for", pause)
	err := s.server.DisablePeer(context.Background(), &api.DisablePeerRequest{Address: peer.String(), Communication: "too many prefixes"})
	if err != nil {
		s.log.Error("cannot disconnect a BGP peer", "event", logevent.BGPLimitFailed, "peer", peer, "error", err)
		return
	}
	time.AfterFunc(pause, func() {
		s.reporting.Lock()
		defer s.reporting.Unlock()
		if s.stopped {
			return
		}
		if err := s.server.EnablePeer(context.Background(), &api.EnablePeerRequest{Address: peer.String()}); err != nil {
			s.log.Error("cannot connect to a BGP peer again", "event", logevent.BGPLimitFailed, "peer", peer, "error", err)
		}
	})
}
