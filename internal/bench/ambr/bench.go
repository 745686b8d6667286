package ambr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/lab"
)

// topology is the laboratory, and instance its name here: the same for all runs, so that
// each run removes what a killed one left.
const (
	topology = "ambr-bench"
	instance = "bench-ambr"
)

// What the laboratory has.
const (
	gnb, upf, dn, smf    = "gnb", "upf", "dn", "smf"
	ueDevice             = "ue"
	ueAddress, dnAddress = "10.60.0.1", "198.51.100.1"
)

// behind is where what the meter lets go arrives.
var behind = map[string]struct{ node, device string }{uplink: {dn, "n6"}, downlink: {gnb, "n3"}}

// senders are where TCP's payload comes from.
var senders = map[string]string{uplink: gnb, downlink: dn}

// window is the time over which the meter must not let more go than the AMBR and a
// burst.
const window = 10 * time.Second

// patience is what a program may take besides the time that it sends for.
const patience = 30 * time.Second

// mostAgain is how often a sample is taken again whose packets the laboratory held for too long.
const mostAgain = 3

// refill is longer than the time in which a bucket is full again.
const refill = 300 * time.Millisecond

// rig is the laboratory, with what sends through it.
type rig struct {
	node.Undo
	params  *Params
	warn    func(format string, args ...any)
	network *lab.Network
}

// Open builds the laboratory.
func (p *Params) Open(ctx context.Context, set experiment.Setting) (experiment.Bench, error) {
	return p.open(ctx, set, instance)
}

func (p *Params) open(ctx context.Context, set experiment.Setting, instance string) (_ *rig, err error) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		return nil, errors.New("iperf3 is not installed: apt-get install iperf3")
	}
	r := &rig{params: p, warn: set.Warn}
	defer r.OnError(&err)
	for _, prepare := range []func() (func() error, error){proc.GoAhead, proc.Awake} {
		back, err := prepare()
		if err != nil {
			return nil, err
		}
		r.Later(back)
	}
	r.network, err = lab.Open(ctx, topology, instance, set.Culvert, "", io.Discard)
	if errors.Is(err, lab.ErrBusy) {
		return nil, fmt.Errorf("another `culvert bench ambr` is running in the laboratory %s: wait until it has ended", instance)
	}
	if err != nil {
		return nil, err
	}
	r.Later(r.network.Close)
	// What waits for another program's turn holds packets longer than the delay line.
	if err := proc.AllRealtime(r.network.Endpoints()[gnb], proc.Realtime+1); err != nil {
		return nil, err
	}
	return r, r.startServer()
}

// startServer has iperf3 wait in the data network.
func (r *rig) startServer() error {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := program(ctx, "-s", "-B", dnAddress)
	if err := r.network.Do(dn, ahead(cmd.Start)); err != nil {
		cancel()
		return fmt.Errorf("iperf3: %w", err)
	}
	r.Later(func() error {
		cancel()
		_ = cmd.Wait() // that it was ended is what it says
		return nil
	})
	return nil
}

// ahead has what a function starts go before all other programs: a program has the
// priority of the thread that starts it, which ends here.
func ahead(start func() error) func() error {
	return func() error {
		if err := proc.GoRealtime(0, proc.Realtime); err != nil {
			return err
		}
		return start()
	}
}

// Environment is what is measured.
func (r *rig) Environment(ctx context.Context) (e result.Environment, err error) {
	e.Version, e.DataPath, err = r.network.Status(ctx, upf)
	return e, err
}

// Measure takes a sample at a point.
func (r *rig) Measure(ctx context.Context, which experiment.Point, _ int) ([]experiment.Sample, error) {
	all := r.params.points()
	i := slices.IndexFunc(all, func(p point) bool { return p.id() == which.ID })
	if i < 0 {
		return nil, fmt.Errorf("there is no point %q", which.ID)
	}
	p := all[i]
	rate := map[string]any{uplink: p.ambr * 1000, downlink: p.ambr * 1000}
	change := map[string]any{"do": "modify", "sessions": "ue", "change": map[string]any{"mbr": rate}}
	if err := r.network.Step(ctx, smf, change); err != nil {
		return nil, err
	}
	if err := r.network.Delay(gnb, ueDevice, p.rtt/2); err != nil {
		return nil, err
	}
	for again := 0; ; again++ {
		samples, held, err := r.sample(ctx, p)
		if err != nil {
			return nil, err
		}
		if held && again < mostAgain {
			continue
		}
		if held {
			r.warn("%s: in %d runs one after another the laboratory held packets for longer than the round trip, so that TCP grew slowly", p.id(), again+1)
		}
		return append(samples, p.sample(metricAgain, "", float64(again), nil)), nil
	}
}

// sample sends once. Held: the laboratory held packets for longer than the round trip, so that TCP
// ended its slow start.
func (r *rig) sample(ctx context.Context, p point) (_ []experiment.Sample, held bool, err error) {
	if err := r.reach(ctx); err != nil {
		return nil, false, err
	}
	before, err := r.counts(ctx, p)
	if err != nil {
		return nil, false, err
	}
	at := behind[p.direction]
	c := count(func(f func() error) error { return r.network.Do(at.node, f) }, at.device, headers[p.direction])
	send := r.iperf
	if p.traffic.octets > 0 {
		send = r.short
	}
	s, err := send(ctx, p)
	seen, err2 := c.stop()
	after, err3 := r.counts(ctx, p)
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, false, err
	}
	s.refused = after.refused - before.refused
	return p.samples(s, seen), p.traffic.octets == 0 && after.delayed > before.delayed, nil
}

// counts reads them now.
func (r *rig) counts(ctx context.Context, p point) (c counts, err error) {
	all, err := r.network.Counters(ctx)
	if err != nil {
		return c, err
	}
	c.refused = all[upf].Outcomes["rate"]
	err = r.network.Do(senders[p.direction], func() (err error) {
		c.delayed, err = delayed()
		return err
	})
	return c, err
}

// reach waits until the UE reaches the server, and until the bucket is full again.
func (r *rig) reach(ctx context.Context) error {
	end := time.Now().Add(patience)
	for {
		err := r.network.Do(gnb, func() error {
			return exec.CommandContext(ctx, "ping", "-q", "-c", "1", "-W", "2", "-I", ueAddress, dnAddress).Run()
		})
		if err == nil {
			return node.Wait(ctx, refill)
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("the UE does not reach %s: %w", dnAddress, errors.Join(err, ctx.Err()))
		}
	}
}

func (p point) sample(metric, unit string, value float64, beside *float64) experiment.Sample {
	return experiment.Sample{Metric: metric, Labels: p.labels(), Unit: unit, Value: value, Baseline: beside}
}

// samples are what was sent, beside the AMBR.
func (p point) samples(s sent, seen []amount) (out []experiment.Sample) {
	limit := float64(p.ambr) * 1e6
	add := func(metric, unit string, value float64, beside *float64) {
		out = append(out, p.sample(metric, unit, value, beside))
	}
	add(metricGoodput, "bit/s", s.bits/s.took.Seconds(), &limit)
	add(metricPassed, "bit/s", float64(octets(seen))*8/s.took.Seconds(), &limit)
	add(metricMost, "bit/s", most(seen, window), &limit)
	add(metricRefused, "", float64(s.refused), nil)
	if len(s.each) > 0 {
		var seconds []float64
		for _, d := range s.each {
			seconds = append(seconds, d.Seconds())
		}
		add(metricEach, "s", stats.Median(seconds), nil)
	} else if !p.traffic.udp {
		add(metricRetransmits, "", s.retransmits, nil)
	}
	return out
}
