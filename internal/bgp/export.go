package bgp

import (
	"context"
	"fmt"
	"slices"

	"github.com/osrg/gobgp/v4/api"
)

// Names of the sets of the export policy.
const (
	setNoAdvertise = "no-advertise"
	setInternal    = "internal"
)

// setExport makes the export policy: only our own routes are advertised. A headend
// is not a transit, and NO_ADVERTISE must be respected. A route reflector passes on
// to internal peers what does not carry it.
func (s *Speaker) setExport(ctx context.Context) error {
	statements := []*api.Statement{{
		Name:       "ours",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}
	if slices.ContainsFunc(s.config.Peers, func(p Peer) bool { return p.Client }) {
		internal := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: setInternal}
		for _, p := range s.config.Peers {
			if p.ASN == s.config.ASN {
				internal.List = append(internal.List, fmt.Sprintf("%s/%d", p.Address, p.Address.BitLen()))
			}
		}
		for _, set := range []*api.DefinedSet{internal, {
			DefinedType: api.DefinedType_DEFINED_TYPE_COMMUNITY, Name: setNoAdvertise, List: []string{"^65535:65282$"},
		}} {
			if err := s.server.AddDefinedSet(ctx, &api.AddDefinedSetRequest{DefinedSet: set}); err != nil {
				return fmt.Errorf("make the export policy: %w", err)
			}
		}
		statements = append(statements, &api.Statement{
			Name:       setNoAdvertise,
			Conditions: &api.Conditions{CommunitySet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: setNoAdvertise}},
			Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT},
		}, &api.Statement{
			Name:       setInternal,
			Conditions: &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: setInternal}},
			Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
		})
	}
	const name = "export"
	if err := s.server.AddPolicy(ctx, &api.AddPolicyRequest{Policy: &api.Policy{Name: name, Statements: statements}}); err != nil {
		return fmt.Errorf("make the export policy: %w", err)
	}
	err := s.server.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies: []*api.Policy{{Name: name}}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
	if err != nil {
		return fmt.Errorf("set the export policy: %w", err)
	}
	return nil
}
