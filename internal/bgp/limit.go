package bgp

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// LimitPause is for how long a peer that advertises too much is not heard.
const LimitPause = time.Minute

// lookEvery is how often it is looked at how much peers advertise, while they
// advertise something. GoBGP's own limit counts all that there is with every update.
const lookEvery = time.Second

// lookSoon has it looked at. s.telling is held.
func (s *Speaker) lookSoon() {
	if s.config.MaxPrefixes == 0 || s.looking || s.stopped {
		return
	}
	s.looking = true
	time.AfterFunc(lookEvery, s.limit)
}

// limit disconnects peers that advertise too much of a family.
func (s *Speaker) limit() {
	s.telling.Lock()
	s.looking = false
	stopped := s.stopped
	s.telling.Unlock()
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
		s.log.Error("cannot say how much BGP peers advertise", "error", err)
	}
	for peer, n := range most {
		if n > uint64(s.config.MaxPrefixes) {
			s.tooMuch(peer, n)
		}
	}
}

// tooMuch disconnects a peer, and lets it come back after a while.
func (s *Speaker) tooMuch(peer netip.Addr, n uint64) {
	pause := cmp.Or(s.config.pause, LimitPause)
	s.log.Error("a BGP peer advertises too much: it is disconnected", "peer", peer, "of_a_family", n, "max_prefixes", s.config.MaxPrefixes, "for", pause)
	err := s.server.DisablePeer(context.Background(), &api.DisablePeerRequest{Address: peer.String(), Communication: "too many prefixes"})
	if err != nil {
		s.log.Error("cannot disconnect a BGP peer", "peer", peer, "error", err)
		return
	}
	time.AfterFunc(pause, func() {
		s.telling.Lock()
		defer s.telling.Unlock()
		if s.stopped {
			return
		}
		if err := s.server.EnablePeer(context.Background(), &api.EnablePeerRequest{Address: peer.String()}); err != nil {
			s.log.Error("cannot connect to a BGP peer again", "peer", peer, "error", err)
		}
	})
}
