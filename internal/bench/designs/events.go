package designs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/search"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/config"
)

// What happens to a design, and what it is held against: the same without it.
const (
	doubled   = "doubled" // from 40 % of PDR to 80 %
	atHalf    = "at 40 %"
	atFull    = "at 80 %"
	rescale   = "rescale" // from one core to two, and back
	noRescale = "no rescale"
	heavy     = "heavy" // one UE sends most
	noHeavy   = "no heavy UE"
)

// The measures of events, besides metricP99.
const (
	metricLost      = signalling.Lost
	metricReordered = "reordered"
	metricGap       = "gap_ms"
)

// event is something that happens under load.
type event struct {
	name    string
	measure func(*load, context.Context) error
}

// events are in this order: behind heavy, the pair's receiver has another one beside it.
var events = []event{{doubled, (*load).doubled}, {rescale, (*load).rescale}, {heavy, (*load).heavy}}

// EventNames are those of all events.
func EventNames() (names []string) {
	for _, e := range events {
		names = append(names, e.name)
	}
	return names
}

// trialsOfEvent is about how many trials an event takes.
const trialsOfEvent = 3

// eventTasks are one: all events.
func (e *Experiment) eventTasks() []task {
	if len(e.Events) == 0 {
		return nil
	}
	trials := time.Duration(trialsOfEvent * len(e.Events))
	return []task{{name: "events", takes: trials * (time.Duration(e.Trial) + device.SetUpTrial), measure: func(ctx context.Context, b *bench, design string) ([]experiment.Sample, error) {
		return b.events(ctx, design)
	}}}
}

// load is a design's packets, and what was measured with them.
type load struct {
	bench   *bench
	design  string
	pair    *traffic.Pair
	sent    traffic.Template
	pdr     float64 // packets/s
	samples []experiment.Sample
}

// events measures what events do to packets of the first size.
func (b *bench) events(ctx context.Context, design string) (list []experiment.Sample, err error) {
	l := &load{bench: b, design: design}
	if l.pair, l.sent, err = b.pair(ctx, b.uut[design], b.Sizes[0]); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.pair.Close()) }()
	found, err := b.pdrOf(ctx, design, b.Sizes[0], l.pair, l.sent)
	if err != nil {
		return nil, err
	}
	if l.pdr = max(found.Throughput, found.Lower); l.pdr < device.Lowest {
		b.Warn("%s, events: %s", design, found)
		return nil, nil
	}
	if found.Cause != search.Regular {
		b.Warn("%s, events: %s", design, found)
	}
	for _, e := range events {
		if !slices.Contains(b.Events, e.name) {
			continue
		}
		if err := e.measure(l, ctx); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", design, e.name, err)
		}
	}
	return l.samples, nil
}

func (l *load) add(event, metric, unit string, value float64, more ...string) {
	labels := Labels(l.design).With("event", event)
	l.samples = append(l.samples, experiment.Sample{Metric: metric, Labels: labels.With(more...), Unit: unit, Value: value})
}

// noticed adds what became of packets while something happened.
func (l *load) noticed(event string, o traffic.Outcome) {
	l.held(event, o)
	l.add(event, metricLost, "packets", float64(o.Lost))
	l.add(event, metricReordered, "packets", float64(o.Reordered))
	l.add(event, metricGap, "ms", float64(o.LongestGap)/float64(time.Millisecond))
}

// held warns where the load was not what it was to be, or other packets came out.
func (l *load) held(event string, o traffic.Outcome) {
	if len(o.Faults) > 0 {
		l.bench.Warn("%s, %s: %s", l.design, event, o.Faults[0])
	}
	if o.AtLimit {
		l.bench.Warn("%s, %s: %d of %d packets were sent: others use the generator's CPU", l.design, event, o.Sent, o.Offered)
	}
}

// The shares of PDR before and after the load doubles. One UE's is the latter, and all
// others' together an eighth of it.
const (
	shareBefore = 0.4
	shareAfter  = 0.8
	perOthers   = 8
)

