package api

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
)

// hidden is what a viewer does not see, in words.
const hidden = "addresses of UEs, TEIDs, rules and packets' contents"

// right is what a viewer may call: what a request must not ask, and what its answers lose.
type right struct {
	refuse func(proto.Message) error
	mask   func(proto.Message)
}

// viewerMay has the calls of a viewer. What is not here is refused.
var viewerMay = map[string]right{
	culvertv1connect.CulvertStatusProcedure:             {},
	culvertv1connect.CulvertListInterfacesProcedure:     {},
	culvertv1connect.CulvertListPoliciesProcedure:       {},
	culvertv1connect.CulvertListClassesProcedure:        {},
	culvertv1connect.CulvertListCandidatePathsProcedure: {},
	culvertv1connect.CulvertListOutcomesProcedure:       {},
	culvertv1connect.CulvertListSlicesProcedure:         {},
	culvertv1connect.CulvertListBGPPeersProcedure:       {},
	culvertv1connect.CulvertListNodesProcedure:          {},
	culvertv1connect.CulvertListAssociationsProcedure:   {},
	culvertv1connect.CulvertDoctorProcedure:             {},
	culvertv1connect.CulvertListSessionsProcedure:       {refuseSearch, maskSessions},
	culvertv1connect.CulvertWatchProcedure:              {nil, maskWatch},
	culvertv1connect.CulvertFlowsProcedure:              {nil, maskFlow},
	culvertv1connect.CulvertListPodsProcedure:           {nil, maskPods},
}

// viewerKey marks the context of a viewer's request.
type viewerKey struct{}

func isViewer(ctx context.Context) bool { return ctx.Value(viewerKey{}) != nil }

// viewers holds viewers to what they may see.
type viewers struct{}

func (viewers) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if !isViewer(ctx) {
			return next(ctx, r)
		}
		may, err := viewerRight(r.Spec().Procedure)
		if err == nil && may.refuse != nil {
			err = may.refuse(r.Any().(proto.Message))
		}
		if err != nil {
			return nil, err
		}
		response, err := next(ctx, r)
		if err == nil && may.mask != nil {
			may.mask(response.Any().(proto.Message))
		}
		return response, err
	}
}

func (viewers) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (viewers) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		if !isViewer(ctx) {
			return next(ctx, c)
		}
		may, err := viewerRight(c.Spec().Procedure)
		if err != nil {
			return err
		}
		return next(ctx, masking{c, may.mask})
	}
}

func viewerRight(procedure string) (right, error) {
	may, ok := viewerMay[procedure]
	if !ok {
		return right{}, connect.NewError(connect.CodePermissionDenied, errors.New("this token is for looking at the page: use that of api.token_file"))
	}
	return may, nil
}

// masking masks what a stream sends.
type masking struct {
	connect.StreamingHandlerConn
	mask func(proto.Message)
}

func (m masking) Send(v any) error {
	message, ok := v.(proto.Message)
	if ok && m.mask != nil && message.ProtoReflect().IsValid() {
		message = proto.Clone(message) // others share it
		m.mask(message)
		v = message
	}
	return m.StreamingHandlerConn.Send(v)
}

// refuseSearch refuses to find a session by what a viewer does not see: the answer would tell.
func refuseSearch(m proto.Message) error {
	r := m.(*pb.ListSessionsRequest)
	if r.GetUe() != "" || r.GetTeid() != 0 {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("this token does not see %s, nor finds sessions by them: search by SEID or slice", hidden))
	}
	return nil
}

func maskSession(s *pb.SessionStatus) {
	s.CpSeid, s.Ue, s.Teids, s.Rules = 0, nil, nil, ""
	for _, p := range s.GetPdrs() {
		p.Words = ""
	}
}

func maskSessions(m proto.Message) {
	for _, s := range m.(*pb.ListSessionsResponse).GetSessions() {
		maskSession(s)
	}
}

func maskWatch(m proto.Message) {
	w := m.(*pb.WatchResponse)
	w.Viewer = hidden
	for _, s := range w.GetSessions() {
		maskSession(s.GetSession())
	}
	for _, e := range w.GetDrops().GetExamples() {
		maskPacket(e)
	}
	// An endpoint of a tunnel for one UE, or a binding SID, is the network's.
}

// maskPacket leaves what happened, and removes whose packet it was.
func maskPacket(c *pb.CaptureResponse) {
	p := c.GetPacket()
	c.Packet = &pb.TraceResponse{
		Time: p.GetTime(), Interface: p.GetInterface(), Target: p.GetTarget(), Policy: p.GetPolicy(), Egress: p.GetEgress(),
		Reason: p.GetReason(), Drop: p.GetDrop(), Text: p.GetText(), Verdict: p.GetVerdict(), InLength: p.GetInLength(), OutLength: p.GetOutLength(),
	}
	steps := c.GetSteps()
	c.Steps = nil
	for _, s := range steps {
		switch s.GetName() {
		case "in":
			s.Text = fmt.Sprintf("%d bytes", p.GetInLength())
		case "out":
			s.Text = fmt.Sprintf("%d bytes", p.GetOutLength())
		case "steered", "policy", "dropped":
		default: // SID, session, tunnel and next hop may say whose packet it is
			continue
		}
		c.Steps = append(c.Steps, s)
	}
}

func maskFlow(m proto.Message) {
	f := m.(*pb.FlowsResponse)
	for _, e := range []*pb.FlowEnd{f.GetSource(), f.GetDestination()} {
		if e != nil {
			e.Address = ""
		}
	}
	f.Service = ""
}

func maskPods(m proto.Message) {
	for _, p := range m.(*pb.ListPodsResponse).GetPods() {
		p.Addresses = nil
		if p.GetPod() != nil {
			p.Pod.Netns, p.Pod.Mac, p.Pod.Labels = "", "", nil
		}
	}
}
