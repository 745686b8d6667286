package n9

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/lab"
)

// topology is the laboratory, and instance its name here: the same for all runs, so
// that each run removes what a killed one left.
const (
	topology = "slices-bench"
	instance = "bench-slices"
)

// wholeLoss is what may be lost of packets that are delivered whole.
const wholeLoss = 1 - result.Whole

// rig is the laboratory, with what sends through it and what handles its packets.
type rig struct {
	params    *Params
	setting   experiment.Setting // CPU: of the nodes
	generator int                // its CPU
	network   *lab.Network
	at        point // transport and direction that all is set to
	load      *load // of that direction and entry, as are these two
	core      []int // threads that handle all nodes' packets on their CPU
	undo      node.Undo
	last      traffic.CPUUsage // in the last trial

	limit   float64                       // of the generator, packets/s
	highest map[string]map[string]float64 // by direction and transport, packets/s
	rates   map[string][]float64          // by direction, Mbit/s
}

// Open builds the laboratory and finds the rates.
func (p *Params) Open(ctx context.Context, set experiment.Setting) (experiment.Bench, error) {
	return p.open(ctx, set, instance)
}

func (p *Params) open(ctx context.Context, set experiment.Setting, instance string) (experiment.Bench, error) {
	r, err := newRig(ctx, p, set, instance)
	if err != nil {
		return nil, err
	}
	if err := r.findRates(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func newRig(ctx context.Context, p *Params, set experiment.Setting, instance string) (*rig, error) {
	nodes, generator, err := chooseCPUs(set.CPU)
	if err != nil {
		return nil, err
	}
	set.CPU = nodes
	network, err := lab.Open(ctx, topology, instance, set.Culvert, base, io.Discard)
	if errors.Is(err, lab.ErrBusy) {
		return nil, fmt.Errorf("another `culvert bench slices` is running in the laboratory %s: wait until it has ended", instance)
	}
	if err != nil {
		return nil, err
	}
	return &rig{
		params: p, setting: set, generator: generator, network: network, at: point{n9: base},
		highest: map[string]map[string]float64{}, rates: map[string][]float64{},
	}, nil
}

// Close takes everything away.
func (r *rig) Close() error { return errors.Join(r.undo.Close(), r.network.Close()) }

// Environment is what was measured, and the limit of what measured it.
func (r *rig) Environment(ctx context.Context) (e result.Environment, err error) {
	if e.Version, e.DataPath, err = r.network.Status(ctx, "upf1"); err != nil {
		return e, err
	}
	e.GeneratorLimit = r.limit / share
	cost, err := r.load.pairs[0].TimestampCost(ctx, r.load.lanes[0].send)
	e.TimestampNS = &cost
	return e, err
}

// packets is a rate in packets/s, of one in Mbit/s of T-PDUs.
func (r *rig) packets(mbit float64) float64 { return mbit * 1e6 / 8 / float64(r.params.PacketSize) }

func (r *rig) mbit(packets float64) float64 { return packets * 8 * float64(r.params.PacketSize) / 1e6 }

// gbit is a rate in Mbit/s as sentences have it.
func gbit(mbit float64) string { return fmt.Sprintf("%.3g Gbit/s", mbit/1e3) }

// goTo sets everything to a transport and a direction.
func (r *rig) goTo(ctx context.Context, n9, direction string) (err error) {
	if r.at.n9 == n9 && r.at.direction == direction {
		return nil
	}
	if entry := transportOf(n9).entry; r.at.direction != direction || r.load.entry != entry {
		r.at.direction = ""
		if err := r.undo.Close(); err != nil {
			return err
		}
		if r.load, err = openLoad(ctx, r.network, direction, entry, r.params.PacketSize, r.generator, r.setting.Seed, &r.undo); err != nil {
			return err
		}
		if err := r.startThreads(direction); err != nil {
			return err
		}
	}
	if r.at.n9 != n9 {
		if err := r.network.SetN9(ctx, n9); err != nil {
			return err
		}
	}
	r.at.n9, r.at.direction = n9, direction
	return r.settle(ctx)
}

// startThreads makes threads of what receives at the interfaces whose queue is in front
// of the chain, each the first of what follows in its softirqs.
func (r *rig) startThreads(direction string) error {
	queues := [][2]string{{"upf1", n3}}
	if direction == downlink {
		queues = [][2]string{{r.load.entry[0].last, n6}, {r.load.entry[1].last, n6}}
	}
	softirqd, err := proc.Softirqd(r.setting.CPU)
	if err != nil {
		return err
	}
	r.core = []int{softirqd}
	for _, q := range queues {
		t, err := napi.Start(r.network.Namespace(q[0]), q[1], r.setting.CPU)
		if err != nil {
			return fmt.Errorf("%s: %w", q[0], err)
		}
		r.undo.Later(t.Stop)
		r.core = append(r.core, t.PIDs...)
	}
	return nil
}

// How packets are sent until all of them come out: next hops may have to be
// found first.
const (
	settleRate  = 5000
	settleTrial = 20 * time.Millisecond
	settleTime  = 10 * time.Second
)

func (r *rig) settle(ctx context.Context) error {
	for end := time.Now().Add(settleTime); ; {
		o, err := r.load.send(ctx, settleRate, settleTrial)
		if err != nil {
			return err
		}
		wrong := o.check()
		if wrong == nil && o.lost() == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("%d packets/s do not come through %s, %s: of %d %d were lost",
				settleRate, r.at.n9, r.at.direction, o.sent(), o.lost()), wrong)
		}
	}
}

