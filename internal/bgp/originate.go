package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/announce"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/srv6"
)

// Origin configures a speaker that advertises prefixes of its own (Speaker.Originate)
// beside those of a cluster.
type Origin struct {
	// Handler receives the routes of the VPNs.
	Handler ReachHandler
	// VPNs that prefixes are advertised in, and that routes of peers are imported into.
	VPNs []VPN
}

// Originated is a prefix that this node advertises.
type Originated struct {
	Prefix netip.Prefix
	// NextHop is this node's address; not valid: that of the session.
	NextHop         netip.Addr
	Communities     []string // see announce.ParseCommunity
	LocalPreference uint32   // 0: none is said
	// Tenant is the VPN that it is advertised in, with SID, an End.DT46; 0: as a unicast
	// route. Locator is that of the SID, if it is known.
	Tenant  uint8
	SID     netip.Addr
	Locator netip.Prefix
}

// Same says whether the two are advertised alike.
func (o Originated) Same(p Originated) bool {
	return o.Prefix == p.Prefix && o.NextHop == p.NextHop && slices.Equal(o.Communities, p.Communities) && o.LocalPreference == p.LocalPreference &&
		o.Tenant == p.Tenant && o.SID == p.SID && o.Locator == p.Locator
}

var errNoOrigin = errors.New("this speaker advertises no prefixes of its own")

// Originate advertises exactly a list of prefixes, and whatever a node of a cluster
// advertises. mine are the prefixes that only this node may have, advertised or not: a
// peer's routes to them, or to a part of them, are not used, and never replace this
// node's. The first call connects to the peers, unless the speaker is also a node of a
// cluster.
func (s *Speaker) Originate(mine []netip.Prefix, list []Originated) error {
	if s.reach == nil || s.config.Origin == nil {
		return errNoOrigin
	}
	adverts := map[string]advert{}
	for _, o := range list {
		if err := s.reach.announcer.originate(o, adder(func(f bgp.Family, nlri bgp.NLRI, attrs []bgp.PathAttributeInterface) error {
			return addAdvert(adverts, f, nlri, attrs)
		})); err != nil {
			return fmt.Errorf("advertise %s: %w", o.Prefix, err)
		}
	}
	if err := s.guard(mine); err != nil {
		return err
	}
	s.reporting.Lock()
	s.reach.mine, s.reach.originated = mine, adverts
	err := s.announce()
	for to := range s.reach.routes {
		s.report(to)
	}
	s.reporting.Unlock()
	if err != nil || s.config.Cluster != nil {
		return err
	}
	return s.Connect()
}

// originate adds the route of a prefix.
func (a announcer) originate(o Originated, add adder) error {
	family := unicastFamilies[1]
	unspecified := netip.IPv6Unspecified()
	if o.Prefix.Addr().Is4() {
		family, unspecified = unicastFamilies[0], netip.IPv4Unspecified()
	}
	nextHop := o.NextHop
	if !nextHop.IsValid() {
		nextHop = unspecified
	}
	more, err := communities(o.Communities)
	if err != nil {
		return err
	}
	if o.LocalPreference != 0 {
		more = append(more, bgp.NewPathAttributeLocalPref(o.LocalPreference))
	}
	with := func(f bgp.Family, nlri bgp.NLRI, attrs []bgp.PathAttributeInterface) error {
		return add(f, nlri, append(attrs, more...))
	}
	if o.Tenant != 0 {
		v := a.vpnOf(o.Tenant)
		if v == nil {
			return fmt.Errorf("there is no VPN with the id %d", o.Tenant)
		}
		if errs := srv6.CheckUnicast6("next hop", o.NextHop); len(errs) > 0 {
			return errs[0]
		}
		codepoint, _ := srv6.Codepoint(srv6.EndDT46)
		return addVPN(v, o.Prefix, o.NextHop, structured(service{SID: o.SID, Behavior: codepoint}, o.Locator), with)
	}
	nlri, attrs, err := unicastRoute(family, o.Prefix, nextHop)
	if err != nil {
		return err
	}
	return with(family, nlri, attrs)
}

// communities encodes a list, standard ones and large ones.
func communities(list []string) (out []bgp.PathAttributeInterface, err error) {
	var standard []uint32
	var large []*bgp.LargeCommunity
	for _, text := range list {
		parts, err := announce.ParseCommunity(text)
		switch {
		case err != nil:
			return nil, err
		case len(parts) == 3:
			large = append(large, bgp.NewLargeCommunity(parts[0], parts[1], parts[2]))
		case len(parts) == 2:
			standard = append(standard, parts[0]<<16|parts[1])
		default:
			standard = append(standard, parts[0])
		}
	}
	if len(standard) > 0 {
		out = append(out, bgp.NewPathAttributeCommunities(standard))
	}
	if len(large) > 0 {
		out = append(out, bgp.NewPathAttributeLargeCommunities(large))
	}
	return out, nil
}

// leastPreference is what peers' routes to this node's own prefixes get: with a higher one
// they would replace its own in the RIB, and peers would see these withdrawn.
const leastPreference = 1

