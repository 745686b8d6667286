package bgp

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
)

// Cluster configures a speaker as a node of a cluster: it advertises the node's
// prefixes (Speaker.SetNode) and receives those of other nodes. It connects at the
// first SetNode.
type Cluster struct {
	Handler ReachHandler
	// Prefixes are accepted from others, with all that is within them; none: all
	// but default routes.
	Prefixes []netip.Prefix
	// SIDs: the node's unicast routes carry its SIDs (RFC 9252 sections 5.3 and
	// 5.4), for peers without SR policies.
	SIDs bool
	// Locator: the node's locator is advertised as an IPv6 prefix if segment lists
	// need a route to it.
	Locator bool
	VPN     *VPN // of the node's own prefixes; nil: none
	// Tenants are the VPNs of tenants, whose prefixes on this node SetNode gets.
	Tenants []VPN
	// Headends are the router IDs of nodes that were known before a restart. Paths
	// sent to route reflectors name them before they are observed again.
	Headends []netip.Addr
}

// settle is how long a change of the known headends waits for more changes.
const settle = 200 * time.Millisecond

// linger is how long at least paths still name a headend that is gone: naming it is
// harmless, not naming it removes its paths.
const linger = 5 * time.Minute

var errNoCluster = errors.New("this speaker is not a node of a cluster")

// reach is the state of a speaker that exchanges prefixes.
type reach struct {
	handler   ReachHandler
	reader    reader
	announcer announcer

	// What follows is guarded by Speaker.reporting.
	routes     rib
	reported   map[overlay.Destination][]Route
	node       overlay.Node
	parts      []overlay.Part
	advertised map[string]advert
	seen       map[netip.Addr]time.Time // when each headend was last known
	lingers    time.Duration            // that paths name a headend that is gone
	named      []netip.Addr             // whom the candidate paths name
	pending    bool                     // rename is scheduled
	mine       []netip.Prefix           // that only this node may have
	originated map[string]advert        // by Originate
	foreign    map[foreignRoute]bool    // to mine, of peers
}

// newReach returns nil for a speaker that exchanges SR policies only.
func newReach(c Config) (*reach, error) {
	if c.Cluster == nil && c.Origin == nil {
		return nil, nil
	}
	cluster, all := cmp.Or(c.Cluster, &Cluster{}), []VPN(nil)
	if c.Cluster != nil {
		all = cluster.vpns()
	}
	handler := cluster.Handler
	if c.Origin != nil {
		all, handler = append(all, c.Origin.VPNs...), c.Origin.Handler
	}
	vpns, err := parseVPNs(all)
	if err != nil {
		return nil, err
	}
	seen := map[netip.Addr]time.Time{}
	for _, id := range cluster.Headends {
		seen[id] = time.Now()
	}
	byReflector := func(p Peer) bool { return p.RouteReflector || p.Client }
	// SIDs from peers outside of the SR domain are ignored (RFC 8669 section 5).
	takesSIDs := func(peer netip.Addr) bool {
		return slices.ContainsFunc(c.Peers, func(p Peer) bool {
			return p.Address.Unmap() == peer.Unmap() && slices.Contains(c.spoken(p), L3VPN)
		})
	}
	return &reach{
		handler: handler,
		reader:  reader{asn: c.ASN, vpns: vpns, takesSIDs: takesSIDs, prefixes: cluster.Prefixes, onlyVPNs: c.Cluster == nil},
		announcer: announcer{routerID: c.RouterID, vpns: vpns, withSIDs: cluster.SIDs, locator: cluster.Locator,
			reflected: slices.ContainsFunc(c.Peers, byReflector)},
		routes: rib{}, reported: map[overlay.Destination][]Route{}, advertised: map[string]advert{}, seen: seen, lingers: max(linger, c.Restart+c.Stale), foreign: map[foreignRoute]bool{},
	}, nil
}

// EveryNode is a router ID that no node has. A Route Target of it names all nodes of
// a large cluster, where each path would otherwise carry the names of all nodes.
var EveryNode = netip.IPv4Unspecified()

