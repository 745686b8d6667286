package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/slice"
)

// What a user plane function shows: the daemon's and the client's side of each
// message, as in status.go.

func upfTo(s *agent.UPFStatus) *pb.UPFStatus {
	if s == nil {
		return nil
	}
	m := &pb.UPFStatus{
		Sessions: uint32(s.Sessions), MaxSessions: uint32(s.MaxSessions), Associations: uint32(s.Associations), Buffered: uint64(s.Buffered),
	}
	for _, p := range s.Pools {
		m.Pools = append(m.Pools, &pb.PoolStatus{NetworkInstance: p.NetworkInstance, Prefix: p.Prefix.String(), Used: uint32(p.Used), Size: uint32(p.Size)})
	}
	for _, p := range s.Peers {
		m.Peers = append(m.Peers, &pb.PeerStatus{Addr: p.Addr.String(), Tunnels: uint32(p.Tunnels), Down: p.Down})
	}
	return m
}

func upfFrom(m *pb.UPFStatus) (*agent.UPFStatus, error) {
	if m == nil {
		return nil, nil
	}
	s := &agent.UPFStatus{
		Sessions: int(m.GetSessions()), MaxSessions: int(m.GetMaxSessions()), Associations: int(m.GetAssociations()), Buffered: int(m.GetBuffered()),
	}
	var err error
	if s.Pools, err = each(m.GetPools(), poolFrom); err == nil {
		s.Peers, err = each(m.GetPeers(), peerFrom)
	}
	return s, err
}

func poolFrom(m *pb.PoolStatus) (agent.PoolStatus, error) {
	prefix, err := netip.ParsePrefix(m.GetPrefix())
	return agent.PoolStatus{NetworkInstance: m.GetNetworkInstance(), Prefix: prefix, Used: int(m.GetUsed()), Size: int(m.GetSize())}, err
}

func peerFrom(m *pb.PeerStatus) (agent.PeerStatus, error) {
	addr, err := netip.ParseAddr(m.GetAddr())
	return agent.PeerStatus{Addr: addr, Tunnels: int(m.GetTunnels()), Down: m.GetDown()}, err
}

func sliceTo(s agent.SliceStatus) (*pb.SliceStatus, error) {
	r, err := toMessage(s.Slice, &pb.Slice{})
	return &pb.SliceStatus{Resource: r, Origin: string(s.Origin), Sessions: uint32(s.Sessions), Uplink: counterTo(s.Uplink), Downlink: counterTo(s.Downlink)}, err
}

func sliceFrom(m *pb.SliceStatus) (agent.SliceStatus, error) {
	r, err := fromMessage[slice.Slice](m.GetResource())
	return agent.SliceStatus{
		Slice: r, Origin: agent.Origin(m.GetOrigin()), Sessions: int(m.GetSessions()),
		Uplink: counterFrom(m.GetUplink()), Downlink: counterFrom(m.GetDownlink()),
	}, err
}

func associationTo(s agent.AssociationStatus) (*pb.AssociationStatus, error) {
	m := &pb.AssociationStatus{
		Node: s.Node, Since: timestamppb.New(s.Since), Recovery: timestamppb.New(s.Recovery), Up: s.Up,
		Sessions: uint32(s.Sessions), Applications: s.Applications,
	}
	for _, a := range s.Addrs {
		m.Addrs = append(m.Addrs, a.String())
	}
	return m, nil
}

func associationFrom(m *pb.AssociationStatus) (agent.AssociationStatus, error) {
	addrs, err := each(m.GetAddrs(), netip.ParseAddr)
	return agent.AssociationStatus{
		Node: m.GetNode(), Addrs: addrs, Since: m.GetSince().AsTime(), Recovery: m.GetRecovery().AsTime(), Up: m.GetUp(),
		Sessions: int(m.GetSessions()), Applications: m.GetApplications(),
	}, err
}

func sessionTo(s agent.SessionStatus) (*pb.SessionStatus, error) {
	m := &pb.SessionStatus{
		Seid: s.SEID, CpSeid: s.CPSEID, Association: s.Association, Slice: s.Slice, Dnn: s.DNN, Teids: s.TEIDs,
		Uplink: counterTo(s.Uplink), Downlink: counterTo(s.Downlink), Buffered: uint32(s.Buffered), Rules: string(s.Rules),
	}
	for _, p := range s.UE {
		m.Ue = append(m.Ue, p.String())
	}
	for _, p := range s.PDRs {
		m.Pdrs = append(m.Pdrs, &pb.PDRStatus{Pdr: uint32(p.PDR), Counter: counterTo(p.Counter)})
	}
	for _, u := range s.URRs {
		m.Urrs = append(m.Urrs, &pb.URRStatus{Urr: u.URR, Sequence: u.Sequence, Uplink: u.Uplink, Downlink: u.Downlink, Exhausted: u.Exhausted})
	}
	return m, nil
}

