package disrupt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/search"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// Experiment is `culvert bench disrupt`: how long packets are blocked by what
// operators do to a device that is under load.
type Experiment struct {
	Events []string `json:"events,omitempty"`
	// Rate in Mpps is held all the time; 0: Share of NDR, found before.
	Rate  float64 `json:"rate,omitempty"`
	Share float64 `json:"share,omitempty"`
	// Before is how long packets go before the event, After from its end on.
	Before experiment.Duration `json:"before,omitempty"`
	After  experiment.Duration `json:"after,omitempty"`
	// Entries are how many SIDs and policies come and go with a new configuration.
	Entries int `json:"entries,omitempty"`
	// Handovers a second are under way during the event signalling, which is measured with
	// each upf.n4_fast of N4Fast.
	Handovers float64  `json:"handovers,omitempty"`
	N4Fast    []string `json:"n4_fast,omitempty"`
}

// New returns the experiment with its defaults.
func New() *Experiment {
	return &Experiment{
		Events: EventNames(), Share: 1, Entries: 500, Handovers: 5000, N4Fast: N4Fast(),
		Before: experiment.Duration(300 * time.Millisecond), After: experiment.Duration(300 * time.Millisecond),
	}
}

// Kind is the kind "disrupt".
var Kind = experiment.Kind{Name: "disrupt", NoiseLimit: experiment.NoiseOfRates, New: func() experiment.Experiment { return New() }}

// Flags offers the parameters.
func (d *Experiment) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&d.Events, "events", d.Events, "`names` of what is done under load")
	f.Float64Var(&d.Rate, "rate", d.Rate, "`Mpps` to hold (default: NDR, which is found first)")
	f.Float64Var(&d.Share, "share", d.Share, "`share` of NDR to hold, without --rate")
	f.TextVar(&d.Before, "before", d.Before, "`duration` of the packets before the event")
	f.TextVar(&d.After, "after", d.After, "`duration` of the packets after it")
	f.IntVar(&d.Entries, "entries", d.Entries, "`number` of SIDs, and of policies, that come and go")
	f.Float64Var(&d.Handovers, "handovers", d.Handovers, "`number` of handovers a second during the event signalling")
	f.StringSliceVar(&d.N4Fast, "n4-fast", d.N4Fast, "`value` of upf.n4_fast to measure them with: on (the data path answers), off")
}

// CPUs are those that it measures on.
func (*Experiment) CPUs(chosen int) ([]int, error) { return proc.Both(chosen) }

// Quick makes it seconds.
func (d *Experiment) Quick() {
	d.Rate, d.Entries, d.Handovers = 0.02, 50, 500
	d.Before, d.After = experiment.Duration(50*time.Millisecond), experiment.Duration(50*time.Millisecond)
}

// Validate says what is wrong with the parameters.
func (d *Experiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	names := EventNames()
	known := func(name string) bool { return slices.Contains(names, name) }
	experiment.Each(want, "events", "one of "+strings.Join(names, ", "), "there is no event %q", d.Events, known)
	want(len(d.Events) > 0, "events", "one or more of "+strings.Join(names, ", "), "there is none")
	want(d.Rate == 0 || d.Rate*1e6 >= device.Lowest, "rate", "in Mpps, 0.001 or more; or leave it out", "%v is too little", d.Rate)
	want(d.Share > 0 && d.Share <= 1, "share", "more than 0, up to 1", "%v is no share of NDR", d.Share)
	want(d.Entries >= 1 && d.Entries <= mostChanged, "entries", fmt.Sprintf("1 to %d", mostChanged), "%d is out of range", d.Entries)
	want(d.Handovers >= 1 && d.Handovers <= mostHandovers, "handovers", fmt.Sprintf("1 to %d a second", mostHandovers), "%v is out of range", d.Handovers)
	experiment.Chosen(want, "n4_fast", d.N4Fast, N4Fast())
	want(d.Before > 0 && d.After > 0, "before", "both longer than 0", "before is %s, after %s", d.Before, d.After)
	return experiment.Check(list)
}

// mostChanged are as many as the functions of SIDs behind those of other events.
const mostChanged = 10_000

// mostHandovers are as many as there are sessions for in a node that starts in seconds.
const mostHandovers = 25_000

// eventTakes is about as long as an event is.
const eventTakes = time.Second

// Plan says what will be measured.
func (d *Experiment) Plan() (experiment.Plan, error) {
	p := experiment.Plan{SetUp: 5 * time.Second}
	if d.Rate == 0 && d.packets() {
		p.SetUp += 2 * device.TrialsOfSearch * (ndrTrial + device.SetUpTrial)
	}
	each := 2*(time.Duration(d.Before)+time.Duration(d.After)+device.SetUpTrial) + 2*eventTakes
	for _, name := range d.Events {
		takes := each
		if name == signallingEvent {
			takes = d.signallingTakes(each/2 + eventTakes)
		}
		p.Points = append(p.Points, experiment.Point{ID: name, Takes: takes})
	}
	return p, nil
}