// lead is how long packets go at least before something is done: the first are late.
const lead = 100 * time.Millisecond

// doubled doubles the load in the middle of a trial, and holds each of both for as long. It
// is of so many UEs that the order of each one's packets is known.
func (l *load) doubled(ctx context.Context) error {
	for _, t := range []struct {
		event         string
		before, after float64
	}{{doubled, shareBefore, shareAfter}, {atHalf, shareBefore, shareBefore}, {atFull, shareAfter, shareAfter}} {
		trial := l.of(0, traffic.Streams)
		trial.Rate, trial.Later = t.before*l.pdr, t.after*l.pdr
		o, err := l.pair.Run(ctx, trial)
		if err != nil {
			return err
		}
		l.noticed(t.event, o)
	}
	return nil
}

// rescale has a second core handle packets, and no more, under load. Only steer and both can: the
// others have as many cores as the interface has queues, and a veth's packets all take the
// queue of the CPU that sends them.
func (l *load) rescale(ctx context.Context) error {
	if !steered(l.design) {
		l.bench.Warn("%s cannot rescale here: the generator has one CPU, so that all packets take one queue of the interface, and the queue says the core", l.design)
		return nil
	}
	pause := func(ctx context.Context) error { return node.Wait(ctx, max(lead, time.Duration(l.bench.Trial)/2)) }
	over := func(cpus ...int) func(context.Context) error {
		return func(ctx context.Context) error {
			return l.bench.uut[l.design].Daemon.SpreadOver(ctx, config.CPUs(cpus))
		}
	}
	steps := []func(context.Context) error{pause, over(l.bench.cpus.Device, l.bench.cpus.Generator), pause, over(l.bench.cpus.Device), pause}
	var took time.Duration
	for _, t := range []struct {
		event string
		do    func(context.Context) error
	}{
		{rescale, func(ctx context.Context) error {
			begun := time.Now()
			for _, step := range steps {
				if err := step(ctx); err != nil {
					return err
				}
			}
			took = time.Since(begun)
			return nil
		}},
		{noRescale, func(ctx context.Context) error { return node.Wait(ctx, took) }},
	} {
		trial := l.of(0, traffic.Streams)
		trial.Rate = shareBefore * l.pdr
		o, err := l.pair.During(ctx, trial, t.do)
		if err != nil {
			return err
		}
		l.noticed(t.event, o)
	}
	return nil
}

// heavy has one UE send eight times as much as all others together, and then all alike.
func (l *load) heavy(ctx context.Context) (err error) {
	all, first, rest := l.of(0, l.sent.UEs), l.of(0, 1), l.of(1, l.sent.UEs-1)
	others, err := l.bench.open(ctx, l.bench.uut[l.design], rest.Expect, l.pair)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.Close()) }()
	first.Rate, rest.Rate = shareAfter*l.pdr, shareAfter/perOthers*l.pdr
	all.Rate = first.Rate + rest.Rate
	even, err := l.pair.Run(ctx, all)
	if err != nil {
		return err
	}
	l.held(noHeavy, even)
	l.latency(noHeavy, "others", even)
	list, err := traffic.Together(ctx, [2]*traffic.Pair{l.pair, others}, [2]traffic.Trial{first, rest})
	if err != nil {
		return err
	}
	l.held(heavy, list[0])
	l.held(heavy, list[1])
	l.latency(heavy, heavy, list[0])
	l.latency(heavy, "others", list[1])
	return nil
}

// of is a trial of n UEs' packets, from one on.
func (l *load) of(first, n int) traffic.Trial {
	_, want := signalling.Uplink(n)
	sent := l.sent
	sent.TEIDs, sent.UEs = n, n
	sent.Outer.TEID += uint32(first)
	for range first {
		want.Inner.Source = want.Inner.Source.Next()
	}
	sent.Inner.Source = want.Inner.Source
	return traffic.Trial{Template: sent, Expect: &want, Duration: time.Duration(l.bench.Trial)}
}

