package api

import (
	"context"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
)

// encoded makes messages of a list that the agent returned with err.
func encoded[M, T any, P interface {
	*M
	proto.Message
}](all []T, err error) ([]P, error) {
	if err != nil {
		return nil, err
	}
	return message.EncodeList[T, M, P](all)
}

// list returns the messages of what read returns: all, or the one that key names.
func list[M, T any, P interface {
	*M
	proto.Message
}](read func() ([]T, error), kind agent.Kind, key string, keyOf func(T) string) ([]P, error) {
	all, err := read()
	if err != nil {
		return nil, err
	}
	if key != "" {
		picked := all[:0:0]
		for _, a := range all {
			if keyOf(a) == canonical(kind, key) {
				picked = append(picked, a)
			}
		}
		if len(picked) == 0 {
			return nil, fmt.Errorf("%w: there is no %s %q", agent.ErrNotFound, kind, key)
		}
		all = picked
	}
	return message.EncodeList[T, M, P](all)
}

// canonical is the key as the agent writes it: a prefix masked, an address as
// the prefix of that one.
func canonical(kind agent.Kind, key string) string {
	if kind != agent.KindSID && kind != agent.KindSteering {
		return key
	}
	if p, err := netip.ParsePrefix(key); err == nil {
		return p.Masked().String()
	}
	if a, err := netip.ParseAddr(key); err == nil {
		return netip.PrefixFrom(a, a.BitLen()).String()
	}
	return key
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
	out, err := list[pb.InterfaceStatus](h.agent.Interfaces, agent.KindInterface, r.GetKey(), func(s agent.InterfaceStatus) string { return s.Name })
	return &pb.ListInterfacesResponse{Interfaces: out}, err
}

func (h *handler) ListLocators(_ context.Context, r *pb.ListLocatorsRequest) (*pb.ListLocatorsResponse, error) {
	out, err := list[pb.LocatorStatus](h.agent.Locators, agent.KindLocator, r.GetKey(), func(s agent.LocatorStatus) string { return s.Name })
	return &pb.ListLocatorsResponse{Locators: out}, err
}

func (h *handler) ListSIDs(_ context.Context, r *pb.ListSIDsRequest) (*pb.ListSIDsResponse, error) {
	out, err := list[pb.SIDStatus](h.agent.SIDs, agent.KindSID, r.GetKey(), func(s agent.SIDStatus) string { return s.SID.Masked().String() })
	return &pb.ListSIDsResponse{Sids: out}, err
}

func (h *handler) ListPolicies(_ context.Context, r *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	out, err := list[pb.PolicyStatus](h.agent.Policies, agent.KindPolicy, r.GetKey(), func(s agent.PolicyStatus) string { return s.Name })
	return &pb.ListPoliciesResponse{Policies: out}, err
}

func (h *handler) ListCandidatePaths(_ context.Context, r *pb.ListCandidatePathsRequest) (*pb.ListCandidatePathsResponse, error) {
	out, err := list[pb.CandidatePathStatus](h.agent.CandidatePaths, agent.KindCandidatePath, r.GetKey(), func(s agent.CandidatePathStatus) string { return s.Name })
	return &pb.ListCandidatePathsResponse{CandidatePaths: out}, err
}

func (h *handler) ListBGPPeers(_ context.Context, r *pb.ListBGPPeersRequest) (*pb.ListBGPPeersResponse, error) {
	out, err := list[pb.BGPPeerStatus](h.agent.BGPPeers, "bgp", r.GetKey(), func(s agent.BGPPeerStatus) string { return s.Address.String() })
	return &pb.ListBGPPeersResponse{Peers: out}, err
}

func (h *handler) ListNodes(_ context.Context, r *pb.ListNodesRequest) (*pb.ListNodesResponse, error) {
	out, err := list[pb.NodeStatus](h.agent.Nodes, "node", r.GetKey(), agent.NodeStatus.Key)
	return &pb.ListNodesResponse{Nodes: out}, err
}

func (h *handler) ListSteering(_ context.Context, r *pb.ListSteeringRequest) (*pb.ListSteeringResponse, error) {
	out, err := list[pb.SteeringStatus](h.agent.Steerings, agent.KindSteering, r.GetKey(), func(s agent.SteeringStatus) string { return s.Key() })
	return &pb.ListSteeringResponse{Steering: out}, err
}

func (h *handler) ListTunnels(_ context.Context, r *pb.ListTunnelsRequest) (*pb.ListTunnelsResponse, error) {
	out, err := list[pb.TunnelStatus](h.agent.Tunnels, agent.KindTunnel, r.GetKey(), func(s agent.TunnelStatus) string { return s.Name })
	return &pb.ListTunnelsResponse{Tunnels: out}, err
}

func (h *handler) ListAdjacencies(_ context.Context, r *pb.ListAdjacenciesRequest) (*pb.ListAdjacenciesResponse, error) {
	out, err := list[pb.AdjacencyStatus](h.agent.Adjacencies, "adjacency", r.GetKey(), func(s agent.AdjacencyStatus) string { return s.Key })
	return &pb.ListAdjacenciesResponse{Adjacencies: out}, err
}

func (h *handler) ListOutcomes(_ context.Context, r *pb.ListOutcomesRequest) (*pb.ListOutcomesResponse, error) {
	out, err := list[pb.Outcome](h.agent.Outcomes, "outcome", r.GetKey(), func(o agent.Outcome) string { return o.Reason })
	return &pb.ListOutcomesResponse{Outcomes: out}, err
}

func (h *handler) ListSlices(_ context.Context, r *pb.ListSlicesRequest) (*pb.ListSlicesResponse, error) {
	out, err := list[pb.SliceStatus](h.agent.Slices, agent.KindSlice, r.GetKey(), func(s agent.SliceStatus) string { return s.Name })
	return &pb.ListSlicesResponse{Slices: out}, err
}

func (h *handler) ListAssociations(_ context.Context, r *pb.ListAssociationsRequest) (*pb.ListAssociationsResponse, error) {
	out, err := list[pb.AssociationStatus](h.agent.Associations, "association", r.GetKey(), func(s agent.AssociationStatus) string { return s.Node })
	return &pb.ListAssociationsResponse{Associations: out}, err
}

func (h *handler) ListPods(_ context.Context, r *pb.ListPodsRequest) (*pb.ListPodsResponse, error) {
	out, err := list[pb.PodStatus](h.agent.Pods, "pod", r.GetKey(), agent.PodStatus.Key)
	return &pb.ListPodsResponse{Pods: out}, err
}

func (h *handler) ListSessions(_ context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	filter, err := message.Decode[agent.SessionFilter](r)
	if err != nil {
		return nil, err
	}
	sessions, total, err := h.agent.Sessions(filter)
	out, err := encoded[pb.SessionStatus](sessions, err)
	return &pb.ListSessionsResponse{Sessions: out, Total: uint32(total)}, err
}
