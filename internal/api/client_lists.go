package api

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
)

// decoded returns the structs of messages that a call returned with err.
func decoded[T any, M proto.Message](c *Client, list []M, err error) ([]T, error) {
	if err != nil {
		return nil, c.fail(err)
	}
	return message.DecodeList[T](list)
}

// fetch calls a List method and returns the structs of its messages.
func fetch[T any, M proto.Message, Q, R any](ctx context.Context, c *Client, call func(context.Context, *Q) (*R, error), q *Q, get func(*R) []M) ([]T, error) {
	m, err := call(ctx, q)
	return decoded[T](c, get(m), err)
}

// orEmpty is list, or an empty one for nil: JSON has [] for it.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Status returns the state of the daemon at a glance.
func (c *Client) Status(ctx context.Context) (agent.Status, error) {
	m, err := c.rpc.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return agent.Status{}, c.fail(err)
	}
	s, err := message.Decode[agent.Status](m)
	s.Interfaces, s.Outcomes = orEmpty(s.Interfaces), orEmpty(s.Outcomes)
	return s, err
}

// Interfaces returns the interfaces, or the one that key names; the other lists
// are alike.
func (c *Client) Interfaces(ctx context.Context, key string) ([]agent.InterfaceStatus, error) {
	return fetch[agent.InterfaceStatus](ctx, c, c.rpc.ListInterfaces, &pb.ListInterfacesRequest{Key: key}, (*pb.ListInterfacesResponse).GetInterfaces)
}

// Locators returns the locators.
func (c *Client) Locators(ctx context.Context, key string) ([]agent.LocatorStatus, error) {
	return fetch[agent.LocatorStatus](ctx, c, c.rpc.ListLocators, &pb.ListLocatorsRequest{Key: key}, (*pb.ListLocatorsResponse).GetLocators)
}

// SIDs returns the local SIDs.
func (c *Client) SIDs(ctx context.Context, key string) ([]agent.SIDStatus, error) {
	return fetch[agent.SIDStatus](ctx, c, c.rpc.ListSIDs, &pb.ListSIDsRequest{Key: key}, (*pb.ListSIDsResponse).GetSids)
}

// Policies returns the SR policies.
func (c *Client) Policies(ctx context.Context, key string) ([]agent.PolicyStatus, error) {
	return fetch[agent.PolicyStatus](ctx, c, c.rpc.ListPolicies, &pb.ListPoliciesRequest{Key: key}, (*pb.ListPoliciesResponse).GetPolicies)
}

// Steerings returns the steering entries.
func (c *Client) Steerings(ctx context.Context, key string) ([]agent.SteeringStatus, error) {
	return fetch[agent.SteeringStatus](ctx, c, c.rpc.ListSteering, &pb.ListSteeringRequest{Key: key}, (*pb.ListSteeringResponse).GetSteering)
}

// Nodes returns the other nodes of the cluster, by name.
func (c *Client) Nodes(ctx context.Context, key string) ([]agent.NodeStatus, error) {
	return fetch[agent.NodeStatus](ctx, c, c.rpc.ListNodes, &pb.ListNodesRequest{Key: key}, (*pb.ListNodesResponse).GetNodes)
}

// BGPPeers returns the node's BGP sessions, by the peer's address.
func (c *Client) BGPPeers(ctx context.Context, key string) ([]agent.BGPPeerStatus, error) {
	return fetch[agent.BGPPeerStatus](ctx, c, c.rpc.ListBGPPeers, &pb.ListBGPPeersRequest{Key: key}, (*pb.ListBGPPeersResponse).GetPeers)
}

// CandidatePaths returns the candidate paths of policies.
func (c *Client) CandidatePaths(ctx context.Context, key string) ([]agent.CandidatePathStatus, error) {
	return fetch[agent.CandidatePathStatus](ctx, c, c.rpc.ListCandidatePaths, &pb.ListCandidatePathsRequest{Key: key}, (*pb.ListCandidatePathsResponse).GetCandidatePaths)
}

// Tunnels returns the GTP-U tunnels.
func (c *Client) Tunnels(ctx context.Context, key string) ([]agent.TunnelStatus, error) {
	return fetch[agent.TunnelStatus](ctx, c, c.rpc.ListTunnels, &pb.ListTunnelsRequest{Key: key}, (*pb.ListTunnelsResponse).GetTunnels)
}

// Adjacencies returns the next hops.
func (c *Client) Adjacencies(ctx context.Context, key string) ([]agent.AdjacencyStatus, error) {
	return fetch[agent.AdjacencyStatus](ctx, c, c.rpc.ListAdjacencies, &pb.ListAdjacenciesRequest{Key: key}, (*pb.ListAdjacenciesResponse).GetAdjacencies)
}

// Outcomes returns how packets' journeys ended, by reason.
func (c *Client) Outcomes(ctx context.Context, key string) ([]agent.Outcome, error) {
	return fetch[agent.Outcome](ctx, c, c.rpc.ListOutcomes, &pb.ListOutcomesRequest{Key: key}, (*pb.ListOutcomesResponse).GetOutcomes)
}

// Slices returns the slices.
func (c *Client) Slices(ctx context.Context, key string) ([]agent.SliceStatus, error) {
	return fetch[agent.SliceStatus](ctx, c, c.rpc.ListSlices, &pb.ListSlicesRequest{Key: key}, (*pb.ListSlicesResponse).GetSlices)
}

// Associations returns the PFCP associations, by Node ID.
func (c *Client) Associations(ctx context.Context, key string) ([]agent.AssociationStatus, error) {
	all, err := fetch[agent.AssociationStatus](ctx, c, c.rpc.ListAssociations, &pb.ListAssociationsRequest{Key: key}, (*pb.ListAssociationsResponse).GetAssociations)
	for i := range all {
		all[i].Addrs = orEmpty(all[i].Addrs)
	}
	return all, err
}

// Pods returns the pods on the node, by namespace/name.
func (c *Client) Pods(ctx context.Context, key string) ([]agent.PodStatus, error) {
	all, err := fetch[agent.PodStatus](ctx, c, c.rpc.ListPods, &pb.ListPodsRequest{Key: key}, (*pb.ListPodsResponse).GetPods)
	for i := range all {
		all[i].Addresses = orEmpty(all[i].Addresses)
	}
	return all, err
}

// Sessions returns the sessions that match a filter, and how many match in total.
func (c *Client) Sessions(ctx context.Context, f agent.SessionFilter) (list []agent.SessionStatus, total int, err error) {
	request := &pb.ListSessionsRequest{}
	if err := message.Encode(&f, request); err != nil {
		return nil, 0, err
	}
	m, err := c.rpc.ListSessions(ctx, request)
	list, err = decoded[agent.SessionStatus](c, m.GetSessions(), err)
	return list, int(m.GetTotal()), err
}
