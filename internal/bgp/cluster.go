package bgp

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"

	"github.com/culvert-net/culvert/internal/overlay"
)

// Cluster is a speaker's part as a node of a cluster: it tells the peers what is
// behind it (Speaker.SetNode), and hears what is behind others. It connects when
// it was told its node.
type Cluster struct {
	Handler ReachHandler
	// Prefixes are what is taken of others, and what is within; none: all but
	// default routes.
	Prefixes []netip.Prefix
	// SIDs has the node's unicast routes carry its SIDs (RFC 9252 section 5.3
	// and 5.4), for who knows no SR policies.
	SIDs bool
	// Locator has the node's locator advertised as an IPv6 prefix, where segment
	// lists need it to be routed.
	Locator bool
	VPN     *VPN // nil: none
	// Headends are the router IDs of nodes that were known before a restart: they
	// are named to route reflectors before they are heard of again.
	Headends []netip.Addr
}

// settle is how long a change of who is there waits for others that come at the
// same time.
const settle = 200 * time.Millisecond

// linger is how long a headend is still named after it was there last: to be named
// harms nobody, and not to be takes its paths away.
const linger = 5 * time.Minute

var errNoCluster = errors.New("this speaker is no node of a cluster")

// reach is what a speaker of a cluster knows.
type reach struct {
	handler   ReachHandler
	reader    reader
	announcer announcer

	// What follows is guarded by Speaker.telling.
	routes     rib
	told       map[netip.Prefix][]Route
	node       overlay.Node
	advertised map[string]advert
	seen       map[netip.Addr]time.Time // when headends were there last
	named      []netip.Addr             // whom the candidate paths name
	pending    bool                     // who is named will be looked at again
}

// newReach gives nil for a speaker that is no node of a cluster.
func newReach(c Config) (*reach, error) {
	if c.Cluster == nil {
		return nil, nil
	}
	v, err := parseVPN(c.Cluster.VPN)
	if err != nil {
		return nil, err
	}
	seen := map[netip.Addr]time.Time{}
	for _, id := range c.Cluster.Headends {
		seen[id] = time.Now()
	}
	byReflector := func(p Peer) bool { return p.RouteReflector || p.Client }
	return &reach{
		handler: c.Cluster.Handler,
		reader:  reader{asn: c.ASN, vpn: v, takesSIDs: c.takesSIDs, prefixes: c.Cluster.Prefixes},
		announcer: announcer{routerID: c.RouterID, vpn: v, withSIDs: c.Cluster.SIDs, locator: c.Cluster.Locator,
			reflected: slices.ContainsFunc(c.Peers, byReflector)},
		routes: rib{}, told: map[netip.Prefix][]Route{}, advertised: map[string]advert{}, seen: seen,
	}, nil
}

// EveryNode is the router ID that nobody has: a Route Target of it names all nodes
// of a cluster. Where there are many, each would otherwise hold the names of all
// others, with each of its paths.
var EveryNode = netip.IPv4Unspecified()

// names are the router IDs by which Route Targets name this node.
func (c *Config) names() []netip.Addr {
	if c.Cluster == nil {
		return []netip.Addr{c.RouterID}
	}
	return []netip.Addr{c.RouterID, EveryNode}
}

// takesSIDs says whether a peer is of the SR domain: what another says of SIDs is
// not believed (RFC 8669 section 5).
func (c *Config) takesSIDs(peer netip.Addr) bool {
	return slices.ContainsFunc(c.Peers, func(p Peer) bool {
		return p.Address.Unmap() == peer.Unmap() && slices.Contains(c.spoken(p), L3VPN)
	})
}

// headends are those to be named to route reflectors.
func (r *reach) headends() []netip.Addr {
	if !r.announcer.reflected {
		return nil
	}
	now := time.Now()
	for id := range r.routes.originators() {
		r.seen[id] = now
	}
	maps.DeleteFunc(r.seen, func(_ netip.Addr, last time.Time) bool { return now.Sub(last) > linger })
	return slices.SortedFunc(maps.Keys(r.seen), netip.Addr.Compare)
}

// learnReach takes what a peer says of a prefix.
func (s *Speaker) learnReach(p *apiutil.Path) {
	if prefix, key, label, ok := s.reach.reader.nlri(p); ok {
		s.route(p, prefix, key, label)
		s.tell(prefix)
	}
}

// route takes one route, or treats it as withdrawn.
func (s *Speaker) route(p *apiutil.Path, prefix netip.Prefix, key routeKey, label *uint32) {
	if p.Withdrawal {
		s.reach.routes.remove(prefix, key)
		return
	}
	c, err := s.reach.reader.route(p, prefix, key, label)
	switch {
	case err == nil:
		s.reach.routes.put(prefix, key, c)
		return
	case errors.Is(err, errNotForUs):
		s.log.Debug("a route is not taken", "peer", p.PeerAddress, "prefix", prefix, "error", err)
	default:
		s.log.Warn("a route is treated as withdrawn", "peer", p.PeerAddress, "prefix", prefix, "error", err)
		s.countMalformed(p.PeerAddress)
	}
	s.reach.routes.remove(prefix, key)
}

// tell tells the handler of a prefix what it was not told yet.
func (s *Speaker) tell(prefix netip.Prefix) {
	r := s.reach
	routes := r.routes.routes(prefix, append(slices.Clip(r.node.Prefixes), r.node.Locator))
	if slices.EqualFunc(routes, r.told[prefix], sameRoute) {
		return
	}
	if len(routes) == 0 {
		delete(r.told, prefix)
		r.handler.WithdrawReach(prefix)
		return
	}
	r.told[prefix] = routes
	r.handler.PutReach(prefix, slices.Clone(routes))
}

func sameRoute(a, b Route) bool {
	return a.Address == b.Address && a.Source == b.Source && a.Distinguisher == b.Distinguisher && a.Best == b.Best && a.Why == b.Why &&
		slices.Equal(a.Segments, b.Segments)
}

// tellAll is for when it changed what is of this node.
func (s *Speaker) tellAll() {
	for prefix := range s.reach.routes {
		s.tell(prefix)
	}
}

// rename names to route reflectors who is there now, soon.
func (s *Speaker) rename() {
	r := s.reach
	if !r.announcer.reflected || r.pending {
		return
	}
	r.pending = true
	time.AfterFunc(settle, func() {
		s.telling.Lock()
		defer s.telling.Unlock()
		r.pending = false
		if s.stopped || slices.Equal(r.named, r.headends()) {
			return
		}
		if err := s.announce(); err != nil {
			s.log.Error("cannot advertise the way to this node", "error", err)
		}
	})
}
