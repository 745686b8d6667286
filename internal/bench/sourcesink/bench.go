package sourcesink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/lab"
)

// topology is the laboratory, and instance its name here: the same for all runs, so that
// each run removes what a killed one left.
const (
	topology = "source-sink"
	instance = "bench-source-sink"
)

// The nodes.
const (
	user, source, router, sink, server = "user", "source", "r1", "sink", "server"
)

// receivers are the interfaces whose packets have a thread: each does the work of its node up
// to the next of them.
var receivers = []struct{ node, device string }{{source, user}, {router, source}, {sink, "core"}, {server, "eth0"}}

// rig is the laboratory, with what sends through it.
type rig struct {
	node.Undo
	params  *Params
	setting experiment.Setting
	cpus    proc.Pair
	network *lab.Network
	at      string           // the encapsulation that all is set to
	threads map[string][]int // by node
}

// Open builds the laboratory.
func (p *Params) Open(ctx context.Context, set experiment.Setting) (experiment.Bench, error) {
	return p.open(ctx, set, instance)
}

func (p *Params) open(ctx context.Context, set experiment.Setting, instance string) (_ *rig, err error) {
	r := &rig{params: p, setting: set, at: encapsulations[0].name, threads: map[string][]int{}}
	if r.cpus, err = proc.PickPair(set.CPU); err != nil {
		return nil, err
	}
	defer r.OnError(&err)
	r.network, err = lab.Open(ctx, topology, instance, set.Culvert, r.at, io.Discard)
	if errors.Is(err, lab.ErrBusy) {
		return nil, fmt.Errorf("another `culvert bench source-sink` is running in the laboratory %s: wait until it has ended", instance)
	}
	if err != nil {
		return nil, err
	}
	r.Later(r.network.Close)
	for _, x := range receivers {
		t, err := napi.Start(r.network.Namespace(x.node), x.device, r.cpus.Device)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.node, err)
		}
		r.Later(t.Stop)
		r.threads[x.node] = t.PIDs
	}
	return r, nil
}

// Environment is what is measured.
func (r *rig) Environment(ctx context.Context) (e result.Environment, err error) {
	e.Version, e.DataPath, err = r.network.Status(ctx, source)
	return e, err
}

// Measure has each encapsulation send, from another one on in each round.
func (r *rig) Measure(ctx context.Context, which experiment.Point, round int) ([]experiment.Sample, error) {
	if which.ID != pointID {
		return nil, fmt.Errorf("there is no point %q", which.ID)
	}
	list := r.params.measured()
	seen := make([]usage, len(list))
	for i := range list {
		k := (i + round) % len(list)
		u, err := r.measure(ctx, list[k])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", list[k].name, err)
		}
		seen[k] = u
	}
	return samples(list, seen), nil
}

// usage is what an encapsulation took.
type usage struct {
	source, sink time.Duration // of CPU
	took         time.Duration
	packets      uint64 // that the source forwarded
}

// measure sends by one encapsulation.
func (r *rig) measure(ctx context.Context, e encapsulation) (u usage, err error) {
	if r.at != e.name {
		if err := r.network.SetN9(ctx, e.name); err != nil {
			return u, err
		}
		r.at = e.name
	}
	f, err := r.openFlow()
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.reach(ctx); err != nil {
		return u, err
	}
	before, err := r.counted(ctx)
	if err != nil {
		return u, err
	}
	var s sent
	u.sink, err = r.during(sink, func() (err error) {
		u.source, err = r.during(source, func() (err error) {
			s, err = f.send(ctx, r.cpus.Generator, r.params)
			return err
		})
		return err
	})
	if err != nil {
		return u, err
	}
	if s.received != s.datagrams {
		r.setting.Warn("%s: of %d datagrams %d were lost: something else had the CPU", e.label, s.datagrams, s.datagrams-s.received)
	}
	after, err := r.counted(ctx)
	u.took, u.packets = s.took, after-before
	return u, err
}

// during is the CPU time of a node's thread in f.
func (r *rig) during(name string, f func() error) (time.Duration, error) {
	return proc.During(func() (time.Duration, error) { return proc.Time(r.threads[name]...) }, f)
}

// counted is how many packets the source has forwarded.
func (r *rig) counted(ctx context.Context) (uint64, error) {
	all, err := r.network.Counters(ctx)
	return all[source].Outcomes["forwarded"], err
}
