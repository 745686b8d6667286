package api

import (
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// What is seen has a function in each direction: the daemon's and the
// client's side of the same message stand together.

func counterTo(c agent.Counter) *pb.Counter {
	return &pb.Counter{Packets: c.Packets, Bytes: c.Bytes}
}

func counterFrom(c *pb.Counter) agent.Counter {
	return agent.Counter{Packets: c.GetPackets(), Bytes: c.GetBytes()}
}

func interfaceTo(s agent.InterfaceStatus) (*pb.InterfaceStatus, error) {
	r, err := toMessage(s.Interface, &pb.Interface{})
	return &pb.InterfaceStatus{Resource: r, Ifindex: int32(s.Ifindex), Attached: s.Attached, Mtu: int32(s.MTU)}, err
}

func interfaceFrom(m *pb.InterfaceStatus) (agent.InterfaceStatus, error) {
	r, err := fromMessage[config.Interface](m.GetResource())
	return agent.InterfaceStatus{Interface: r, Ifindex: int(m.GetIfindex()), Attached: m.GetAttached(), MTU: int(m.GetMtu())}, err
}

func locatorTo(s agent.LocatorStatus) (*pb.LocatorStatus, error) {
	r, err := toMessage(s.Locator, &pb.Locator{})
	return &pb.LocatorStatus{Resource: r, Origin: string(s.Origin), Sids: int32(s.SIDs)}, err
}

func locatorFrom(m *pb.LocatorStatus) (agent.LocatorStatus, error) {
	r, err := fromMessage[config.Locator](m.GetResource())
	return agent.LocatorStatus{Locator: r, Origin: agent.Origin(m.GetOrigin()), SIDs: int(m.GetSids())}, err
}

func sidTo(s agent.SIDStatus) (*pb.SIDStatus, error) {
	r, err := toMessage(s.LocalSID, &pb.LocalSID{})
	return &pb.SIDStatus{Resource: r, Origin: string(s.Origin), Counter: counterTo(s.Counter), NextHopState: s.NextHop}, err
}

func sidFrom(m *pb.SIDStatus) (agent.SIDStatus, error) {
	r, err := fromMessage[srv6.LocalSID](m.GetResource())
	return agent.SIDStatus{LocalSID: r, Origin: agent.Origin(m.GetOrigin()), Counter: counterFrom(m.GetCounter()), NextHop: m.GetNextHopState()}, err
}

func policyTo(s agent.PolicyStatus) (*pb.PolicyStatus, error) {
	r, err := toMessage(s.Policy, &pb.Policy{})
	m := &pb.PolicyStatus{Resource: r, Origin: string(s.Origin), Counter: counterTo(s.Counter)}
	for _, l := range s.Lists {
		m.Lists = append(m.Lists, counterTo(l))
	}
	for _, v := range s.Paths {
		m.Paths = append(m.Paths, verdictTo(v))
	}
	return m, err
}

func policyFrom(m *pb.PolicyStatus) (agent.PolicyStatus, error) {
	r, err := fromMessage[srpolicy.Policy](m.GetResource())
	s := agent.PolicyStatus{Policy: r, Origin: agent.Origin(m.GetOrigin()), Counter: counterFrom(m.GetCounter())}
	for _, l := range m.GetLists() {
		s.Lists = append(s.Lists, counterFrom(l))
	}
	for _, v := range m.GetPaths() {
		s.Paths = append(s.Paths, verdictFrom(v))
	}
	return s, err
}

func verdictTo(v srpolicy.Verdict) *pb.Verdict {
	return &pb.Verdict{Path: v.Path, Preference: v.Preference, Valid: v.Valid, Active: v.Active, Why: v.Why}
}

func verdictFrom(m *pb.Verdict) srpolicy.Verdict {
	return srpolicy.Verdict{Path: m.GetPath(), Preference: m.GetPreference(), Valid: m.GetValid(), Active: m.GetActive(), Why: m.GetWhy()}
}

func bgpPeerTo(s agent.BGPPeerStatus) (*pb.BGPPeerStatus, error) {
	return &pb.BGPPeerStatus{Address: addrText(s.Address), Asn: s.ASN, RouterId: addrText(s.RouterID), State: s.State, Reason: s.Reason,
		SinceNs: int64(s.Since), Received: uint32(s.Received)}, nil
}

func bgpPeerFrom(m *pb.BGPPeerStatus) (agent.BGPPeerStatus, error) {
	s := agent.BGPPeerStatus{ASN: m.GetAsn(), State: m.GetState(), Reason: m.GetReason(), Since: time.Duration(m.GetSinceNs()), Received: int(m.GetReceived())}
	var err error
	if s.Address, err = netip.ParseAddr(m.GetAddress()); err != nil {
		return s, err
	}
	if m.GetRouterId() != "" {
		s.RouterID, err = netip.ParseAddr(m.GetRouterId())
	}
	return s, err
}

func nodeTo(s agent.NodeStatus) (*pb.NodeStatus, error) {
	n, err := toMessage(s.Node, &pb.OverlayNode{})
	return &pb.NodeStatus{Node: n, Origin: s.Origin, Policies: s.Policies, State: s.State, Problems: s.Problems}, err
}

func nodeFrom(m *pb.NodeStatus) (agent.NodeStatus, error) {
	n, err := fromMessage[overlay.Node](m.GetNode())
	return agent.NodeStatus{Node: n, Origin: m.GetOrigin(), Policies: m.GetPolicies(), State: m.GetState(), Problems: m.GetProblems()}, err
}

func overlayTo(s *agent.OverlayStatus) (*pb.OverlayStatus, error) {
	if s == nil {
		return nil, nil
	}
	return toMessage(s, &pb.OverlayStatus{})
}

func overlayFrom(m *pb.OverlayStatus) (*agent.OverlayStatus, error) {
	if m == nil {
		return nil, nil
	}
	s, err := fromMessage[agent.OverlayStatus](m)
	return &s, err
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func candidatePathTo(s agent.CandidatePathStatus) (*pb.CandidatePathStatus, error) {
	r, err := toMessage(s.CandidatePath, &pb.CandidatePath{})
	return &pb.CandidatePathStatus{Resource: r, Origin: string(s.Origin), Verdict: verdictTo(s.Verdict)}, err
}

func candidatePathFrom(m *pb.CandidatePathStatus) (agent.CandidatePathStatus, error) {
	r, err := fromMessage[srpolicy.CandidatePath](m.GetResource())
	return agent.CandidatePathStatus{CandidatePath: r, Origin: agent.Origin(m.GetOrigin()), Verdict: verdictFrom(m.GetVerdict())}, err
}

func steeringTo(s agent.SteeringStatus) (*pb.SteeringStatus, error) {
	r, err := toMessage(s.Steering, &pb.Steering{})
	return &pb.SteeringStatus{Resource: r, Origin: string(s.Origin)}, err
}

func steeringFrom(m *pb.SteeringStatus) (agent.SteeringStatus, error) {
	r, err := fromMessage[srpolicy.Steering](m.GetResource())
	return agent.SteeringStatus{Steering: r, Origin: agent.Origin(m.GetOrigin())}, err
}

func tunnelTo(s agent.TunnelStatus) (*pb.TunnelStatus, error) {
	r, err := toMessage(s.Tunnel, &pb.Tunnel{})
	return &pb.TunnelStatus{Resource: r, Origin: string(s.Origin), Received: counterTo(s.Received), Sent: counterTo(s.Sent)}, err
}

func tunnelFrom(m *pb.TunnelStatus) (agent.TunnelStatus, error) {
	r, err := fromMessage[gtpu.Tunnel](m.GetResource())
	return agent.TunnelStatus{Tunnel: r, Origin: agent.Origin(m.GetOrigin()), Received: counterFrom(m.GetReceived()), Sent: counterFrom(m.GetSent())}, err
}

func adjacencyTo(s agent.AdjacencyStatus) (*pb.AdjacencyStatus, error) {
	return toMessage(s, &pb.AdjacencyStatus{})
}

func adjacencyFrom(m *pb.AdjacencyStatus) (agent.AdjacencyStatus, error) {
	return fromMessage[agent.AdjacencyStatus](m)
}

func outcomeTo(o agent.Outcome) (*pb.Outcome, error) {
	return &pb.Outcome{Reason: o.Reason, Drop: o.Drop, Text: o.Text, Packets: o.Packets, Bytes: o.Bytes}, nil
}

func outcomeFrom(m *pb.Outcome) (agent.Outcome, error) {
	return agent.Outcome{Reason: m.GetReason(), Drop: m.GetDrop(), Text: m.GetText(),
		Counter: agent.Counter{Packets: m.GetPackets(), Bytes: m.GetBytes()}}, nil
}

func statusTo(s agent.Status) (*pb.StatusResponse, error) {
	m := &pb.StatusResponse{Version: s.Version, DataPath: s.DataPath, PinPath: s.PinPath, Resources: map[string]uint32{}}
	if !s.Started.IsZero() {
		m.Started = timestamppb.New(s.Started)
	}
	for kind, n := range s.Resources {
		m.Resources[string(kind)] = uint32(n)
	}
	var err error
	if m.Interfaces, err = each(s.Interfaces, interfaceTo); err != nil {
		return nil, err
	}
	m.Upf = upfTo(s.UPF)
	if m.Overlay, err = overlayTo(s.Overlay); err != nil {
		return nil, err
	}
	m.Outcomes, err = each(s.Outcomes, outcomeTo)
	return m, err
}

func statusFrom(m *pb.StatusResponse) (agent.Status, error) {
	s := agent.Status{Version: m.GetVersion(), DataPath: m.GetDataPath(), PinPath: m.GetPinPath(), Resources: map[agent.Kind]int{}}
	if m.GetStarted() != nil {
		s.Started = m.GetStarted().AsTime()
	}
	for kind, n := range m.GetResources() {
		s.Resources[agent.Kind(kind)] = int(n)
	}
	var err error
	if s.Interfaces, err = each(m.GetInterfaces(), interfaceFrom); err != nil {
		return s, err
	}
	if s.UPF, err = upfFrom(m.GetUpf()); err != nil {
		return s, err
	}
	if s.Overlay, err = overlayFrom(m.GetOverlay()); err != nil {
		return s, err
	}
	s.Outcomes, err = each(m.GetOutcomes(), outcomeFrom)
	return s, err
}

func changeTo(c agent.Change) *pb.Change {
	return &pb.Change{Op: string(c.Op), Kind: string(c.Kind), Key: c.Key, Detail: c.Detail}
}

func changesTo(list []agent.Change) []*pb.Change {
	out := make([]*pb.Change, len(list))
	for i, c := range list {
		out[i] = changeTo(c)
	}
	return out
}

func changesFrom(list []*pb.Change) []agent.Change {
	out := make([]agent.Change, len(list))
	for i, c := range list {
		out[i] = agent.Change{Op: agent.Op(c.GetOp()), Kind: agent.Kind(c.GetKind()), Key: c.GetKey(), Detail: c.GetDetail()}
	}
	return out
}

func filterTo(f agent.TraceFilter) *pb.TraceRequest {
	return &pb.TraceRequest{
		Source: prefixText(f.Source), Destination: prefixText(f.Destination), Interface: f.Interface,
		Drops: f.Drops, Sid: prefixText(f.SID), Teid: f.TEID,
	}
}

func filterFrom(m *pb.TraceRequest) (agent.TraceFilter, error) {
	f := agent.TraceFilter{Interface: m.GetInterface(), Drops: m.GetDrops(), TEID: m.Teid}
	for _, p := range []struct {
		field, text string
		to          *netip.Prefix
	}{{"source", m.GetSource(), &f.Source}, {"destination", m.GetDestination(), &f.Destination}, {"sid", m.GetSid(), &f.SID}} {
		if p.text == "" {
			continue
		}
		var err error
		if *p.to, err = netip.ParsePrefix(p.text); err != nil {
			return f, config.Errors{{Field: p.field, Problem: fmt.Sprintf("%q is not a prefix", p.text), Fix: "a prefix such as 2001:db8::/32"}}
		}
	}
	return f, nil
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func eventTo(e agent.TraceEvent) *pb.TraceResponse {
	m := &pb.TraceResponse{
		Time: timestamppb.New(e.Time), Interface: e.Interface, Sid: prefixText(e.SID), Target: e.Target,
		Tunnel: e.Tunnel, Policy: e.Policy, Adjacency: e.Adjacency, Egress: e.Egress,
		Reason: e.Reason, Drop: e.Drop, Text: e.Text, Verdict: e.Verdict,
		InLength: int32(e.InLength), OutLength: int32(e.OutLength), In: e.In, Out: e.Out,
		Session: e.Session, Pdr: uint32(e.PDR),
	}
	for _, a := range e.SegmentList {
		m.SegmentList = append(m.SegmentList, a.String())
	}
	return m
}

func eventFrom(m *pb.TraceResponse) (agent.TraceEvent, error) {
	e := agent.TraceEvent{
		Time: m.GetTime().AsTime(), Interface: m.GetInterface(), Target: m.GetTarget(),
		Tunnel: m.GetTunnel(), Policy: m.GetPolicy(), Adjacency: m.GetAdjacency(), Egress: m.GetEgress(),
		Reason: m.GetReason(), Drop: m.GetDrop(), Text: m.GetText(), Verdict: m.GetVerdict(),
		InLength: int(m.GetInLength()), OutLength: int(m.GetOutLength()), In: m.GetIn(), Out: m.GetOut(),
		Session: m.GetSession(), PDR: uint16(m.GetPdr()),
	}
	for _, s := range m.GetSegmentList() {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return e, fmt.Errorf("trace: %w", err)
		}
		e.SegmentList = append(e.SegmentList, a)
	}
	if m.GetSid() != "" {
		var err error
		if e.SID, err = netip.ParsePrefix(m.GetSid()); err != nil {
			return e, fmt.Errorf("trace: %w", err)
		}
	}
	return e, nil
}
