package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/pods"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
)

// encoded fills the list in a response with what the agent returned with err.
func encoded[R proto.Message, T any](response R, all []T, err error) (R, error) {
	if err != nil {
		return response, err
	}
	return response, message.EncodeList(all, response)
}

// list fills the list in a response with what read returns: all, or the one that key
// names.
func list[R proto.Message, T any](response R, read func() ([]T, error), kind desired.Kind, key string, keyOf func(T) string) (R, error) {
	all, err := read()
	if err == nil && key != "" {
		wanted, known := desired.Ref{Kind: kind, Key: key}.Normalize().Key, all
		all = slices.DeleteFunc(slices.Clone(all), func(v T) bool { return keyOf(v) != wanted })
		if len(all) == 0 {
			err = fmt.Errorf("%w: there is no %s %q", desired.ErrNotFound, kind, key)
		}
		begins := func(v T) bool { return strings.HasPrefix(keyOf(v), key+"/") } // a prefix without its length
		if i := slices.IndexFunc(known, begins); len(all) == 0 && i >= 0 {
			err = fmt.Errorf("%w: did you mean %s?", err, keyOf(known[i]))
		}
	}
	return encoded(response, all, err)
}

func (h *handler) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s, err := h.agent.Status()
	if err != nil {
		return nil, err
	}
	m := &pb.StatusResponse{}
	return m, message.Encode(&s, m)
}

func (h *handler) ListInterfaces(_ context.Context, r *pb.ListInterfacesRequest) (*pb.ListInterfacesResponse, error) {
	return list(&pb.ListInterfacesResponse{}, h.agent.Interfaces, desired.KindInterface, r.GetKey(), func(s agent.InterfaceStatus) string { return s.Name })
}

func (h *handler) ListLocators(_ context.Context, r *pb.ListLocatorsRequest) (*pb.ListLocatorsResponse, error) {
	return list(&pb.ListLocatorsResponse{}, h.agent.Locators, desired.KindLocator, r.GetKey(), func(s agent.LocatorStatus) string { return s.Name })
}

func (h *handler) ListSIDs(_ context.Context, r *pb.ListSIDsRequest) (*pb.ListSIDsResponse, error) {
	return list(&pb.ListSIDsResponse{}, h.agent.SIDs, desired.KindSID, r.GetKey(), func(s agent.SIDStatus) string { return s.SID.Masked().String() })
}

func (h *handler) ListPolicies(_ context.Context, r *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	return list(&pb.ListPoliciesResponse{}, h.agent.Policies, desired.KindPolicy, r.GetKey(), func(s agent.PolicyStatus) string { return s.Name })
}

func (h *handler) ListCandidatePaths(_ context.Context, r *pb.ListCandidatePathsRequest) (*pb.ListCandidatePathsResponse, error) {
	return list(&pb.ListCandidatePathsResponse{}, h.agent.CandidatePaths, desired.KindCandidatePath, r.GetKey(), func(s agent.CandidatePathStatus) string { return s.Name })
}

func (h *handler) ListBGPPeers(_ context.Context, r *pb.ListBGPPeersRequest) (*pb.ListBGPPeersResponse, error) {
	return list(&pb.ListBGPPeersResponse{}, h.agent.BGPPeers, "bgp", r.GetKey(), func(s agent.BGPPeerStatus) string { return s.Address.String() })
}

func (h *handler) ListAnnouncements(_ context.Context, r *pb.ListAnnouncementsRequest) (*pb.ListAnnouncementsResponse, error) {
	return list(&pb.ListAnnouncementsResponse{}, h.agent.Announcements, "announcement", r.GetKey(), agent.AnnouncementStatus.Key)
}

func (h *handler) ListNATs(_ context.Context, r *pb.ListNATsRequest) (*pb.ListNATsResponse, error) {
	all, err := h.agent.NATs(r.GetKey())
	return encoded(&pb.ListNATsResponse{}, all, err)
}

func (h *handler) ListNodes(_ context.Context, r *pb.ListNodesRequest) (*pb.ListNodesResponse, error) {
	return list(&pb.ListNodesResponse{}, h.agent.Nodes, "node", r.GetKey(), agent.NodeStatus.Key)
}

func (h *handler) ListClasses(_ context.Context, r *pb.ListClassesRequest) (*pb.ListClassesResponse, error) {
	return list(&pb.ListClassesResponse{}, h.agent.Classes, desired.KindClass, r.GetKey(), func(s agent.ClassStatus) string { return s.Name })
}

func (h *handler) ListSteering(_ context.Context, r *pb.ListSteeringRequest) (*pb.ListSteeringResponse, error) {
	return list(&pb.ListSteeringResponse{}, h.agent.Steerings, desired.KindSteering, r.GetKey(), func(s agent.SteeringStatus) string { return s.Key() })
}

func (h *handler) ListTunnels(_ context.Context, r *pb.ListTunnelsRequest) (*pb.ListTunnelsResponse, error) {
	return list(&pb.ListTunnelsResponse{}, h.agent.Tunnels, desired.KindTunnel, r.GetKey(), func(s agent.TunnelStatus) string { return s.Name })
}

func (h *handler) ListAdjacencies(_ context.Context, r *pb.ListAdjacenciesRequest) (*pb.ListAdjacenciesResponse, error) {
	return list(&pb.ListAdjacenciesResponse{}, h.agent.Adjacencies, "adjacency", r.GetKey(), func(s agent.AdjacencyStatus) string { return s.Key })
}

func (h *handler) ListOutcomes(_ context.Context, r *pb.ListOutcomesRequest) (*pb.ListOutcomesResponse, error) {
	return list(&pb.ListOutcomesResponse{}, h.agent.Outcomes, "outcome", r.GetKey(), func(o agent.Outcome) string { return o.Reason })
}

func (h *handler) ListSlices(_ context.Context, r *pb.ListSlicesRequest) (*pb.ListSlicesResponse, error) {
	return list(&pb.ListSlicesResponse{}, h.agent.Slices, desired.KindSlice, r.GetKey(), func(s agent.SliceStatus) string { return s.Name })
}

func (h *handler) ListAssociations(_ context.Context, r *pb.ListAssociationsRequest) (*pb.ListAssociationsResponse, error) {
	return list(&pb.ListAssociationsResponse{}, h.agent.Associations, "association", r.GetKey(), func(s agent.AssociationStatus) string { return s.Node })
}

func (h *handler) ListPods(_ context.Context, r *pb.ListPodsRequest) (*pb.ListPodsResponse, error) {
	return list(&pb.ListPodsResponse{}, h.agent.Pods, "pod", r.GetKey(), pods.Status.Key)
}

func (h *handler) ExplainPolicy(_ context.Context, r *pb.ExplainPolicyRequest) (*pb.ExplainPolicyResponse, error) {
	ask, err := message.Decode[isolation.Ask](r)
	if err != nil {
		return nil, err
	}
	verdicts, err := h.agent.PodTraffic().ExplainPolicy(ask)
	return encoded(&pb.ExplainPolicyResponse{}, verdicts, err)
}

func (h *handler) ListSessions(_ context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	filter, err := message.Decode[agent.SessionFilter](r)
	if err != nil {
		return nil, err
	}
	sessions, total, err := h.agent.Sessions(filter)
	return encoded(&pb.ListSessionsResponse{Total: uint32(total)}, sessions, err)
}
