package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/srv6"
)

// Route is a prefix as a peer advertises it.
type Route struct {
	overlay.Reach
	Source
	// Distinguisher is that of a route of the VPN; empty: the cluster's own. Target is its
	// Route Target that the VPN imports.
	Distinguisher string
	Target        string
	Best          bool // this route is used
	// Equal says of a route that is not Best that only a tie-breaker makes the difference: who
	// sent it.
	Equal bool
	Why   string // this route is used, or not
}

// ReachHandler receives routes. Its methods and those of Handler are called one
// after the other.
type ReachHandler interface {
	// PutReach reports all routes to a destination after a change, the best first. None
	// of them is Best if the prefix belongs to this node.
	PutReach(overlay.Destination, []Route)
	// WithdrawReach reports a destination that no peer advertises any more.
	WithdrawReach(overlay.Destination)
}

// Families of prefixes.
var (
	unicastFamilies = []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC}
	vpnFamilies     = []bgp.Family{bgp.RF_IPv4_VPN, bgp.RF_IPv6_VPN}
)

// defaultLocalPref is the local preference of a route without one.
const defaultLocalPref = 100

// candidate is a route with the attributes for the choice.
type candidate struct {
	Route
	isStale    bool // its speaker has been away for long (RFC 9494)
	localPref  uint32
	pathLength int
	origin     uint8
	med        uint32
	external   bool
	clusters   int // length of the cluster list
}

// routeKey identifies a route of a prefix.
type routeKey struct {
	peer netip.Addr
	rd   string
}

// errNotForUs marks a valid route that this node cannot use.
var errNotForUs = errors.New("it is not for this node")

// reader reads routes.
type reader struct {
	asn  uint32
	vpns []*vpn // that routes are imported into
	// takesSIDs says whether SRv6 SIDs of a peer are accepted.
	takesSIDs func(peer netip.Addr) bool
	prefixes  []netip.Prefix // that are accepted; none: any
	onlyVPNs  bool           // unicast routes are the kernel's
}

// vpnsFor are the VPNs that a route may be for, by the label of its NLRI. For one without a
// label there is one answer: none, the cluster's own.
func (r reader) vpnsFor(label *uint32) []*vpn {
	if label == nil {
		return []*vpn{nil}
	}
	return r.vpns
}

// nlri returns prefix, key and label of a route.
func (r reader) nlri(p *apiutil.Path) (prefix netip.Prefix, key routeKey, label *uint32, ok bool) {
	key.peer = p.PeerAddress
	switch n := p.Nlri.(type) {
	case *bgp.IPAddrPrefix:
		return n.Prefix.Masked(), key, nil, true
	case *bgp.LabeledVPNIPAddrPrefix:
		key.rd, label = n.RD.String(), new(uint32)
		if len(n.Labels.Labels) > 0 {
			*label = n.Labels.Labels[0]
		}
		return n.Prefix.Masked(), key, label, true
	}
	return prefix, key, nil, false
}

// route reads an update about a prefix, for a VPN or, nil, for the cluster. The error wraps
// errNotForUs for a valid route that this node cannot use; otherwise the update is malformed.
func (r reader) route(v *vpn, p *apiutil.Path, prefix netip.Prefix, key routeKey, label *uint32) (candidate, error) {
	a := prefix.Addr()
	switch {
	case v == nil && r.onlyVPNs:
		return candidate{}, fmt.Errorf("%w: it is no node of a cluster", errNotForUs)
	case v == nil && prefix.Bits() == 0:
		return candidate{}, fmt.Errorf("%w: default routes are not accepted", errNotForUs)
	case a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast(), a.Is4In6(), a.IsUnspecified() && prefix.Bits() > 0:
		return candidate{}, fmt.Errorf("%w: %s cannot be a prefix of pods", errNotForUs, prefix)
	case v == nil && len(r.prefixes) > 0 && !slices.ContainsFunc(r.prefixes, func(p netip.Prefix) bool { return contains(p, prefix) }):
		return candidate{}, fmt.Errorf("%w: %s is in none of the accepted prefixes", errNotForUs, prefix)
	}
	c := newCandidate(p, r.asn)
	c.Tenant, c.Prefix, c.From, c.Distinguisher = v.id(), prefix, p.PeerAddress, key.rd
	return c, r.readWay(v, &c, p, label)
}

