package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// outcome is what a check's traffic came to.
type outcome struct {
	sent, received int

	detail   []string
	problems []string
}

func (o *outcome) say(format string, args ...any) {
	o.detail = append(o.detail, fmt.Sprintf(format, args...))
}

func (o *outcome) fail(format string, args ...any) {
	o.problems = append(o.problems, fmt.Sprintf(format, args...))
}

// checkKinds are the kinds of checks by name.
var checkKinds = map[string]func(*runner, context.Context, *topology.Check, *outcome) error{
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
	*instance
	upgradeTo string         // binary that an upgrade goes to
	only      *regexp.Regexp // checks that are run; nil: all
	progress  *progress
	back      bool // a change of the variant is taken back: it is the only one that is run
}

// checker makes checks, one after another.
type checker struct {
	*runner
	seen observation // the last look before a check
}

// run runs all checks, in order, in each of the variants. An error is one of
// the lab itself; a check that fails is in the report.
func (r *runner) run(ctx context.Context, variants []string) (*Report, error) {
	start := time.Now()
	report := &Report{Lab: r.Topology.Name, Pass: true, Culvert: r.culvert, Kernel: kernelRelease()}
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
		if err := r.goOver(ctx, p.Variant, r.progress); err != nil {
			return nil, err
		}
		r.progress.begin(i+1, len(list), p.Title())
		result := checks.check(ctx, p)
		result.Name = p.Title()
		r.progress.end(result)
		report.Checks = append(report.Checks, result)
		report.Pass = report.Pass && result.Pass
	}
	report.Seconds = time.Since(start).Seconds()
	return report, nil
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(name.Release[:])
}

// check runs one check, again and again where it has time to pass.
func (r *checker) check(ctx context.Context, p topology.Planned) Result {
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

func (r *checker) once(ctx context.Context, p topology.Planned) Result {
	ctx, cancel := context.WithTimeout(ctx, p.Limit.Or(time.Minute))
	defer cancel()
	o := new(outcome)
	var before observation
	var said n4View
	c := p.Check
	err := r.eventsOf(ctx, c.Before, new(outcome))
	if err == nil { // an event may have changed an address
		c, err = r.resolve(p.Check, p.Family)
	}
	if err == nil {
		said = r.viewN4(c)
		before, err = r.lookBefore(ctx, c)
	}
	if err == nil {
		err = checkKinds[c.Kind](r.runner, ctx, c, o)
	}
	if err != nil {
		o.fail("%v", err)
	} else {
		r.compare(ctx, c, before, o)
		r.wantReports(c, o, said)
	}
	if err := r.eventsOf(ctx, p.After, new(outcome)); err != nil {
		o.fail("%v", err)
	}
	if len(o.problems) > 0 {
		o.problems = append(o.problems, r.explain(ctx, before)...)
	}
	return Result{
		Name: p.Name, Pass: len(o.problems) == 0, Detail: oneLine(append(o.problems, o.detail...)),
		Sent: o.sent, Received: o.received, Lost: max(0, o.sent-o.received),
	}
}

// lookBefore observes the nodes where the check is about what they count. For
// others an earlier look must do: they want it only to explain a failure.
func (r *checker) lookBefore(ctx context.Context, c *topology.Check) (observation, error) {
	var err error
	if r.seen == nil || len(c.Counters)+len(c.Accounts) > 0 {
		r.seen, err = r.observe(ctx, c.Accounts)
	}
	return r.seen, err
}

// oneLine joins what is to be said; an error of several lines becomes one.
func oneLine(list []string) string {
	return strings.ReplaceAll(strings.Join(list, "; "), "\n", "; ")
}

// errFailed says that the lab worked, and a check failed.
var errFailed = errors.New("a check failed")

// runLab is up, checks and down.
func runLab(ctx context.Context, in *instance, variants []string, o *options, p *progress) (*Report, error) {
	if err := in.up(ctx, variants[0], p); err != nil {
		return nil, err
	}
	r := &runner{instance: in, upgradeTo: o.upgradeTo, only: o.only, progress: p}
	report, err := r.run(ctx, variants)
	if o.keep {
		p.say("%s is kept: `culvert lab down %s` takes it down", in.name, in.Topology.Name)
		return report, err
	}
	return report, errors.Join(err, in.down(p))
}