// latency adds what packets of some UEs noticed.
func (l *load) latency(event, ue string, o traffic.Outcome) {
	l.add(event, metricLost, "packets", float64(o.Lost), "ue", ue)
	if o.Received == 0 {
		l.bench.Warn("%s, %s: nothing came out of %s UEs", l.design, event, ue)
		return
	}
	l.add(event, metricP99, "us", o.Latency.Quantile(0.99)/1e3, "ue", ue)
}

// eventFigures show what is measured of the chosen designs.
func (e *Experiment) eventFigures() (list []result.Figure) {
	if slices.Contains(e.Events, doubled) || slices.Contains(e.Events, rescale) && slices.ContainsFunc(e.Designs, steered) {
		bars := func(id, metric, title, unit, caption string) result.Figure {
			return result.Figure{ID: id, Title: title, Kind: result.Bars, Metric: metric, Where: ofEvents, X: "event", Series: labelDesign, XTitle: "what happened", YTitle: unit, Caption: caption}
		}
		list = append(list,
			bars("designs_events_lost", metricLost, "Packets lost under a sudden load, and while cores are added", "packets",
				"The load goes from 40 % of the design's own PDR to 80 % at once (doubled); beside it each of these loads is held. At 40 %, designs with SteerOffload get a second core and give it back (rescale). The second core is the generator's: nothing is said of machines where it is free. The other designs cannot rescale here."),
			bars("designs_events_gap", metricGap, "Longest time without a packet", "gap",
				"Of the same trials, at the receiver. The paper's card starts anew when its queues change, and its SoftUPF rescales without a gap."),
			bars("designs_events_reordered", metricReordered, "Packets out of order", "packets", "Of the same trials: packets of a UE that came after a later one. 32 UEs send."))
		list[1].Anchors = []result.Anchor{{Label: "paper 003", Source: paper, X: rescale, Y: 500, Unit: "ms", Note: "SteerOffload: the card starts anew to use another core"}}
	}
	if slices.Contains(e.Events, heavy) {
		list = append(list, result.Figure{
			ID: "designs_heavy", Title: "Latency beside a heavy UE, P99", Kind: result.Bars, Metric: metricP99, Where: result.Labels{"event": heavy}, X: labelDesign, Series: "ue", YTitle: "latency",
			Caption: "One UE sends 80 % of the design's own PDR, all others together 10 %. Each design has one core, which all UEs share: none of them can keep the others apart from the heavy one. Steering does where UEs have different cores; this run has none to show it.",
			Anchors: []result.Anchor{anchor(steerOffload, 7, "times", "SteerOffload's latency of the heavy UE, by SoftUPF's, on cores of which each has its own UEs")},
		})
	}
	return list
}

// ofEvents selects what happened to all UEs alike.
var ofEvents = result.Labels{"offered": "", "ue": ""}

// eventClaims say of which design packets were lost by an event: more than without it.
func eventClaims(r *result.Run) (claims []string) {
	for _, e := range []struct{ event, floor, says string }{
		{doubled, atFull, "while the load doubles"}, {rescale, noRescale, "while it gets a second core and gives it back"},
	} {
		for _, m := range r.Select(metricLost, result.Labels{"event": e.event}) {
			floor := r.Select(metricLost, m.Labels.With("event", e.floor))
			if len(m.Samples) < fewestRounds || len(floor) != 1 {
				continue
			}
			value, low, high := stats.Interval(m.Samples, nil)
			switch design := m.Labels[labelDesign]; {
			case slices.Max(m.Samples) == 0:
				claims = append(claims, fmt.Sprintf("%s loses no packet %s, in %d times.", design, e.says, len(m.Samples)))
			case low > slices.Max(floor[0].Samples):
				claims = append(claims, fmt.Sprintf("%s loses %.0f packets %s (%.0f to %.0f), more than without that.", design, value, e.says, low, high))
			}
		}
	}
	return claims
}