// contains says whether all of inner is in outer.
func contains(outer, inner netip.Prefix) bool {
	return outer.IsValid() && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// newCandidate reads what matters for the choice. Behind a route reflector the
// originator is not the peer.
func newCandidate(p *apiutil.Path, asn uint32) candidate {
	c := candidate{localPref: defaultLocalPref, external: p.PeerASN != asn}
	c.Source = Source{ASN: p.PeerASN, Node: p.PeerID, Peer: p.PeerAddress}
	for _, attr := range p.Attrs {
		switch v := attr.(type) {
		case *bgp.PathAttributeCommunities:
			c.isStale = slices.Contains(v.Value, uint32(bgp.COMMUNITY_LLGR_STALE))
		case *bgp.PathAttributeLocalPref:
			c.localPref = v.Value
		case *bgp.PathAttributeAsPath:
			for _, segment := range v.Value {
				c.pathLength += segment.ASLen()
			}
		case *bgp.PathAttributeOrigin:
			c.origin = v.Value
		case *bgp.PathAttributeMultiExitDisc:
			c.med = v.Value
		case *bgp.PathAttributeOriginatorId:
			c.Node = v.Value
		case *bgp.PathAttributeClusterList:
			c.clusters = len(v.Value)
		case *bgp.PathAttributeNextHop:
			c.Address = v.Value
		case *bgp.PathAttributeMpReachNLRI:
			c.Address = v.Nexthop
		}
	}
	return c
}

// readWay reads how packets reach the prefix: by a SID, or by the policies to the
// next hop.
func (r reader) readWay(v *vpn, c *candidate, p *apiutil.Path, label *uint32) error {
	if v != nil {
		if c.Target = v.imported(p.Attrs); c.Target == "" {
			return fmt.Errorf("%w: none of its Route Targets is imported", errNotForUs)
		}
	}
	if r.takesSIDs(p.PeerAddress) {
		s, err := readService(p.Attrs, label)
		if err == nil {
			c.Segments = []netip.Addr{s.SID}
			return nil
		}
		if !errors.Is(err, errNoService) {
			return err
		}
	}
	if label != nil {
		return fmt.Errorf("%w: %w", errNotForUs, errNoService)
	}
	if errs := srv6.CheckUnicast6("next hop", c.Address); len(errs) > 0 {
		return fmt.Errorf("%w: SRv6 cannot reach its next hop: %s", errNotForUs, errs[0].Problem)
	}
	return nil
}

// rules are the decision process of RFC 4271 section 9.1.2.2 (MED is compared
// between all neighbours) and RFC 4456 section 9. Before them, fresh routes win over
// stale ones (RFC 9494 section 4.3), and the cluster's own over those of a VPN.
var rules = append(slices.Clip(merits), tieBreakers...)

type rule struct {
	why     string
	compare func(a, b *candidate) int
}

// merits are the rules after which two routes are as good as each other.
var merits = []rule{
	{"fresh before stale", func(a, b *candidate) int { return compareBool(a.isStale, b.isStale) }},
	{"of the cluster before those of a VPN", func(a, b *candidate) int {
		return compareBool(a.Distinguisher != "", b.Distinguisher != "")
	}},
	{"highest local preference", func(a, b *candidate) int { return cmp.Compare(b.localPref, a.localPref) }},
	{"shortest AS path", func(a, b *candidate) int { return cmp.Compare(a.pathLength, b.pathLength) }},
	{"lowest origin", func(a, b *candidate) int { return cmp.Compare(a.origin, b.origin) }},
	{"lowest MED", func(a, b *candidate) int { return cmp.Compare(a.med, b.med) }},
	{"external before internal", func(a, b *candidate) int { return compareBool(b.external, a.external) }},
}

var tieBreakers = []rule{
	{"lowest router ID", func(a, b *candidate) int { return a.Node.Compare(b.Node) }},
	{"shortest cluster list", func(a, b *candidate) int { return cmp.Compare(a.clusters, b.clusters) }},
	{"lowest address of the peer", func(a, b *candidate) int { return a.Peer.Compare(b.Peer) }},
	{"lowest route distinguisher", func(a, b *candidate) int { return cmp.Compare(a.Distinguisher, b.Distinguisher) }},
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// decide compares two routes of a prefix and returns the rule that decided.
func decide(a, b *candidate) (int, string) {
	for _, r := range rules {
		if n := r.compare(a, b); n != 0 {
			return n, r.why
		}
	}
	return 0, ""
}

// isEqual says whether nothing but a tie-breaker tells two routes of a prefix apart.
func isEqual(a, b *candidate) bool {
	return !slices.ContainsFunc(merits, func(r rule) bool { return r.compare(a, b) != 0 })
}

// rib holds the routes to each destination.
type rib map[overlay.Destination]map[routeKey]*candidate

func (t rib) put(to overlay.Destination, key routeKey, c candidate) {
	if t[to] == nil {
		t[to] = map[routeKey]*candidate{}
	}
	t[to][key] = &c
}

func (t rib) remove(to overlay.Destination, key routeKey) {
	delete(t[to], key)
	if len(t[to]) == 0 {
		delete(t, to)
	}
}

// routes returns the routes to a destination, best first, with the reason. own are the
// prefixes of this node there, and its locator.
func (t rib) routes(to overlay.Destination, own []netip.Prefix) []Route {
	all := slices.SortedFunc(maps.Values(t[to]), func(a, b *candidate) int {
		n, _ := decide(a, b)
		return n
	})
	ours := slices.ContainsFunc(own, func(p netip.Prefix) bool { return contains(p, to.Prefix) })
	out := make([]Route, len(all))
	for i, c := range all {
		out[i] = c.Route
		switch {
		case ours:
			out[i].Why = "the prefix is of this node"
		case i > 0:
			out[i].Why, out[i].Equal = "stands by", isEqual(c, all[0])
		case len(all) == 1:
			out[i].Best, out[i].Why = true, "the only one"
		default:
			_, why := decide(c, all[1])
			out[i].Best, out[i].Why = true, why
		}
	}
	return out
}
