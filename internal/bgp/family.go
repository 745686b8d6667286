package bgp

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/logevent"
)

// spoken returns the families that are configured for a peer.
func (c *Config) spoken(p Peer) []Family {
	switch {
	case len(p.Families) > 0:
		return p.Families
	case p.ASN == c.ASN:
		return []Family{SRPolicy, Unicast, L3VPN}
	case c.Cluster != nil || c.Origin != nil:
		return []Family{Unicast}
	}
	return []Family{SRPolicy}
}

// familiesOf returns the address families that are configured for a peer.
func (s *Speaker) familiesOf(p Peer) (list []bgp.Family) {
	for _, f := range s.config.spoken(p) {
		switch {
		case f == SRPolicy:
			list = append(list, families...)
		case f == LinkState:
			list = append(list, lsFamilies...)
		case s.reach == nil:
		case f == Unicast:
			list = append(list, unicastFamilies...)
		case len(s.reach.announcer.vpns) > 0:
			list = append(list, vpnFamilies...)
		}
	}
	return list
}

// sessionUp compares the families of a peer whose session is up with ours.
func (s *Speaker) sessionUp(state apiutil.PeerState) {
	at := state.NeighborAddress
	i := slices.IndexFunc(s.config.Peers, func(p Peer) bool { return p.Address == at })
	if i < 0 {
		return
	}
	peer, theirs := s.config.Peers[i], map[bgp.Family]bool{}
	for _, c := range state.RemoteCap {
		if v, ok := c.(*bgp.CapMultiProtocol); ok {
			theirs[v.CapValue] = true
		}
	}
	s.reporting.Lock()
	defer s.reporting.Unlock()
	both, names, more := map[bgp.Family]bool{}, []string(nil), false
	var without []string
	for _, f := range s.familiesOf(peer) {
		if !theirs[f] {
			without = append(without, f.String())
			continue
		}
		names = append(names, f.String())
		if slices.Contains(s.offered[at], f) {
			both[f] = true
		} else {
			more = true
		}
	}
	s.awaited[at] = both
	s.sessions[at]++
	s.settle(at)
	if t := s.links[at]; t != nil {
		t.begin(time.Now())
		if !both[bgp.RF_LS] {
			t.finish() // it has nothing to say
		}
	}
	if len(without) > 0 {
		s.log.Info("BGP peer does not accept all configured families", "event", logevent.BGPFamiliesMissing, "peer", at, "without", without)
	}
	if s.config.Stale > 0 && !offersLongLived(state) {
		s.log.Info("BGP peer does not offer long-lived graceful restart (RFC 9494); its routes end soon after it is gone", "event", logevent.BGPNotLongLived, "peer", at)
	}
	if s.handler != nil {
		s.handler.Speaks(at, names)
	}
	forgot := s.forgot(state, both)
	switch {
	case s.stopped:
	case more: // than before this node's restart: the peer is offered all of them
		s.offered[at] = s.familiesOf(peer)
		go func() {
			s.log.Info("BGP peer accepts more families than before the restart; resetting the session", "event", logevent.BGPSessionReset, "peer", at)
			_, err := s.server.UpdatePeer(context.Background(), &api.UpdatePeerRequest{Peer: s.peer(peer)})
			s.logReset(at, err)
		}()
	case forgot:
		// GoBGP would otherwise wait for an End-of-RIB that does not come, and keep the
		// peer's old routes.
		go func() {
			s.log.Info("BGP peer lost its routes over its restart; resetting the session", "event", logevent.BGPSessionReset, "peer", at)
			s.logReset(at, s.server.ResetPeer(context.Background(), &api.ResetPeerRequest{Address: at.String()}))
		}()
	}
}

// offersLongLived says whether a peer has the capability of RFC 9494, without which its routes
// are not kept for long.
func offersLongLived(state apiutil.PeerState) bool {
	return slices.ContainsFunc(state.RemoteCap, func(c bgp.ParameterCapabilityInterface) bool {
		return c.Code() == bgp.BGP_CAP_LONG_LIVED_GRACEFUL_RESTART
	})
}

// sessionDown handles the end of a session.
func (s *Speaker) sessionDown(peer netip.Addr) {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.sessions[peer]++
	if t := s.links[peer]; t != nil {
		t.end(time.Now())
	}
}

// logReset logs that a session could not be reset.
func (s *Speaker) logReset(peer netip.Addr, err error) {
	if err != nil {
		s.log.Error("cannot reset a BGP session", "event", logevent.BGPResetFailed, "peer", peer, "error", err)
	}
}

// forgot says whether a peer has lost, over its restart, routes of a family that it
// said it would keep (RFC 4724 section 4.2). s.reporting is held.
func (s *Speaker) forgot(state apiutil.PeerState, spoken map[bgp.Family]bool) bool {
	var keeps []bgp.Family
	for _, c := range state.RemoteCap {
		if v, ok := c.(*bgp.CapGracefulRestart); ok && s.config.Restart > 0 {
			for _, t := range v.Tuples {
				if f := bgp.NewFamily(t.AFI, t.SAFI); spoken[f] {
					keeps = append(keeps, f)
				}
			}
		}
	}
	before := s.keeps[state.NeighborAddress]
	s.keeps[state.NeighborAddress] = keeps
	return slices.ContainsFunc(before, func(f bgp.Family) bool { return !slices.Contains(keeps, f) })
}
