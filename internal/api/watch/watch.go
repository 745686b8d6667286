package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/capture"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/plural"
)

// ethernetHeader is how many octets the shortest packet has.
const ethernetHeader = 14

// Limits of a capture.
const (
	MostPackets = 100
	longest     = 30 * time.Second
)

// Watcher reads what pages show.
type Watcher struct {
	agent    agent.Service
	topology *topology
	sessions *sessions
	drops    *drops
	paths    *paths
}

// New returns a watcher of an agent.
func New(service agent.Service) *Watcher {
	return &Watcher{
		agent: service, topology: newTopology(service), drops: newDrops(service), paths: newPaths(service),
		sessions: &sessions{agent: service, cells: map[uint64]*followed{}},
	}
}

// Run keeps the last hour of drops until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	w.drops.run(ctx)
	return nil
}

// Watch sends what a view shows, and then what has changed, until ctx ends or send fails.
func (w *Watcher) Watch(ctx context.Context, r *pb.WatchRequest, send func(*pb.WatchResponse) error) error {
	view, release, err := w.view(ctx, r)
	if err != nil {
		return err
	}
	defer release()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for first := true; ; first = false {
		m, err := view()
		if err != nil {
			return err
		}
		if first || proto.Size(m) > 0 {
			m.Time = timestamppb.Now()
			if err := send(m); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// view returns what reads the changes of a view for one viewer.
func (w *Watcher) view(ctx context.Context, r *pb.WatchRequest) (changes func() (*pb.WatchResponse, error), release func(), err error) {
	nothing := func() {}
	switch r.GetView() {
	case "topology":
		return w.topology.changes(), nothing, nil
	case "drops":
		return w.dropChanges(ctx), nothing, nil
	case "paths":
		return w.pathChanges(), nothing, nil
	case "sessions":
		if len(r.GetSeids()) > mostSessions {
			return nil, nil, config.Errors{{Field: "seids", Problem: fmt.Sprintf("%d sessions are too many", len(r.GetSeids())), Fix: fmt.Sprintf("at most %d", mostSessions)}}
		}
		changes, release = w.sessionChanges(r.GetSeids())
		return changes, release, nil
	}
	return nil, nil, config.Errors{{Field: "view", Problem: fmt.Sprintf("%q is no view", r.GetView()), Fix: "topology, sessions, drops or paths"}}
}

func (w *Watcher) dropChanges(ctx context.Context) func() (*pb.WatchResponse, error) {
	var last time.Time
	return func() (*pb.WatchResponse, error) {
		now, err := w.drops.current.get()
		if err != nil {
			return nil, err
		}
		w.drops.look(ctx)
		samples, examples := w.drops.after(last)
		if len(samples) > 0 {
			last = samples[len(samples)-1].GetTime().AsTime()
		}
		return &pb.WatchResponse{Drops: &pb.Drops{Outcomes: now.GetOutcomes(), Samples: samples, Examples: examples}}, nil
	}
}

func (w *Watcher) pathChanges() func() (*pb.WatchResponse, error) {
	sent := &pb.WatchResponse{}
	return func() (*pb.WatchResponse, error) {
		now, err := w.paths.current.get()
		if err != nil || proto.Equal(now, sent) {
			return &pb.WatchResponse{}, err
		}
		sent = now
		return &pb.WatchResponse{Policies: now.GetPolicies(), Classes: now.GetClasses()}, nil
	}
}

func (w *Watcher) sessionChanges(seids []uint64) (changes func() (*pb.WatchResponse, error), release func()) {
	seids = slices.Compact(slices.Sorted(slices.Values(seids)))
	cells, release := w.sessions.follow(seids)
	sent := make([]*pb.WatchedSession, len(cells))
	round := 0
	return func() (*pb.WatchResponse, error) {
		out := &pb.WatchResponse{}
		if round++; len(cells) > 1 && round%2 == 0 { // a list is read each two seconds
			return out, nil
		}
		for i, c := range cells {
			now, err := c.get()
			if err != nil {
				return nil, err
			}
			if len(cells) > 1 {
				now = brief(now)
			}
			if !proto.Equal(now, sent[i]) {
				out.Sessions, sent[i] = append(out.Sessions, now), now
			}
		}
		return out, nil
	}, release
}

// Explain says what would become of packets.
func (w *Watcher) Explain(r *pb.ExplainPacketsRequest) (*pb.ExplainPacketsResponse, error) {
	frames := r.GetFrames()
	if r.GetText() != "" {
		more, err := capture.Text(r.GetText(), MostPackets)
		if err != nil {
			return nil, config.Errors{{Field: "text", Problem: err.Error(), Fix: "paste what Wireshark copies as hex stream, or tcpdump -xx prints"}}
		}
		frames = append(frames, more...)
	}
	switch {
	case r.GetInterface() == "":
		return nil, config.Errors{{Field: "interface", Problem: "is missing", Fix: "name the interface by which the packets arrive"}}
	case len(frames) == 0:
		return nil, config.Errors{{Field: "frames", Problem: "has no packet", Fix: "send at least one, from its Ethernet header on"}}
	case len(frames) > MostPackets:
		return nil, config.Errors{{Field: "frames", Problem: fmt.Sprintf("has %d packets", len(frames)), Fix: fmt.Sprintf("send at most %d", MostPackets)}}
	}
	for i, frame := range frames {
		if len(frame) < ethernetHeader {
			return nil, config.Errors{{Field: fmt.Sprintf("frames[%d]", i), Problem: "has " + plural.Of(len(frame), "octet"), Fix: "send the whole packet, from its Ethernet header on"}}
		}
	}
	events, err := w.agent.Explain(r.GetInterface(), frames)
	if err != nil {
		return nil, err
	}
	out := &pb.ExplainPacketsResponse{}
	for _, e := range events {
		m, err := explained(e)
		if err != nil {
			return nil, err
		}
		out.Packets = append(out.Packets, m)
	}
	return out, nil
}

// errEnough ends a capture.
var errEnough = errors.New("enough")

// Capture sends packets with their steps, until there are enough.
func (w *Watcher) Capture(ctx context.Context, r *pb.CaptureRequest, send func(*pb.CaptureResponse) error) error {
	filter, err := message.Decode[agent.TraceFilter](r.GetFilter())
	if err != nil {
		return err
	}
	if filter.Interface != "" { // a name is refused before a packet could have it
		if all, err := w.agent.Interfaces(); err == nil && !slices.ContainsFunc(all, func(s agent.InterfaceStatus) bool { return s.Name == filter.Interface }) {
			return fmt.Errorf("%w: there is no interface %q", desired.ErrNotFound, filter.Interface)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	packets := 0
	err = w.agent.Trace(ctx, filter, func(e agent.TraceEvent) error {
		m, err := explained(e)
		if err == nil {
			err = send(m)
		}
		if packets++; err == nil && packets == MostPackets {
			err = errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
