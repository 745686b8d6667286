package watch

import (
	"fmt"
	"strings"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/frame"
)

// Step is what happened to a packet at a place of its journey.
type Step struct{ Name, Text string }

// Steps are those of a packet's journey, in words.
func Steps(e agent.TraceEvent) (steps []Step) {
	add := func(name, text string) {
		if text != "" {
			steps = append(steps, Step{name, text})
		}
	}
	add("in", fmt.Sprintf("%d bytes: %s", e.InLength, frame.Decode(e.In)))
	if e.SID.IsValid() {
		add("sid", e.SID.String())
	}
	if e.Session != 0 {
		add("session", fmt.Sprintf("%#x PDR %d", e.Session, e.PDR))
	}
	add("steered", e.Target)
	add("tunnel", e.Tunnel)
	if e.Policy != "" {
		segments := make([]string, len(e.SegmentList))
		for i, s := range e.SegmentList {
			segments[i] = s.String()
		}
		add("policy", fmt.Sprintf("%s [%s]", e.Policy, strings.Join(segments, ", ")))
	}
	add("next hop", e.Adjacency)
	if len(e.Out) > 0 && !e.Drop {
		add("out", fmt.Sprintf("%d bytes: %s", e.OutLength, frame.Decode(e.Out)))
	}
	if e.Drop {
		add("dropped", e.Text)
	}
	return steps
}

// explained is a packet with its steps, as a message.
func explained(e agent.TraceEvent) (*pb.CaptureResponse, error) {
	m := &pb.CaptureResponse{Packet: &pb.TraceResponse{}}
	for _, s := range Steps(e) {
		m.Steps = append(m.Steps, &pb.Step{Name: s.Name, Text: s.Text})
	}
	return m, message.Encode(&e, m.Packet)
}