func sessionFrom(m *pb.SessionStatus) (agent.SessionStatus, error) {
	s := agent.SessionStatus{
		SEID: m.GetSeid(), CPSEID: m.GetCpSeid(), Association: m.GetAssociation(), Slice: m.GetSlice(), DNN: m.GetDnn(), TEIDs: m.GetTeids(),
		Uplink: counterFrom(m.GetUplink()), Downlink: counterFrom(m.GetDownlink()), Buffered: int(m.GetBuffered()),
	}
	if m.GetRules() != "" {
		s.Rules = json.RawMessage(m.GetRules())
	}
	for _, p := range m.GetPdrs() {
		s.PDRs = append(s.PDRs, agent.PDRStatus{PDR: uint16(p.GetPdr()), Counter: counterFrom(p.GetCounter())})
	}
	for _, u := range m.GetUrrs() {
		s.URRs = append(s.URRs, agent.URRStatus{URR: u.GetUrr(), Sequence: u.GetSequence(), Uplink: u.GetUplink(), Downlink: u.GetDownlink(), Exhausted: u.GetExhausted()})
	}
	var err error
	s.UE, err = each(m.GetUe(), netip.ParsePrefix)
	return s, err
}

func sessionsFilterTo(f agent.SessionFilter) *pb.ListSessionsRequest {
	m := &pb.ListSessionsRequest{Seid: f.SEID, Slice: f.Slice, Association: f.Association, Teid: f.TEID, Limit: uint32(f.Limit)}
	if f.UE.IsValid() {
		m.Ue = f.UE.String()
	}
	return m
}

func sessionsFilterFrom(m *pb.ListSessionsRequest) (agent.SessionFilter, error) {
	f := agent.SessionFilter{SEID: m.Seid, Slice: m.GetSlice(), Association: m.GetAssociation(), TEID: m.GetTeid(), Limit: int(m.GetLimit())}
	if m.GetUe() == "" {
		return f, nil
	}
	var err error
	if f.UE, err = netip.ParseAddr(m.GetUe()); err != nil {
		err = config.Errors{{Field: "ue", Problem: fmt.Sprintf("%q is not an address", m.GetUe()), Fix: "an address such as 10.45.0.1"}}
	}
	return f, err
}

func (h *handler) ListSlices(_ context.Context, r *pb.ListSlicesRequest) (*pb.ListSlicesResponse, error) {
	out, err := list(h.agent.Slices, agent.KindSlice, r.GetKey(), func(s agent.SliceStatus) string { return s.Name }, sliceTo)
	return &pb.ListSlicesResponse{Slices: out}, err
}

func (h *handler) ListAssociations(_ context.Context, r *pb.ListAssociationsRequest) (*pb.ListAssociationsResponse, error) {
	out, err := list(h.agent.Associations, "association", r.GetKey(), func(s agent.AssociationStatus) string { return s.Node }, associationTo)
	return &pb.ListAssociationsResponse{Associations: out}, err
}

func (h *handler) ListSessions(_ context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	filter, err := sessionsFilterFrom(r)
	if err != nil {
		return nil, err
	}
	sessions, total, err := h.agent.Sessions(filter)
	if err != nil {
		return nil, err
	}
	out, err := each(sessions, sessionTo)
	return &pb.ListSessionsResponse{Sessions: out, Total: uint32(total)}, err
}

// Slices lists slices.
func (c *Client) Slices(ctx context.Context, key string) ([]agent.SliceStatus, error) {
	return fetch(ctx, c, c.rpc.ListSlices, &pb.ListSlicesRequest{Key: key}, (*pb.ListSlicesResponse).GetSlices, sliceFrom)
}

// Associations lists PFCP associations, by Node ID.
func (c *Client) Associations(ctx context.Context, key string) ([]agent.AssociationStatus, error) {
	return fetch(ctx, c, c.rpc.ListAssociations, &pb.ListAssociationsRequest{Key: key}, (*pb.ListAssociationsResponse).GetAssociations, associationFrom)
}

// Sessions lists the sessions that a filter means; total is how many these are.
func (c *Client) Sessions(ctx context.Context, f agent.SessionFilter) (list []agent.SessionStatus, total int, err error) {
	m, err := c.rpc.ListSessions(ctx, sessionsFilterTo(f))
	if err != nil {
		return nil, 0, c.fail(err)
	}
	list, err = each(m.GetSessions(), sessionFrom)
	return list, int(m.GetTotal()), err
}
