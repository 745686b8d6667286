package device

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/search"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// trials runs packets through a device.
type trials interface {
	Limit(context.Context, traffic.Template) (float64, error)
	Run(context.Context, traffic.Trial) (traffic.Outcome, error)
}

// probing is one point while it is measured.
type probing struct {
	*deviceBench
	point
	trials trials
	sent   traffic.Template
	octets float64         // of a frame that comes out with FCS, their mean
	faulty traffic.Outcome // sums of what was wrong with packets
	out    []experiment.Sample
}

// Measure finds NDR and PDR of a device, and then latency and loss at rates that
// follow from them.
func (b *deviceBench) Measure(ctx context.Context, at experiment.Point, _ int) (_ []experiment.Sample, err error) {
	p := b.points[at.ID]
	sent, options, err := b.packets(p)
	if err != nil {
		return nil, err
	}
	pair, err := traffic.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	if _, why := pair.Sends(); why != "" {
		b.Warn("%s: packets are sent by AF_PACKET, which is slower than live frames: %s", p.id(), why)
	}
	m := &probing{deviceBench: b, point: p, trials: pair, sent: sent}
	if err := m.all(ctx); err != nil {
		return nil, err
	}
	m.warnOfFaults()
	return m.out, nil
}

// packets says where a point's device is, and what goes in and comes out of it: frames
// of the point's size.
func (b *deviceBench) packets(p point) (sent traffic.Template, o traffic.Options, err error) {
	o = traffic.Options{TX: b.tx(), RX: b.rx(), CPU: b.cpus.Generator, Method: traffic.Method(b.Method), Seed: b.Seed}
	if p.target.Device == "device" {
		if sent, err = readTemplate(b.Template); err != nil {
			return sent, o, err
		}
		if sent.Ethernet.Destination == nil {
			sent.Ethernet.Destination = b.MAC
		}
		if b.Expect != "" {
			e, err := readTemplate(b.Expect)
			if err != nil {
				return sent, o, err
			}
			o.Expect = &e
		}
		sent, err = Sized(sent, p.size)
		return sent, o, err
	}
	n := b.nodes[p.target.Device]
	o.TX, o.RX, o.Method = n.TX, n.RX, traffic.Live
	if n.Daemon != nil {
		o.Watch = map[string]int{"culvert": n.Daemon.Cmd.Process.Pid}
	}
	sent = Forwarders()[0].Sent
	if p.target.Device != Veth {
		f := ForwarderOf(p.target)
		sent, o.Expect = f.Sent, f.Expect
	}
	sent.Ethernet.Destination = traffic.MAC(node.MAC(1))
	sent, err = Sized(sent, p.size)
	return sent, o, err
}

// all takes the samples of a point.
func (m *probing) all(ctx context.Context) error {
	most, err := m.begin(ctx)
	if err != nil {
		return err
	}
	found, err := search.Search(ctx, search.Settings{Min: Lowest, Max: most, Goals: m.goals()}, m.trial)
	if err != nil {
		return err
	}
	for _, g := range found.Goals {
		m.found(g)
	}
	if err := m.ring(ctx, found.Goals); err != nil {
		return err
	}
	pdr := found.Goals[1]
	if pdr.Lower == 0 {
		return nil // warned of: there is no rate to measure at
	}
	for _, share := range m.Latency {
		if err := m.latency(ctx, share, max(Lowest, share*max(pdr.Throughput, pdr.Lower))); err != nil {
			return err
		}
	}
	for _, mpps := range m.Curve { // loss, at the rates that the generator reaches
		if mpps*1e6 > most {
			continue
		}
		o, err := m.run(ctx, mpps*1e6, time.Duration(m.Final))
		if err != nil && (!errors.Is(err, traffic.ErrNothing) || ctx.Err() != nil) {
			return err
		}
		if !o.AtLimit {
			m.sample("loss", "", LossRatio(o), nil, "rate", strconv.FormatFloat(mpps, 'g', -1, 64))
		}
	}
	return nil
}

// warmUpTime is how long packets go through a device before anything counts:
// neighbours are asked for, caches filled, and the answer to whether anything
// comes out at all.
const warmUpTime = 100 * time.Millisecond

const lenFCS = 4

// begin sends the first packets, and finds how many the generator can.
func (m *probing) begin(ctx context.Context) (most float64, err error) {
	limit, err := m.trials.Limit(ctx, m.sent)
	if err != nil {
		return 0, err
	}
	o, err := m.run(ctx, Lowest, warmUpTime)
	if err != nil {
		return 0, err
	}
	if o.Corrupt+o.Unreadable >= o.Received && o.Received > 0 {
		return 0, fmt.Errorf("every packet came out otherwise than was expected: %s", first(o.Faults))
	}
	m.octets = float64(o.Octets)/float64(o.Received) + lenFCS
	fast, err := m.trials.Run(ctx, traffic.Trial{Template: m.sent, Duration: warmUpTime})
	if err != nil && !errors.Is(err, traffic.ErrNothing) {
		return 0, err
	}
	// A generator that has not to receive too is faster than its limit.
	most = max(limit, fast.Rate)
	m.sample("generator_limit", "packets/s", most, nil)
	return most, nil
}

func first(faults []string) string {
	if len(faults) == 0 {
		return "and none was shown"
	}
	return faults[0]
}