// offer sends one trial. A generator that was late because something else had
// its CPU tries again.
func (r *rig) offer(ctx context.Context, rate float64) (o outcome, err error) {
	const tries = 3
	for range tries {
		if o, err = r.once(ctx, rate); err != nil || !o.short() {
			return o, err
		}
	}
	r.setting.Warn("the generator was too slow for some of the rates: something else had its CPU, or they are above what it reaches")
	return o, nil
}

func (r *rig) once(ctx context.Context, rate float64) (o outcome, err error) {
	spent, err := proc.During(func() (time.Duration, error) { return proc.Time(r.core...) }, func() (err error) {
		o, err = r.load.send(ctx, rate, time.Duration(r.params.Trial))
		return err
	})
	if err != nil {
		return o, err
	}
	o.cpu, r.last = spent, o.slices[0].CPU
	if err := o.check(); err != nil {
		return o, fmt.Errorf("%s, %s: %w", r.at.n9, r.at.direction, err)
	}
	return o, nil
}

// findRates searches for the highest rate of each transport, and chooses those of
// the curves.
func (r *rig) findRates(ctx context.Context) error {
	for _, d := range r.params.Direction {
		if err := r.goTo(ctx, base, d); err != nil {
			return err
		}
		limit, err := r.load.pairs[0].Limit(ctx, r.load.lanes[0].send)
		if err != nil {
			return err
		}
		if r.limit == 0 || limit*share < r.limit {
			r.limit = limit * share
		}
		r.highest[d] = map[string]float64{}
		for _, n := range r.params.measured() {
			if err := r.goTo(ctx, n, d); err != nil {
				return err
			}
			rate, err := highest(r.limit, func(rate float64) (bool, error) { return r.whole(ctx, rate) })
			if err != nil {
				return fmt.Errorf("%s, %s: %w", n, d, err)
			}
			r.highest[d][n] = rate
		}
		r.rates[d] = r.params.Rates
		if len(r.rates[d]) == 0 {
			var list []float64 // the curves' highest rates
			for _, n := range r.params.N9 {
				list = append(list, r.mbit(r.highest[d][n]))
			}
			r.rates[d] = around(slices.Min(list), slices.Max(list), r.params.Points)
		}
	}
	return nil
}

// share of the generator's limit that is asked of it.
const share = 0.9

// whole says whether a rate is delivered whole, at the third try at the latest.
func (r *rig) whole(ctx context.Context, rate float64) (bool, error) {
	for range 3 {
		o, err := r.offer(ctx, rate)
		if err != nil || o.ratio() >= 1-wholeLoss {
			return err == nil, err
		}
	}
	return false, nil
}

// overload is what is offered, by the highest rate, where a core has no time left.
const overload = 1.6

