package watch

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
)

// How long drops are kept, and how finely.
const (
	every  = 10 * time.Second
	kept   = time.Hour
	recent = time.Minute            // an example of this age is not replaced
	glance = 500 * time.Millisecond // of a trace for examples
)

// drops keeps outcomes over time, and examples of drops.
type drops struct {
	agent   agent.Service
	current cell[*pb.Drops]
	meter   meter
	totals  map[string]uint64 // packets by reason, when the last sample was made
	since   time.Time
	wanted  []string // reasons that have grown and have no recent example

	mu       sync.Mutex // of what follows
	samples  []*pb.DropSample
	examples map[string]*pb.CaptureResponse
	looking  bool // a trace for examples runs
	next     time.Time
}

func newDrops(service agent.Service) *drops {
	d := &drops{agent: service, examples: map[string]*pb.CaptureResponse{}}
	d.current.read = d.read
	return d
}

// run makes a sample now and then until ctx ends.
func (d *drops) run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if all, err := d.agent.Outcomes(); err == nil {
			d.sample(time.Now(), all)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sample keeps what was dropped since the last sample.
func (d *drops) sample(now time.Time, all []agent.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &pb.DropSample{Time: timestamppb.New(now), Seconds: now.Sub(d.since).Seconds(), Packets: map[string]uint64{}}
	first := d.totals == nil
	totals := map[string]uint64{}
	for _, o := range all {
		if !o.Drop {
			continue
		}
		totals[o.Reason] = o.Packets
		if before := d.totals[o.Reason]; o.Packets > before {
			s.Packets[o.Reason] = o.Packets - before
		}
	}
	d.totals, d.since = totals, now
	if first {
		return // since when is not known
	}
	old := now.Add(-kept)
	d.samples = append(slices.DeleteFunc(d.samples, func(s *pb.DropSample) bool { return s.GetTime().AsTime().Before(old) }), s)
}

// read reads outcomes with their rates.
func (d *drops) read(now time.Time) (*pb.Drops, error) {
	all, err := d.agent.Outcomes()
	if err != nil {
		return nil, err
	}
	d.meter.begin(now)
	out := &pb.Drops{}
	d.wanted = nil
	for _, o := range all {
		w := &pb.WatchedOutcome{Outcome: &pb.Outcome{}, Rate: d.meter.rate(o.Reason, o.Counter)}
		if err := message.Encode(&o, w.Outcome); err != nil {
			return nil, err
		}
		out.Outcomes = append(out.Outcomes, w)
		if o.Drop && w.GetRate().GetPackets() > 0 {
			d.wanted = append(d.wanted, o.Reason)
		}
	}
	return out, nil
}

// look traces dropped packets for a moment where a reason grows that has no example. It
// returns at once.
func (d *drops) look(ctx context.Context) {
	d.current.mu.Lock()
	wanted := slices.Clone(d.wanted)
	d.current.mu.Unlock()
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted = slices.DeleteFunc(wanted, func(reason string) bool {
		e := d.examples[reason]
		return e != nil && now.Sub(e.GetPacket().GetTime().AsTime()) < recent
	})
	if len(wanted) == 0 || d.looking || now.Before(d.next) {
		return
	}
	d.looking, d.next = true, now.Add(every)
	ctx, cancel := context.WithTimeout(ctx, glance)
	go func() {
		defer cancel()
		// Somebody else's trace goes first: there can be one.
		_ = d.agent.Trace(ctx, agent.TraceFilter{Drops: true}, func(e agent.TraceEvent) error {
			m, err := explained(e)
			if err != nil {
				return err
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.examples[e.Reason] = m
			wanted = slices.DeleteFunc(wanted, func(reason string) bool { return reason == e.Reason })
			if len(wanted) == 0 {
				cancel()
			}
			return nil
		})
		d.mu.Lock()
		defer d.mu.Unlock()
		d.looking = false
	}()
}

// since returns the samples after a time, and all examples in the order of reasons.
func (d *drops) after(t time.Time) (samples []*pb.DropSample, examples []*pb.CaptureResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.samples {
		if s.GetTime().AsTime().After(t) {
			samples = append(samples, s)
		}
	}
	examples = slices.SortedFunc(maps.Values(d.examples), func(a, b *pb.CaptureResponse) int {
		return strings.Compare(a.GetPacket().GetReason(), b.GetPacket().GetReason())
	})
	return samples, examples
}