// Names of the sets of the import policy.
const (
	setMine4 = "mine-4"
	setMine6 = "mine-6"
)

// setImport makes the import policy for the prefixes that guard sets. A set without any
// would have no family: it begins with the unspecified address.
func (s *Speaker) setImport(ctx context.Context) error {
	if err := s.addMine([]netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 32), netip.PrefixFrom(netip.IPv6Unspecified(), 128)}); err != nil {
		return err
	}
	accept := api.RouteAction_ROUTE_ACTION_ACCEPT
	statements := []*api.Statement{{
		Name:       "from-here",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: accept},
	}}
	for _, set := range []string{setMine4, setMine6} {
		statements = append(statements, &api.Statement{
			Name:       set,
			Conditions: &api.Conditions{PrefixSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: set}},
			Actions:    &api.Actions{RouteAction: accept, LocalPref: &api.LocalPrefAction{Value: leastPreference}},
		})
	}
	const name = "import"
	if err := s.server.AddPolicy(ctx, &api.AddPolicyRequest{Policy: &api.Policy{Name: name, Statements: statements}}); err != nil {
		return fmt.Errorf("make the import policy: %w", err)
	}
	err := s.server.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		Policies: []*api.Policy{{Name: name}}, DefaultAction: accept,
	}})
	if err != nil {
		return fmt.Errorf("set the import policy: %w", err)
	}
	return nil
}

// mineSets are sets of the import policy with prefixes, those of a family in each.
func mineSets(list []netip.Prefix) (out []*api.DefinedSet) {
	for _, name := range []string{setMine4, setMine6} {
		set := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX, Name: name}
		for _, p := range list {
			if p.Addr().Is4() == (name == setMine4) {
				set.Prefixes = append(set.Prefixes, &api.Prefix{
					IpPrefix: p.Masked().String(), MaskLengthMin: uint32(p.Bits()), MaskLengthMax: uint32(p.Addr().BitLen()),
				})
			}
		}
		if len(set.Prefixes) > 0 {
			out = append(out, set)
		}
	}
	return out
}

// addMine adds prefixes to the import policy. GoBGP's statements go on with a set that is
// replaced: sets only grow and shrink.
func (s *Speaker) addMine(list []netip.Prefix) error {
	for _, set := range mineSets(list) {
		if err := s.server.AddDefinedSet(context.Background(), &api.AddDefinedSetRequest{DefinedSet: set}); err != nil {
			return fmt.Errorf("add to the prefixes of this node: %w", err)
		}
	}
	return nil
}

// guard sets the prefixes that only this node may have, and has the routes that peers have
// sent judged again.
func (s *Speaker) guard(mine []netip.Prefix) error {
	s.reporting.Lock()
	was := s.reach.mine
	s.reporting.Unlock()
	if slices.Equal(was, mine) {
		return nil
	}
	without := func(list, others []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return slices.Contains(others, p) })
	}
	if err := s.addMine(without(mine, was)); err != nil {
		return err
	}
	for _, set := range mineSets(without(was, mine)) {
		if err := s.server.DeleteDefinedSet(context.Background(), &api.DeleteDefinedSetRequest{DefinedSet: set}); err != nil {
			return fmt.Errorf("remove from the prefixes of this node: %w", err)
		}
	}
	for _, p := range s.config.Peers {
		err := s.server.ResetPeer(context.Background(), &api.ResetPeerRequest{
			Address: p.Address.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_IN,
		})
		if err != nil {
			s.log.Debug("no routes to judge again", "peer", p.Address, "error", err) // it is not connected
		}
	}
	return nil
}

// mostForeign is how many foreign routes are remembered: each is logged once.
const mostForeign = 1000

// foreign counts and logs a peer's route to a prefix that only this node may have. It says
// whether it is one. s.reporting is held.
func (s *Speaker) foreign(to overlay.Destination, key routeKey, isWithdrawal bool) bool {
	r := s.reach
	if !slices.ContainsFunc(r.mine, func(p netip.Prefix) bool { return contains(p, to.Prefix) }) {
		return false
	}
	at := foreignRoute{to.Prefix, key}
	switch known := r.foreign[at]; {
	case isWithdrawal:
		delete(r.foreign, at)
		return true
	case !known && len(r.foreign) < mostForeign:
		r.foreign[at] = true
		s.log.Warn("BGP peer advertises a prefix of this node; ignoring it", "event", logevent.BGPForeignPrefix, "peer", key.peer, "prefix", to.Prefix, "route_distinguisher", key.rd)
	}
	s.mu.Lock()
	s.intruding[key.peer]++
	s.mu.Unlock()
	return true
}

// foreignRoute is a route of a peer to a prefix of this node.
type foreignRoute struct {
	prefix netip.Prefix
	key    routeKey
}

// wanted is all that is to be advertised.
func (r *reach) wanted() (map[string]advert, error) {
	all, err := r.announcer.adverts(r.node, r.parts, r.named)
	if err == nil {
		maps.Copy(all, r.originated)
	}
	return all, err
}