// Measure takes a sample at a point.
func (r *rig) Measure(ctx context.Context, which experiment.Point, round int) ([]experiment.Sample, error) {
	all := r.params.points()
	i := slices.IndexFunc(all, func(p point) bool { return p.id() == which.ID })
	if i < 0 {
		return nil, fmt.Errorf("there is no point %q", which.ID)
	}
	p := all[i]
	if p.aspect != delivery && p.aspect != delay {
		beside, err := r.costOf(ctx, point{p.aspect, base, p.direction})
		if err != nil {
			return nil, err
		}
		ns, err := r.costOf(ctx, p)
		if err != nil {
			return nil, err
		}
		sample := experiment.Sample{Metric: metricCost, Labels: p.labels("load", string(p.aspect)), Unit: "ns", Value: ns, Baseline: &beside}
		return append(r.used(p), sample), nil
	}
	if err := r.goTo(ctx, p.n9, p.direction); err != nil {
		return nil, err
	}
	if p.aspect == delivery {
		return r.measureDelivery(ctx, p, round)
	}
	rate := r.highest[p.direction][p.n9] / 2
	o, err := r.offer(ctx, rate)
	if err != nil {
		return nil, err
	}
	h := o.latency()
	return []experiment.Sample{
		{Metric: metricDelay, Labels: p.labels(), Unit: "ns", Value: h.Quantile(0.5), Histogram: h},
		{Metric: metricDelayRate, Labels: p.labels(), Unit: "Mbit/s", Value: r.mbit(rate)},
	}, nil
}

// measureDelivery offers all rates, in an order that is another in each round.
func (r *rig) measureDelivery(ctx context.Context, p point, round int) ([]experiment.Sample, error) {
	rates := r.rates[p.direction]
	list := make([][]experiment.Sample, len(rates)) // by rate, whatever the order was
	for _, i := range rand.New(rand.NewPCG(r.setting.Seed, uint64(round))).Perm(len(rates)) {
		if r.packets(rates[i]) > r.limit {
			r.setting.Warn("rates above %s were not offered: the generator reaches no more", gbit(r.mbit(r.limit)))
			continue
		}
		o, err := r.offer(ctx, r.packets(rates[i]))
		if err != nil {
			return nil, err
		}
		labels := p.labels("offered", decimal(rates[i]))
		list[i] = []experiment.Sample{{Metric: metricDelivery, Labels: labels, Value: o.ratio()}}
		for k, s := range bySessions {
			delivered := float64(o.slices[k].Received) / float64(o.slices[k].Sent)
			list[i] = append(list[i], experiment.Sample{Metric: metricSlice, Labels: labels.With("slice", s.name), Value: delivered})
		}
	}
	return slices.Concat(list...), nil
}

// used is what the machine did in the last trial: how busy both CPUs were, and
// how much memory each daemon has.
func (r *rig) used(p point) (list []experiment.Sample) {
	for _, c := range r.last.Cores {
		if whose, ok := map[int]string{r.setting.CPU: "of the nodes", r.generator: "of the generator"}[c.CPU]; ok {
			list = append(list, experiment.Sample{Metric: metricBusy, Labels: p.labels("load", string(p.aspect), "cpu", whose), Value: 1 - c.Idle})
		}
	}
	nodes := r.network.Daemons()
	for _, u := range r.last.Processes {
		if nodes[u.Name] == u.PID {
			list = append(list, experiment.Sample{
				Metric: metricMemory, Labels: result.Labels{"node": u.Name}, Unit: "MB", Value: float64(u.Resident+u.Maps) / 1e6,
			})
		}
	}
	return list
}

// costOf is the CPU time of a packet that came out, in ns, of all nodes and of
// what receives. What does not come out was lost before it cost anything.
func (r *rig) costOf(ctx context.Context, p point) (float64, error) {
	if err := r.goTo(ctx, p.n9, p.direction); err != nil {
		return 0, err
	}
	// The same for all transports, a third of what the slowest of them delivers.
	rate := min(r.limit, slices.Min(slices.Collect(maps.Values(r.highest[p.direction])))) / 3
	if p.aspect == busy {
		rate = min(overload*r.highest[p.direction][p.n9], r.limit)
	}
	o, err := r.offer(ctx, rate)
	if err != nil {
		return 0, err
	}
	if p.aspect == busy && o.ratio() > 1-wholeLoss {
		r.setting.Warn("the core was not saturated where it was to be: the generator reaches no more than %s", gbit(r.mbit(r.limit)))
	}
	if p.aspect == cost && o.ratio() < 1-wholeLoss {
		r.setting.Warn("packets were lost at the rate where CPU time is measured: something else had the CPU")
	}
	return float64(o.cpu.Nanoseconds()) / float64(o.received()), nil
}