// names returns the router IDs by which Route Targets name this node.
func (c *Config) names() []netip.Addr {
	if c.Cluster == nil {
		return []netip.Addr{c.RouterID}
	}
	return []netip.Addr{c.RouterID, EveryNode}
}

// headends returns the router IDs that paths for route reflectors name.
func (r *reach) headends() []netip.Addr {
	if !r.announcer.reflected {
		return nil
	}
	now := time.Now()
	for _, routes := range r.routes {
		for _, c := range routes {
			if c.Distinguisher == "" && !c.external {
				r.seen[c.Node] = now
			}
		}
	}
	maps.DeleteFunc(r.seen, func(_ netip.Addr, last time.Time) bool { return now.Sub(last) > r.lingers })
	return slices.SortedFunc(maps.Keys(r.seen), netip.Addr.Compare)
}

// observeRoute handles an update about a prefix: it puts the route into the RIB, or
// treats it as withdrawn. A route of a VPN is for each tenant that imports it.
func (s *Speaker) observeRoute(p *apiutil.Path) {
	prefix, key, label, ok := s.reach.reader.nlri(p)
	if !ok {
		return
	}
	for _, v := range s.reach.reader.vpnsFor(label) {
		s.observeIn(v, p, prefix, key, label)
	}
}

// observeIn is observeRoute for one VPN; nil: for the cluster's own routes.
func (s *Speaker) observeIn(v *vpn, p *apiutil.Path, prefix netip.Prefix, key routeKey, label *uint32) {
	to := overlay.Destination{Tenant: v.id(), Prefix: prefix}
	defer s.report(to)
	if (v == nil || p.Withdrawal || v.imported(p.Attrs) != "") && s.foreign(to, key, p.Withdrawal) {
		s.reach.routes.remove(to, key)
		return
	}
	if p.Withdrawal {
		s.reach.routes.remove(to, key)
		return
	}
	c, err := s.reach.reader.route(v, p, prefix, key, label)
	switch {
	case err == nil:
		s.reach.routes.put(to, key, c)
		return
	case errors.Is(err, errNotForUs):
		s.log.Debug("route ignored", "peer", p.PeerAddress, "prefix", to, "error", err)
	default:
		s.log.Warn("route rejected; treating it as withdrawn", "event", logevent.BGPRouteRejected, "peer", p.PeerAddress, "prefix", to, "error", err)
		s.countMalformed(p.PeerAddress)
	}
	s.reach.routes.remove(to, key)
}

// own are the prefixes of this node in the table of a tenant, and its locator.
func (r *reach) own(tenant uint8) (out []netip.Prefix) {
	if tenant == 0 {
		return append(slices.Clip(r.node.Prefixes), r.node.Locator)
	}
	for _, p := range r.parts {
		if p.Tenant == tenant {
			out = append(out, p.Prefix)
		}
	}
	return out
}

// report reports the routes to a destination if they have changed.
func (s *Speaker) report(to overlay.Destination) {
	r := s.reach
	routes := r.routes.routes(to, r.own(to.Tenant))
	if slices.EqualFunc(routes, r.reported[to], sameRoute) {
		return
	}
	if len(routes) == 0 {
		delete(r.reported, to)
		r.handler.WithdrawReach(to)
		return
	}
	r.reported[to] = routes
	r.handler.PutReach(to, slices.Clone(routes))
}

func sameRoute(a, b Route) bool {
	return a.Address == b.Address && a.Source == b.Source && a.Distinguisher == b.Distinguisher && a.Target == b.Target && a.Best == b.Best && a.Why == b.Why &&
		slices.Equal(a.Segments, b.Segments)
}

// rename advertises the paths again, soon, if the known headends have changed.
func (s *Speaker) rename() {
	r := s.reach
	if !r.announcer.reflected || r.pending {
		return
	}
	r.pending = true
	time.AfterFunc(settle, func() {
		s.reporting.Lock()
		defer s.reporting.Unlock()
		r.pending = false
		if s.stopped || slices.Equal(r.named, r.headends()) {
			return
		}
		if err := s.announce(); err != nil {
			s.log.Error("cannot advertise the path to this node", "event", logevent.BGPAdvertiseFailed, "error", err)
		}
	})
}