// run is one trial. What was wrong with packets is kept for warnOfFaults.
func (m *probing) run(ctx context.Context, rate float64, lasting time.Duration) (traffic.Outcome, error) {
	o, err := m.trials.Run(ctx, traffic.Trial{Template: m.sent, Rate: rate, Duration: lasting})
	f := &m.faulty
	f.Sent += o.Sent
	f.Corrupt, f.Unreadable, f.Duplicated = f.Corrupt+o.Corrupt, f.Unreadable+o.Unreadable, f.Duplicated+o.Duplicated
	f.Reordered, f.Unexpected, f.Returned = f.Reordered+o.Reordered, f.Unexpected+o.Unexpected, f.Returned+o.Returned
	if len(f.Faults) == 0 {
		f.Faults = o.Faults
	}
	return o, err
}

// trial is one of the search. A packet that came out wrong is as good as lost.
func (m *probing) trial(ctx context.Context, in search.Input) (search.Output, error) {
	o, err := m.run(ctx, in.Load, in.Duration)
	if err != nil && (!errors.Is(err, traffic.ErrNothing) || ctx.Err() != nil) {
		return search.Output{}, err
	}
	return TrialOutput(o), nil
}

// TrialOutput is what a search makes of a trial.
func TrialOutput(o traffic.Outcome) search.Output {
	out := search.Output{LossRatio: LossRatio(o)}
	if o.AtLimit {
		out.Reached = o.Rate
	}
	return out
}

// LossRatio is the share of packets that did not come out right.
func LossRatio(o traffic.Outcome) float64 {
	if o.Sent == 0 {
		return 1
	}
	right := o.Received - min(o.Received, o.Corrupt-min(o.Corrupt, o.Unreadable))
	return max(0, 1-float64(right)/float64(o.Sent))
}

func (m *probing) sample(metric, unit string, value float64, h *result.Histogram, more ...string) {
	labels := result.Labels{"device": m.target.Device, "function": m.target.Function, "size": m.size, "what": m.target.String()}
	m.out = append(m.out, experiment.Sample{Metric: metric, Labels: labels.With(more...), Unit: unit, Value: value, Histogram: h})
}

// found keeps what the search found of a goal, if that is the device's.
func (m *probing) found(g search.GoalResult) {
	metric := map[string]string{"NDR": "ndr", "PDR": "pdr"}[g.Name]
	switch g.Cause {
	case search.Regular:
		m.sample(metric, "packets/s", g.Throughput, nil)
		m.sample(metric+"_bits", "bit/s", g.Throughput*m.octets*8, nil)
	case search.GeneratorLimited:
		m.sample(metric+"_at_least", "packets/s", g.Lower, nil)
		m.Warn("%s: %s", m.id(), g)
	case search.BelowMin:
		m.sample(metric, "packets/s", 0, nil)
		m.Warn("%s: %s: it loses packets however slowly they come", m.id(), g)
	default:
		m.Warn("%s: %s: trials at the same rate disagreed too much", m.id(), g)
	}
}

// ring finds out whether a built-in device was the limit, or the pair of
// interfaces that leads to it: the same packets go at the rate that was too much
// to a receiver that is in the device's place. Figures leave out a device whose pair
// loses more than the goal by itself.
func (m *probing) ring(ctx context.Context, goals []search.GoalResult) (err error) {
	n := m.nodes[Veth]
	if m.target.Device == "device" || m.target.Device == Veth || n == nil {
		return nil
	}
	pair, err := traffic.Open(ctx, traffic.Options{TX: n.TX, RX: n.RX, CPU: m.cpus.Generator, Method: traffic.Live, Seed: m.Seed})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	for _, g := range goals {
		if g.Cause != search.Regular {
			continue
		}
		var losses []float64
		for range ringTrials {
			o, err := pair.Run(ctx, traffic.Trial{Template: m.sent, Rate: g.Upper, Duration: g.Final})
			if err != nil {
				return err
			}
			losses = append(losses, LossRatio(o))
		}
		m.sample(metricVethLoss, "", stats.Median(losses), nil, "goal", g.Name)
	}
	return nil
}

// ringTrials are enough for one to be spoilt.
const ringTrials = 3

// latency measures at a share of PDR.
func (m *probing) latency(ctx context.Context, share, rate float64) error {
	o, err := m.run(ctx, rate, time.Duration(m.Final))
	if err != nil {
		return err
	}
	if o.Latency == nil || o.Latency.Total() == 0 {
		return nil
	}
	load := strconv.Itoa(int(math.Round(100*share))) + " %"
	m.sample("latency", "ns", o.Latency.Quantile(0.5), o.Latency, "load", load)
	for name, q := range map[string]float64{"latency_p90": 0.9, "latency_p99": 0.99, "latency_p999": 0.999, "latency_max": 1} {
		m.sample(name, "ns", o.Latency.Quantile(q), nil, "load", load)
	}
	for _, c := range o.CPU.Cores {
		if c.CPU == m.cpus.Device && m.target.Device != "device" {
			m.sample("device_cpu", "", 1-c.Idle, nil, "load", load)
		}
	}
	return nil
}

// warnOfFaults warns of what was wrong with packets besides that some were lost.
func (m *probing) warnOfFaults() {
	f := m.faulty
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{f.Corrupt, "came out otherwise than expected"}, {f.Duplicated, "came out twice"}, {f.Reordered, "were overtaken"},
		{f.Unexpected - min(f.Unexpected, f.Returned), "came that nobody sent"}, {f.Returned, "were answered to the sender"},
	} {
		if c.n > 0 {
			m.Warn("%s: of %d packets %d %s: %s", m.id(), f.Sent, c.n, c.what, first(f.Faults))
		}
	}
}
