package check

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// explain lists what the culvert nodes dropped or passed since the last observation:
// the place to look when a check fails.
func (r *Checker) explain(ctx context.Context, before observe.Observation) (list []string) {
	after, err := observe.Observe(ctx, r.runner.Instance, nil)
	if err != nil {
		return nil // the check already reports a problem
	}
	r.seen = after
	for _, n := range r.runner.Nodes {
		counted := after[n.Name].Packets[observe.Outcome]
		for _, reason := range slices.Sorted(maps.Keys(counted)) {
			more, was := counted[reason], before[n.Name].Packets[observe.Outcome][reason]
			if more >= was { // else it began anew with the daemon: buffer_full
				more -= was
			}
			if more > 0 {
				list = append(list, fmt.Sprintf("%s %s +%d", n.Name, reason, more))
			}
		}
	}
	return list
}

// checkKinds are the kinds of checks by name.
var checkKinds = map[string]func(context.Context, *disturb.Runner, *topology.Check, *report.Outcome) error{
	"ping":                ping,
	"udp":                 udp,
	"tcp":                 tcp,
	"echo":                echo,
	"end_marker":          endMarker,
	"adjacency":           adjacency,
	"advertised":          advertised,
	"ospf":                ospf,
	"route":               routeCheck,
	"pods":                podsOf,
	"cni_status":          statusOf,
	"one_family":          oneFamily,
	"spread":              spread,
	"shows":               showsCheck,
	"n4":                  n4,
	"router_solicitation": solicitation,
	"procedure":           procedure,
	"program":             programOf,
	"machine":             machineScript,
	"captured":            captured,
	"charged":             charged,
	"gnb":                 gnbPing,
	"kubectl":             kubectl,
	"culvert":             operate,
	"leftovers":           leftovers,
	"frame":               frame,
	"again":               again,
	"dead":                dead,
	"suite":               suiteOf,
	"isolated":            isolated,
	"page":                pageWalk,
}

// Checker makes checks, one after another.
type Checker struct {
	runner *disturb.Runner
	seen   observe.Observation // the last observation before a check
}

// New returns a Checker of a laboratory that is up.
func New(r *disturb.Runner) *Checker { return &Checker{runner: r} }

// Run runs one check, or its rounds.
func (r *Checker) Run(ctx context.Context, p topology.Planned) report.Result {
	if p.Rounds > 0 {
		return rounds(ctx, p, r.repeat)
	}
	return r.repeat(ctx, p)
}

// repeat runs a check, and again while it has time to pass.
func (r *Checker) repeat(ctx context.Context, p topology.Planned) report.Result {
	start := time.Now()
	for {
		result := r.once(ctx, p)
		result.Seconds = time.Since(start).Seconds()
		if result.Pass || ctx.Err() != nil || time.Since(start) >= time.Duration(p.Within) {
			return result
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (r *Checker) once(ctx context.Context, p topology.Planned) report.Result {
	ctx, cancel := context.WithTimeout(ctx, p.Limit.Or(time.Minute))
	defer cancel()
	o := new(report.Outcome)
	var before observe.Observation
	said := map[string]int64{} // where the output of SMFs ended before
	c := p.Check
	err := disturb.Do(ctx, r.runner, c.Before, new(report.Outcome))
	if err == nil { // an event may have changed an address
		c, err = resolve(r.runner.Instance, p.Check, p.Family)
	}
	if err == nil {
		for _, x := range c.Expect.Reports {
			said[x.SMF] = daemon.OutputEnd(r.runner.Instance, r.runner.SMF(x.SMF))
		}
		// A check that compares no counters needs an observation only to explain
		// a failure: an earlier one will do.
		if r.seen == nil || len(c.Counters)+len(c.Accounts) > 0 {
			r.seen, err = observe.Observe(ctx, r.runner.Instance, c.Accounts)
		}
		before = r.seen
	}
	if err == nil {
		err = checkKinds[c.Kind](ctx, r.runner, c, o)
	}
	if err != nil {
		o.Fail("%v", err)
	} else {
		observe.Compare(ctx, r.runner.Instance, c, before, o)
		wantReports(r.runner, c, o, said)
	}
	if err := disturb.Do(ctx, r.runner, p.After, new(report.Outcome)); err != nil {
		o.Fail("%v", err)
	}
	if len(o.Problems) > 0 {
		o.Problems = append(o.Problems, r.explain(ctx, before)...)
	}
	return report.Result{
		Name: p.Name, Pass: len(o.Problems) == 0, Detail: report.OneLine(append(o.Problems, o.Detail...)),
		Sent: o.Sent, Received: o.Received, Lost: max(0, o.Sent-o.Received), Measured: o.Measured,
	}
}

// resolve puts addresses in the place of the names of a check.
func resolve(in *instance.Instance, c *topology.Check, family string) (*topology.Check, error) {
	if c.ToName == "" {
		return c, nil
	}
	r := *c
	var err error
	if r.To, err = in.Address(c.ToName, family); err != nil {
		return nil, err
	}
	if c.Both {
		if r.Source, err = in.Address(c.From, family); err != nil {
			return nil, err
		}
	}
	if s := in.Service(c.ToName); s != nil {
		r.Port, r.At, r.AtPort = s.Port, s.Pod, s.TargetPort
	}
	if s := in.Service(c.NodePort); s != nil {
		r.Port, r.At, r.AtPort = s.NodePort, s.Pod, s.TargetPort
	}
	if r.At != "" && r.AtPort != 0 {
		at, err := in.Address(r.At, family)
		if err != nil {
			return nil, err
		}
		r.Listen = netip.AddrPortFrom(at, r.AtPort)
	}
	return &r, nil
}