// packets says that an event is held against a load of packets.
func (d *Experiment) packets() bool {
	return slices.ContainsFunc(d.Events, func(name string) bool { return name != signallingEvent })
}

// Bench is a run.
type Bench struct {
	node.Undo
	*Experiment
	experiment.Setting
	cpus    proc.Pair
	Node    *device.Node // of SRv6
	upf     *device.Node // of sessions, if an event wants them
	spread  *device.Node // of packets that are spread, if an event wants it
	n4      []n4Node     // of handovers, if they are an event
	control *cost.Control
	Rates   map[*device.Node]float64
	dir     string
	other   string // binary with another build of the data path, in dir
	state   map[string]int
}

// Open sets up what is measured.
func (d *Experiment) Open(ctx context.Context, s experiment.Setting) (_ experiment.Bench, err error) {
	b := &Bench{Experiment: d, Setting: s, Rates: map[*device.Node]float64{}, state: map[string]int{}}
	defer b.OnError(&err)
	if b.cpus, err = proc.PickPair(s.CPU); err != nil {
		return nil, err
	}
	if b.cpus.Generator == b.cpus.Device {
		return nil, device.ErrOneCPU
	}
	if b.dir, err = os.MkdirTemp("", "culvert-bench-"); err != nil {
		return nil, err
	}
	b.Later(func() error { return os.RemoveAll(b.dir) })
	// Else the daemon, and who waits for it, stand behind the generator, which
	// sends until they are done.
	for _, prepare := range []func() (func() error, error){proc.GoAhead, proc.Awake} {
		back, err := prepare()
		if err != nil {
			return nil, err
		}
		b.Later(back)
	}
	if b.Node, err = device.OpenNode(ctx, s, device.CulvertDevice, b.cpus.Device); err != nil {
		return nil, err
	}
	b.Later(b.Node.Close)
	if slices.ContainsFunc(d.Events, func(name string) bool { return eventOf(name).session }) {
		if err := b.openUPF(ctx); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(d.Events, func(name string) bool { return eventOf(name).spread }) {
		if err := b.openSpread(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(d.Events, signallingEvent) {
		for _, fast := range d.N4Fast {
			if err := b.openSignalling(ctx, fast); err != nil {
				return nil, err
			}
		}
	}
	for _, n := range []*device.Node{b.Node, b.upf, b.spread} {
		if n == nil || !d.packets() {
			continue
		}
		if b.Rates[n], err = b.load(ctx, n); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Environment says what is measured.
func (b *Bench) Environment(ctx context.Context) (result.Environment, error) {
	return b.Node.Daemon.Environment(ctx)
}

// ndrTrial is how long trials are that find NDR: less exactly than `culvert bench
// device` does, since it is only to be held.
const ndrTrial = 300 * time.Millisecond

// load is the rate that is held at a node, in packets/s.
func (b *Bench) load(ctx context.Context, n *device.Node) (rate float64, err error) {
	if b.Rate > 0 {
		return b.Rate * 1e6, nil
	}
	pair, sent, err := b.OpenPair(ctx, n)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	most, err := pair.Limit(ctx, sent)
	if err != nil {
		return 0, err
	}
	goal := search.Goal{Name: "NDR", ExceedRatio: 0.5, Width: 0.05, Initial: ndrTrial, Final: ndrTrial, Sum: 3 * ndrTrial}
	found, err := search.Search(ctx, search.Settings{Min: device.Lowest, Max: most, Goals: []search.Goal{goal}}, func(ctx context.Context, in search.Input) (search.Output, error) {
		o, err := pair.Run(ctx, traffic.Trial{Template: sent, Rate: in.Load, Duration: in.Duration})
		return device.TrialOutput(o), err
	})
	if err != nil {
		return 0, fmt.Errorf("find NDR: %w", err)
	}
	g := found.Goals[0]
	if g.Lower == 0 {
		return 0, fmt.Errorf("there is no load without loss on this machine at this moment (%s): give --rate", g)
	}
	if g.Cause != search.Regular {
		b.Warn("the load that is held: %s", g)
	}
	return b.Share * g.Lower, nil
}

// OpenPair is the traffic of a node, and what it sends.
func (b *Bench) OpenPair(ctx context.Context, n *device.Node) (*traffic.Pair, traffic.Template, error) {
	f := device.ForwarderOf(device.Target{Device: device.CulvertDevice, Function: "h_encaps_red"})
	if n == b.upf { // a session's packets, to its UE
		f.Sent.Inner = traffic.Inner{Source: catalog.Dst4, Destination: catalog.FirstUE}
		f.Expect = &traffic.Template{Outer: traffic.Outer{
			Kind: traffic.GTPU, Source: catalog.UPF, Destination: firstGNB.Address, TEID: firstGNB.TEID, Container: traffic.Downlink, QFI: 9,
		}}
	}
	if n == b.spread {
		f.Sent.Flows = flowsToSpread
	}
	f.Sent.Ethernet.Destination = traffic.MAC(node.MAC(1))
	pair, err := traffic.Open(ctx, traffic.Options{
		TX: n.TX, RX: n.RX, CPU: b.cpus.Generator, Method: traffic.Live, Expect: f.Expect, Seed: b.Seed,
	})
	return pair, f.Sent, err
}

// Measure holds the load twice: with nothing done, and with the event. What is
// lost without it is not the event's.
func (b *Bench) Measure(ctx context.Context, at experiment.Point, _ int) (list []experiment.Sample, err error) {
	if at.ID == signallingEvent {
		return b.measureSignalling(ctx)
	}
	e := eventOf(at.ID)
	n := b.Node
	switch {
	case e.session:
		n = b.upf
	case e.spread:
		n = b.spread
	}
	pair, sent, err := b.OpenPair(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	with, took, err := b.During(ctx, n, pair, sent, func(ctx context.Context) error { return e.do(b, ctx, n) })
	if err != nil {
		return nil, err
	}
	without, _, err := b.During(ctx, n, pair, sent, func(ctx context.Context) error { return node.Wait(ctx, took) })
	if err != nil {
		return nil, err
	}
	if with.AtLimit || without.AtLimit {
		b.Warn("%s: the generator did not hold %.0f packets/s: others use its CPU", at.ID, b.Rates[n])
	}
	add := func(metric, unit string, value float64) {
		list = append(list, experiment.Sample{Metric: metric, Labels: result.Labels{"event": at.ID}, Unit: unit, Value: value})
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	add("blocked", "ms", 1e3*float64(with.Lost)/b.Rates[n])
	add("blocked_nothing_done", "ms", 1e3*float64(without.Lost)/b.Rates[n])
	add("lost", "packets", float64(with.Lost))
	add("lost_waiting", "packets", float64(with.Waiting))
	add("reordered", "packets", float64(with.Reordered))
	add("longest_gap", "ms", ms(with.LongestGap))
	add("longest_gap_nothing_done", "ms", ms(without.LongestGap))
	add("event_took", "ms", ms(took))
	add("held", "packets/s", b.Rates[n])
	return list, nil
}

// During sends packets before, while and after something is done, which took so
// long.
func (b *Bench) During(ctx context.Context, n *device.Node, pair *traffic.Pair, sent traffic.Template, do func(context.Context) error) (o traffic.Outcome, took time.Duration, err error) {
	o, err = pair.During(ctx, traffic.Trial{Template: sent, Rate: b.Rates[n]}, func(ctx context.Context) (err error) {
		took, err = b.perform(ctx, do)
		return err
	})
	return o, took, err
}

// perform does something a while after its beginning, and a while before its end.
func (b *Bench) perform(ctx context.Context, do func(context.Context) error) (took time.Duration, err error) {
	if err := node.Wait(ctx, time.Duration(b.Before)); err != nil {
		return 0, err
	}
	begun := time.Now()
	err = do(ctx)
	took = time.Since(begun)
	return took, errors.Join(err, node.Wait(ctx, time.Duration(b.After)))
}

// Figures show what was blocked beside what nothing does.
func (d *Experiment) Figures() []result.Figure {
	bars := func(id, metric, title, caption string) result.Figure {
		return result.Figure{ID: id, Title: title, Kind: result.Bars, Metric: metric, X: "event", YTitle: "ms", XTitle: "what was done", Caption: caption}
	}
	list := []result.Figure{
		bars("disrupt_blocked", "blocked", "Blocked time",
			"Packets lost by offered rate while each was done under load: the time for which nothing went through, had all been lost at once. Shorter is better; 0 is a change that no packet noticed."),
		bars("disrupt_nothing", "blocked_nothing_done", "Blocked time while nothing was done",
			"The same load for as long, with nothing done: what the machine loses by itself. A blocked time that is no longer than this says nothing about the event."),
		bars("disrupt_gap", "longest_gap", "Longest gap between two packets",
			"The longest time without a packet at the receiver. A gap without loss is packets that waited."),
		bars("disrupt_took", "event_took", "How long it took",
			"From the command until the daemon answered that it is done. Packets went on meanwhile but for the blocked time."),
	}
	list[0].Headline = "ms blocked"
	if slices.Contains(d.Events, signallingEvent) {
		list = append(list, signallingFigures()...)
	}
	return list
}

// Claims say what was not noticed by packets, and what was.
func (d *Experiment) Claims(r *result.Run) (claims []string) {
	for _, m := range r.Select("blocked", nil) {
		floor := r.Select("blocked_nothing_done", m.Labels)
		value, low, high := stats.Interval(m.Samples, nil)
		switch worst := slices.Max(m.Samples); {
		case worst == 0:
			claims = append(claims, fmt.Sprintf("%s: no packet was lost in %d times.", m.Labels["event"], len(m.Samples)))
		case len(floor) == 1 && low > slices.Max(floor[0].Samples):
			claims = append(claims, fmt.Sprintf("%s blocks packets for %.1f ms (%.1f to %.1f).", m.Labels["event"], value, low, high))
		}
	}
	return append(claims, signallingClaims(r)...)
}
