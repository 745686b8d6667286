package bgp

import (
	"context"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/config/oc"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// spoken are the families that are meant for a peer.
func (c *Config) spoken(p Peer) []Family {
	switch {
	case len(p.Families) > 0:
		return p.Families
	case p.ASN == c.ASN:
		return []Family{SRPolicy, Unicast, L3VPN}
	case c.Cluster != nil:
		return []Family{Unicast}
	}
	return []Family{SRPolicy}
}

// numbers are what the API of GoBGP calls address families. It makes tables of those
// that it is told, two of 200 KiB for each, and of all that it knows unless it is told.
func numbers(list []bgp.Family) (out []uint32) {
	for _, f := range list {
		out = append(out, uint32(oc.AfiSafiType(f.String()).ToInt()))
	}
	return out
}

// familiesOf are the address families that are meant for a peer.
func (s *Speaker) familiesOf(p Peer) (list []bgp.Family) {
	for _, f := range s.config.spoken(p) {
		switch {
		case f == SRPolicy:
			list = append(list, families...)
		case s.reach == nil:
		case f == Unicast:
			list = append(list, unicastFamilies...)
		case s.reach.announcer.vpn != nil:
			list = append(list, vpnFamilies...)
		}
	}
	return list
}

// offer are those of them that a peer is offered. A node that restarts ends each
// family that it has offered with End-of-RIB, also those that the peer did not take,
// once it has waited long enough for peers that are away (deferral). FRR answers
// what it does not know by ending the session, and with it what it had kept. So what
// it did not take before the restart it is not offered after it.
func (s *Speaker) offer(p Peer) []bgp.Family {
	meant := s.familiesOf(p)
	if !s.config.Restarting || len(p.Spoken) == 0 {
		return meant
	}
	return slices.DeleteFunc(meant, func(f bgp.Family) bool { return !slices.Contains(p.Spoken, f.String()) })
}

// begun looks at what a peer speaks whose session is up.
func (s *Speaker) begun(state apiutil.PeerState) {
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
	s.telling.Lock()
	defer s.telling.Unlock()
	both, names, more := map[bgp.Family]bool{}, []string(nil), false
	var without []string
	for _, f := range s.familiesOf(peer) {
		offered := slices.Contains(s.offered[at], f)
		switch {
		case !theirs[f]:
			without = append(without, f.String())
			continue
		case offered:
			both[f] = true
		}
		more = more || !offered
		names = append(names, f.String())
	}
	s.awaited[at] = both
	if len(without) > 0 {
		s.log.Info("a BGP peer does not speak all that is meant for it: it is told the rest", "peer", at, "without", without)
	}
	if s.handler != nil {
		s.handler.Speaks(at, names)
	}
	forgot := s.forgot(state, both)
	switch {
	case s.stopped:
	case more:
		s.offered[at] = s.familiesOf(peer)
		go s.offerAgain(peer)
	case forgot:
		go s.beginAnew(at)
	}
}

// forgot says that a peer has not kept, of what is spoken with it, what it said that
// it would over its restart (RFC 4724 section 4.2). s.telling is held.
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

// beginAnew is for a peer that forgot: GoBGP would wait for an End-of-RIB that does
// not come, and hold what the peer told before its restart until then.
func (s *Speaker) beginAnew(peer netip.Addr) {
	s.log.Info("a BGP peer has not kept what it told before its restart: its session begins anew", "peer", peer)
	if err := s.server.ResetPeer(context.Background(), &api.ResetPeerRequest{Address: peer.String()}); err != nil {
		s.log.Error("cannot begin a session anew", "peer", peer, "error", err)
	}
}

// offerAgain is for a peer that speaks more than it did before this node
// restarted: a session of all that begins anew.
func (s *Speaker) offerAgain(p Peer) {
	s.log.Info("a BGP peer speaks more than before the restart: its session begins anew", "peer", p.Address)
	if _, err := s.server.UpdatePeer(context.Background(), &api.UpdatePeerRequest{Peer: s.peerNow(p)}); err != nil {
		s.log.Error("cannot begin a session anew", "peer", p.Address, "error", err)
	}
}

func (s *Speaker) peerNow(p Peer) *api.Peer {
	s.telling.Lock()
	defer s.telling.Unlock()
	return s.peer(p)
}
