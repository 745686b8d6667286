package agent

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netpol"
)

// podTraffic is what becomes of pods' packets.
type podTraffic struct {
	policing *policing
	flows    *flowKeeper
}

// ExplainPolicy answers people.
func (t *podTraffic) ExplainPolicy(q isolation.Ask) ([]netpol.Verdict, error) {
	return t.policing.explain(q)
}

// Flows answers them, too.
func (t *podTraffic) Flows(ctx context.Context, filter flow.Filter, f func(flow.Flow) error) error {
	return t.flows.follow(ctx, filter, f)
}

// How often followers get what has changed, names are looked up anew, and how many drops
// NetworkPolicies are asked about then.
const (
	flowsPeriod = 500 * time.Millisecond
	namesPeriod = 10 * time.Second
	mostAsked   = 32
)

// flowKeeper keeps those of this node's pods.
type flowKeeper struct {
	core     *core
	policing *policing
	source   isolation.Source

	on    atomic.Bool
	wake  chan struct{}
	stale atomic.Bool // the names are
	table atomic.Pointer[flow.Table]
	names atomic.Pointer[flowNames]
	// Of the goroutine that reads.
	settled time.Time
}

func newFlows(c *core, p *policing) *flowKeeper {
	f := &flowKeeper{core: c, policing: p, wake: make(chan struct{}, 1)}
	f.names.Store(&flowNames{})
	return f
}

// enable follows the configuration.
func (f *flowKeeper) enable(on bool) {
	if f.on.Swap(on) != on {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// run reads records while there are any to be, until ctx ends.
func (f *flowKeeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		reading, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		if f.on.Load() {
			f.names.Store(f.newNames(time.Now()))
			f.table.Store(flow.New(f, flow.Limits{}))
			go func() {
				defer close(done)
				if err := f.core.dp.Flows.Read(reading, f.fold, f.settle); err != nil {
					f.core.log.Error("flows are not recorded", "event", logevent.FlowsFailed, "error", err)
				}
			}()
		} else {
			f.table.Store(nil)
			close(done)
		}
		select {
		case <-ctx.Done():
		case <-f.wake:
		}
		stop()
		<-done
	}
}

func (f *flowKeeper) fold(r flow.Record) { f.table.Load().Fold(r) }

// settle comes after records: it gives names, asks NetworkPolicies, and counts.
func (f *flowKeeper) settle() {
	now := time.Now()
	if now.Sub(f.settled) < flowsPeriod {
		return
	}
	f.settled = now
	if b := f.names.Load(); f.stale.Swap(false) || now.Sub(b.made) > namesPeriod {
		f.names.Store(f.newNames(now))
	}
	t := f.table.Load()
	for _, d := range t.Unexplained(mostAsked) {
		t.Explain(d.ID, f.explain(&d))
	}
	t.Settle(now)
}

// explain returns the policies that isolate a pod for the direction in which a flow is dropped.
func (f *flowKeeper) explain(d *flow.Drop) []string {
	ask := isolation.Ask{From: party(&d.Flow, d.Flow.Source, !d.Ingress), To: party(&d.Flow, d.Flow.Destination, d.Ingress)}
	switch d.Flow.Protocol {
	case "TCP", "UDP", "SCTP":
		ask.Protocol, ask.Port = d.Flow.Protocol, strconv.Itoa(int(d.Flow.Destination.Port))
	case "ICMP", "ICMPv6":
		ask.Protocol = "ICMP"
	}
	verdicts, err := f.policing.explain(ask)
	if err != nil {
		f.core.log.Debug("a drop cannot be explained", "from", ask.From, "to", ask.To, "error", err)
		return nil
	}
	for _, v := range verdicts {
		if v.Tenant != d.Flow.Tenant || v.From.Address.Is4() != d.Flow.Source.Address.Is4() {
			continue
		}
		if d.Ingress {
			return v.Ingress.IsolatedBy
		}
		return v.Egress.IsolatedBy
	}
	return nil
}

// party is an end as NetworkPolicies are asked about it. The pod that they isolate is asked
// about by its name, as another one may have its address by now; the other end by its address,
// as it may be gone. An address is one of no tenant.
func party(v *flow.Flow, e flow.End, isolated bool) string {
	if (v.Tenant != 0 || isolated) && e.Pod != "" {
		return e.Pod
	}
	return e.Address.String()
}

// follow sends flows.
func (f *flowKeeper) follow(ctx context.Context, filter flow.Filter, send func(flow.Flow) error) error {
	if err := f.core.isReady(); err != nil {
		return err
	}
	var after uint64
	var of *flow.Table
	since := time.Now().Add(-cmp.Or(filter.Since, flow.DefaultKeep))
	tick := time.NewTicker(flowsPeriod)
	defer tick.Stop()
	for {
		t := f.table.Load()
		if t == nil || !f.on.Load() {
			return f.off()
		}
		if t != of { // off and on again
			of, after = t, 0
		}
		list, now := t.List(filter, after, since)
		for _, v := range list {
			if err := send(v); err != nil {
				return err
			}
		}
		if !filter.Follow {
			return nil
		}
		after = now
		select {
		case <-ctx.Done():
			return nil
		case <-f.core.ending:
			return f.core.isReady()
		case <-tick.C:
		}
	}
}

// off is why there are no flows.
func (f *flowKeeper) off() error {
	return f.core.read(func() error {
		if !f.core.goal.Desired.Process.Overlay.IsSet() {
			return pods.ErrNoCluster
		}
		return ErrNoFlows
	})
}

// Who knows the names of addresses.
func (f *flowKeeper) Who(tenant uint8, address netip.Addr, pod int) flow.End {
	return f.names.Load().who(tenant, address, pod)
}

// FlowGauges are the counts of a node that records flows.
type FlowGauges struct {
	Flows   int // that are kept
	Pairs   map[flow.Pair]flow.Count
	LeftOut map[string]uint64 // records, by the pod that made too many; "": the node's own packets
}

// gauges is nil where nothing is recorded. core.mu is held.
func (f *flowKeeper) gauges() *FlowGauges {
	t := f.table.Load()
	if t == nil {
		return nil
	}
	out := &FlowGauges{Flows: t.Len(), Pairs: t.Pairs(), LeftOut: map[string]uint64{}}
	left, err := f.core.dp.Flows.LeftOut()
	if err != nil {
		f.core.log.Warn("how many records of flows were left out cannot be read", "event", logevent.FlowsUncounted, "error", err)
	}
	b := f.names.Load()
	for ifindex, n := range left {
		if e, known := b.local[ifindex]; known || ifindex == 0 {
			out.LeftOut[e.Pod] += n
		}
	}
	return out
}
