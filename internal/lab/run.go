package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// checkKinds are the kinds of checks by name.
var checkKinds = map[string]func(*runner, context.Context, *topology.Check, *report.Outcome) error{
	"ping":       (*runner).ping,
	"udp":        (*runner).udp,
	"tcp":        (*runner).tcp,
	"echo":       (*runner).echo,
	"end_marker": (*runner).endMarker,
	"adjacency":  (*runner).adjacency,
	"ospf":       (*runner).ospf,
	"route":      (*runner).route,
	"pods":       (*runner).podsOf,
	"cni_status": (*runner).statusOf,
	"one_family": (*runner).oneFamily,
	"spread":     (*runner).spread,
	"shows":      (*runner).showsCheck,
	"n4":         (*runner).n4,
	"kubectl":    (*runner).asks,
	"culvert":    (*runner).operate,
	"leftovers":  (*runner).leftovers,
}

// runner runs the checks of an instance that is up.
type runner struct {
	*instance.Instance
	upgradeTo string         // binary that an upgrade goes to
	only      *regexp.Regexp // checks that are run; nil: all
	progress  *report.Progress
	back      bool // a change of the variant is taken back: it is the only one that is run
}

// checker makes checks, one after another.
type checker struct {
	*runner
	seen observation // the last look before a check
}

// run runs all checks, in order, in each of the variants. An error is one of
// the lab itself; a check that fails is in the report.
func (r *runner) run(ctx context.Context, variants []string) (*report.Report, error) {
	start := time.Now()
	summary := &report.Report{Lab: r.Topology.Name, Pass: true, Culvert: r.Culvert, Kernel: kernelRelease()}
	r.back = len(variants) == 1
	checks := &checker{runner: r}
	list := r.Plan(variants, r.only)
	if len(list) == 0 {
		return nil, fmt.Errorf("--checks: no check of lab %s matches %q", r.Topology.Name, r.only)
	}
	for i, p := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := goOver(ctx, r.Instance, p.Variant, r.progress); err != nil {
			return nil, err
		}
		r.progress.Begin(i+1, len(list), p.Title())
		result := checks.check(ctx, p)
		result.Name = p.Title()
		r.progress.End(result)
		summary.Checks = append(summary.Checks, result)
		summary.Pass = summary.Pass && result.Pass
	}
	summary.Seconds = time.Since(start).Seconds()
	return summary, nil
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(name.Release[:])
}

// check runs one check, again and again where it has time to pass.
func (r *checker) check(ctx context.Context, p topology.Planned) report.Result {
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

func (r *checker) once(ctx context.Context, p topology.Planned) report.Result {
	ctx, cancel := context.WithTimeout(ctx, p.Limit.Or(time.Minute))
	defer cancel()
	o := new(report.Outcome)
	var before observation
	var said n4View
	c := p.Check
	err := r.eventsOf(ctx, c.Before, new(report.Outcome))
	if err == nil { // an event may have changed an address
		c, err = resolve(r.runner.Instance, p.Check, p.Family)
	}
	if err == nil {
		said = r.viewN4(c)
		before, err = r.lookBefore(ctx, c)
	}
	if err == nil {
		err = checkKinds[c.Kind](r.runner, ctx, c, o)
	}
	if err != nil {
		o.Fail("%v", err)
	} else {
		compare(ctx, r.runner.Instance, c, before, o)
		r.wantReports(c, o, said)
	}
	if err := r.eventsOf(ctx, p.After, new(report.Outcome)); err != nil {
		o.Fail("%v", err)
	}
	if len(o.Problems) > 0 {
		o.Problems = append(o.Problems, r.explain(ctx, before)...)
	}
	return report.Result{
		Name: p.Name, Pass: len(o.Problems) == 0, Detail: report.OneLine(append(o.Problems, o.Detail...)),
		Sent: o.Sent, Received: o.Received, Lost: max(0, o.Sent-o.Received),
	}
}

// lookBefore observes the nodes where the check is about what they count. For
// others an earlier look must do: they want it only to explain a failure.
func (r *checker) lookBefore(ctx context.Context, c *topology.Check) (observation, error) {
	var err error
	if r.seen == nil || len(c.Counters)+len(c.Accounts) > 0 {
		r.seen, err = observe(ctx, r.runner.Instance, c.Accounts)
	}
	return r.seen, err
}

// errFailed says that the lab worked, and a check failed.
var errFailed = errors.New("a check failed")

// runLab is up, checks and down.
func runLab(ctx context.Context, in *instance.Instance, variants []string, o *options, p *report.Progress) (*report.Report, error) {
	if err := up(ctx, in, variants[0], p); err != nil {
		return nil, err
	}
	r := &runner{Instance: in, upgradeTo: o.upgradeTo, only: o.only, progress: p}
	summary, err := r.run(ctx, variants)
	if o.keep {
		p.Say("%s is kept: `culvert lab down %s` takes it down", in.Name, in.Topology.Name)
		return summary, err
	}
	return summary, errors.Join(err, in.Down(p))
}
