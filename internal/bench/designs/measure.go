package designs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/search"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// The measures, as they are called in JSON too; those of N4 are signalling's.
const (
	metricPackets = "pps"
	metricAtLeast = "pps_at_least" // the generator was the limit
	metricCPU     = "cpu_ns"
	metricP50     = "p50_us"
	metricP99     = "p99_us"
)

// bench is a run.
type bench struct {
	node.Undo
	*Experiment
	experiment.Setting
	cpus proc.Pair
	at   map[string]point
	uut  map[string]*upf
	card *card // an ideal one; nil: not measured
	// pdrs are what this round found, by design and size.
	pdrs  map[string]search.GoalResult
	round int
}

// Environment says what is measured, and what the generator can by itself.
func (b *bench) Environment(ctx context.Context) (e result.Environment, err error) {
	i := slices.IndexFunc(b.Designs, func(name string) bool { return name != ideal })
	if i < 0 {
		return b.card.Daemon.Environment(ctx)
	}
	u := b.uut[b.Designs[i]]
	if e, err = u.Daemon.Environment(ctx); err != nil {
		return e, err
	}
	pair, sent, err := b.pair(ctx, u, b.Sizes[0])
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	err = pair.Describe(ctx, sent, &e)
	return e, err
}

// pair sends packets of a size from N3 for all sessions, and receives them from N6.
func (b *bench) pair(ctx context.Context, u *upf, size string) (*traffic.Pair, traffic.Template, error) {
	sent, want := signalling.Uplink(u.has.ues())
	sent.Sources = u.has.gnbs
	sent, err := device.Sized(sent, size)
	if err != nil {
		return nil, sent, err
	}
	pair, err := b.open(ctx, u, &want, nil)
	return pair, sent, err
}

// open is a pair from N3 to N6, which may be used together with another.
func (b *bench) open(ctx context.Context, u *upf, want *traffic.Template, with *traffic.Pair) (*traffic.Pair, error) {
	around := u.Net.Around.Path()
	return traffic.Open(ctx, traffic.Options{
		TX: traffic.Port{Namespace: around, Interface: "g2"}, RX: traffic.Port{Namespace: around, Interface: "s0"},
		CPU: b.cpus.Generator, Method: traffic.Live, Expect: want, Seed: b.Seed, With: with,
	})
}

// Measure takes the samples of a point.
func (b *bench) Measure(ctx context.Context, at experiment.Point, round int) ([]experiment.Sample, error) {
	if round != b.round || b.pdrs == nil {
		b.pdrs, b.round = map[string]search.GoalResult{}, round
	}
	p := b.at[at.ID]
	return p.task.measure(ctx, b, p.design)
}

// loss is what PDR may lose.
const loss = 0.005

// goal is PDR, by trials of that time.
func goal(t time.Duration) search.Goal {
	return search.Goal{Name: "PDR", LossRatio: loss, ExceedRatio: 0.5, Width: 0.05, Initial: t, Final: t, Sum: 3 * t}
}

// pdrOf is PDR of a design with frames of a size, which is searched once in a round.
func (b *bench) pdrOf(ctx context.Context, design, size string, pair *traffic.Pair, sent traffic.Template) (g search.GoalResult, err error) {
	if g, there := b.pdrs[design+", "+size]; there {
		return g, nil
	}
	if g, err = b.pdr(ctx, pair, sent, time.Duration(b.Trial)); err == nil {
		b.pdrs[design+", "+size] = g
	}
	return g, err
}

// pdr is the highest rate of packets with so little loss.
func (b *bench) pdr(ctx context.Context, pair *traffic.Pair, sent traffic.Template, trial time.Duration) (g search.GoalResult, err error) {
	most, err := pair.Limit(ctx, sent)
	if err != nil {
		return g, err
	}
	found, err := search.Search(ctx, search.Settings{Min: device.Lowest, Max: most, Goals: []search.Goal{goal(trial)}}, func(ctx context.Context, in search.Input) (search.Output, error) {
		o, err := pair.Run(ctx, traffic.Trial{Template: sent, Rate: in.Load, Duration: in.Duration, Untimed: true})
		if err != nil && (!errors.Is(err, traffic.ErrNothing) || ctx.Err() != nil) {
			return search.Output{}, err
		}
		return device.TrialOutput(o), nil
	})
	if err != nil {
		return g, err
	}
	return found.Goals[0], nil
}
