package bgp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// namedMost is how many headends a path for a route reflector names one by one.
const namedMost = 128

// advert is one path that this node advertises.
type advert struct {
	path   *apiutil.Path
	octets string // of its attributes
}

// announcer makes the paths of a node.
type announcer struct {
	routerID netip.Addr
	vpns     []*vpn
	withSIDs bool // unicast routes carry the node's SIDs
	locator  bool // the node's locator is advertised too
	// reflected: updates reach headends through route reflectors, which
	// NO_ADVERTISE would forbid. Paths then name the headends.
	reflected bool
}

// adverts returns the paths of a node by NLRI: its prefixes, those of its tenants, and a
// candidate path for each family.
func (a announcer) adverts(n overlay.Node, parts []overlay.Part, headends []netip.Addr) (map[string]advert, error) {
	all := map[string]advert{}
	add := func(f bgp.Family, nlri bgp.NLRI, attrs []bgp.PathAttributeInterface) error {
		return addAdvert(all, f, nlri, attrs)
	}
	if len(n.Prefixes) > 0 {
		if errs := srv6.CheckUnicast6("address", n.Address); len(errs) > 0 {
			return nil, fmt.Errorf("advertise the node: %w", errs[0])
		}
	}
	for _, p := range n.Prefixes {
		if err := a.prefix(n, p.Masked(), add); err != nil {
			return nil, err
		}
	}
	for _, p := range parts {
		if err := a.part(n, p, add); err != nil {
			return nil, err
		}
	}
	// The underlay must route the locator if a segment list has one segment, and it is in
	// the locator.
	in := func(list []netip.Addr) bool { return len(list) == 1 && n.Locator.Contains(list[0]) }
	if a.locator && (in(n.IPv4) || in(n.IPv6)) {
		nlri, attrs, err := unicastRoute(bgp.RF_IPv6_UC, n.Locator.Masked(), n.Address)
		if err != nil {
			return nil, err
		}
		if err := add(bgp.RF_IPv6_UC, nlri, attrs); err != nil {
			return nil, err
		}
	}
	return all, a.policies(n, headends, add)
}

// unicastRoute makes NLRI and attributes of a route.
func unicastRoute(f bgp.Family, p netip.Prefix, nextHop netip.Addr) (bgp.NLRI, []bgp.PathAttributeInterface, error) {
	nlri, err := bgp.NewIPAddrPrefix(p)
	if err != nil {
		return nil, nil, err
	}
	attrs, err := routeAttrs(f, nlri, nextHop)
	return nlri, attrs, err
}

// adder adds a path.
type adder func(bgp.Family, bgp.NLRI, []bgp.PathAttributeInterface) error

// addAdvert adds a path to adverts.
func addAdvert(all map[string]advert, f bgp.Family, nlri bgp.NLRI, attrs []bgp.PathAttributeInterface) error {
	p := &apiutil.Path{Family: f, Nlri: nlri, Attrs: attrs, Age: time.Now().Unix()}
	key, octets, err := octetsOfPath(p)
	if err != nil {
		return fmt.Errorf("advertise %s: %w", nlri, err)
	}
	all[key] = advert{p, octets}
	return nil
}

// octetsOfPath encodes a path: family and NLRI, and attributes.
func octetsOfPath(p *apiutil.Path) (key, octets string, err error) {
	nlri, err := p.Nlri.Serialize()
	if err != nil {
		return "", "", err
	}
	var all []byte
	for _, attr := range p.Attrs {
		b, err := attr.Serialize()
		if err != nil {
			return "", "", err
		}
		all = append(all, b...)
	}
	return fmt.Sprintf("%d/%s", p.Family, nlri), string(all), nil
}

// prefix adds the unicast route of a prefix, and that of the VPN.
func (a announcer) prefix(n overlay.Node, p netip.Prefix, add adder) error {
	unicast := unicastFamilies[1]
	if p.Addr().Is4() {
		unicast = unicastFamilies[0]
	}
	nlri, attrs, err := unicastRoute(unicast, p, n.Address)
	if err != nil {
		return err
	}
	v := a.vpnOf(0)
	s, err := serviceOf(n, p.Addr().Is4())
	if (a.withSIDs || v != nil) && err != nil {
		return fmt.Errorf("advertise %s: %w", p, err)
	}
	if a.withSIDs {
		attrs = append(attrs, writeService(s))
	}
	if err := add(unicast, nlri, attrs); err != nil || v == nil {
		return err
	}
	return addVPN(v, p, n.Address, s, add)
}

// part adds the route of a tenant's prefix.
func (a announcer) part(n overlay.Node, p overlay.Part, add adder) error {
	v := a.vpnOf(p.Tenant)
	if v == nil {
		return nil
	}
	codepoint, _ := srv6.Codepoint(srv6.EndDT46)
	return addVPN(v, p.Prefix, n.Address, structured(service{SID: p.SID, Behavior: codepoint}, n.Locator), add)
}

// vpnOf is the VPN of a tenant, or with 0 of the node's own prefixes. It may be nil.
func (a announcer) vpnOf(tenant uint8) *vpn {
	i := slices.IndexFunc(a.vpns, func(v *vpn) bool { return v.tenant == tenant })
	if i < 0 {
		return nil
	}
	return a.vpns[i]
}

// addVPN adds a route of a VPN (RFC 9252 sections 5.1 and 5.2).
func addVPN(v *vpn, p netip.Prefix, nextHop netip.Addr, s service, add adder) error {
	family := vpnFamilies[1]
	if p.Addr().Is4() {
		family = vpnFamilies[0]
	}
	labelled, err := bgp.NewLabeledVPNIPAddrPrefix(p, *bgp.NewMPLSLabelStack(labelImplicitNull), v.rd)
	if err != nil {
		return err
	}
	attrs, err := routeAttrs(family, labelled, nextHop)
	if err != nil {
		return err
	}
	return add(family, labelled, append(attrs, bgp.NewPathAttributeExtendedCommunities(v.exports), writeService(s)))
}

// routeAttrs returns the attributes of every route. IPv4 prefixes have an IPv6 next
// hop too (RFC 8950).
func routeAttrs(f bgp.Family, nlri bgp.NLRI, nextHop netip.Addr) ([]bgp.PathAttributeInterface, error) {
	reach, err := bgp.NewPathAttributeMpReachNLRI(f, []bgp.PathNLRI{{NLRI: nlri}}, nextHop)
	if err != nil {
		return nil, err
	}
	return []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), reach}, nil
}

// Lengths of the parts of this node's SIDs, in bits: a locator ends with the
// node's number, and the function follows.
const (
	nodeBits     = 16
	functionBits = 16
)

// serviceOf returns the SID by which others reach the node's prefixes.
func serviceOf(n overlay.Node, ipv4 bool) (service, error) {
	list, behavior := n.IPv6, srv6.EndDT6
	if ipv4 {
		list, behavior = n.IPv4, srv6.EndDT4
	}
	if len(list) != 1 {
		return service{}, fmt.Errorf("a route carries one SID, and the path to this node's pods has %d segments", len(list))
	}
	if slices.Equal(n.IPv4, n.IPv6) {
		behavior = srv6.EndDT46
	}
	codepoint, _ := srv6.Codepoint(behavior)
	return structured(service{SID: list[0], Behavior: codepoint}, n.Locator), nil
}

// structured has the lengths of the SID's parts, if it is in the locator.
func structured(s service, locator netip.Prefix) service {
	if bits := locator.Bits(); locator.IsValid() && locator.Contains(s.SID) && bits > nodeBits && bits+functionBits <= 128 {
		s.Block, s.Node, s.Function = uint8(bits-nodeBits), nodeBits, functionBits
	}
	return s
}

// policies adds a candidate path for each family that the node's pods have.
func (a announcer) policies(n overlay.Node, headends []netip.Addr, add adder) error {
	var to []netip.Addr // headends that the paths are for; none: every peer
	if a.reflected {
		to = slices.DeleteFunc(slices.Clone(headends), func(id netip.Addr) bool { return id == a.routerID })
		switch n := len(to); {
		case n == 0:
			return nil // there is nobody yet
		case n > namedMost:
			to = []netip.Addr{EveryNode}
		}
	}
	for _, of := range []struct {
		color    uint32
		suffix   string
		bsid     netip.Addr
		segments []netip.Addr
	}{{overlay.ColorIPv4, "/ipv4", n.BSID4, n.IPv4}, {overlay.ColorIPv6, "/ipv6", n.BSID6, n.IPv6}} {
		if len(of.segments) == 0 {
			continue
		}
		path := srpolicy.Advertised{
			Color: of.color, Endpoint: n.Address, BindingSID: of.bsid, Preference: srpolicy.DefaultPreference,
			SegmentLists: []srpolicy.SegmentList{{Segments: of.segments}},
		}
		if n.Name != "" {
			path.PolicyName = n.Name + of.suffix
		}
		// Another node that advertises a path to this one has another router ID.
		path.Distinguisher = binary.BigEndian.Uint32(a.routerID.AsSlice())
		nlri, attrs, err := writePolicy(path, n.Address, to)
		if err != nil {
			return fmt.Errorf("advertise the path to this node: %w", err)
		}
		if err := add(familyOf(n.Address), nlri, attrs); err != nil {
			return err
		}
	}
	return nil
}

// SetNode advertises n as this node, in place of what was advertised: its prefixes
// with its address as next hop, a candidate path for each family (colors
// overlay.ColorIPv4 and ColorIPv6), and its parts of tenants. The first call connects to the peers. Connecting
// earlier would let them forget this node's routes of before a restart.
func (s *Speaker) SetNode(n overlay.Node, parts ...overlay.Part) error {
	if s.reach == nil || s.config.Cluster == nil {
		return errNoCluster
	}
	s.reporting.Lock()
	s.reach.node, s.reach.parts = n, parts
	err := s.announce()
	for to := range s.reach.routes { // the node's own prefixes may have changed
		s.report(to)
	}
	s.reporting.Unlock()
	if err != nil {
		return err
	}
	return s.Connect()
}

// inOrder are the keys of adverts, candidate paths first: what leads to a policy comes after its
// paths, so that a node that moves to another address has policies there before routes.
func inOrder(all map[string]advert) []string {
	isRoute := func(key string) int {
		if f := all[key].path.Family; f == bgp.RF_SR_POLICY_IPv4 || f == bgp.RF_SR_POLICY_IPv6 {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(isRoute(a), isRoute(b)), cmp.Compare(a, b))
	})
}

// announce advertises and withdraws the difference to what is advertised.
// s.reporting is held.
func (s *Speaker) announce() error {
	r := s.reach
	r.named = r.headends()
	wanted, err := r.wanted()
	if err != nil {
		return err
	}
	for _, key := range inOrder(wanted) {
		if r.advertised[key].octets == wanted[key].octets {
			continue
		}
		if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{wanted[key].path}}); err != nil {
			return fmt.Errorf("advertise %s: %w", wanted[key].path.Nlri, err)
		}
		r.advertised[key] = wanted[key]
	}
	for _, key := range slices.Backward(inOrder(r.advertised)) {
		if _, stays := wanted[key]; stays {
			continue
		}
		if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{r.advertised[key].path}}); err != nil {
			return fmt.Errorf("withdraw %s: %w", r.advertised[key].path.Nlri, err)
		}
		delete(r.advertised, key)
	}
	return nil
}
