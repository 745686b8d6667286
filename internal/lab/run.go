package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
var checkKinds map[string]func(*runner, context.Context, *Check, *outcome) error

func init() { // not in the declaration: the checks refer to the table
	checkKinds = map[string]func(*runner, context.Context, *Check, *outcome) error{
		"ping":       (*runner).ping,
		"udp":        (*runner).udp,
		"tcp":        (*runner).tcp,
		"echo":       (*runner).echo,
		"end_marker": (*runner).endMarker,
		"adjacency":  (*runner).adjacency,
		"ospf":       (*runner).ospf,
	}
}

// runner runs the checks of an instance that is up.
type runner struct {
	*instance
	upgradeTo string // binary that an upgrade goes to
	progress  *progress
}

// run runs all checks, in order. An error is one of the lab itself; a check
// that fails is in the report.
func (r *runner) run(ctx context.Context) (*Report, error) {
	start := time.Now()
	report := &Report{Lab: r.Topology.Name, Pass: true, Culvert: r.culvert, Kernel: kernelRelease()}
	for i := range r.Checks {
		c := &r.Checks[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.progress.begin(i+1, len(r.Checks), c.Name)
		result := r.check(ctx, c)
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
func (r *runner) check(ctx context.Context, c *Check) Result {
	start := time.Now()
	for {
		result := r.once(ctx, c)
		result.Seconds = time.Since(start).Seconds()
		if result.Pass || ctx.Err() != nil || time.Since(start) >= time.Duration(c.Within) {
			return result
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (r *runner) once(ctx context.Context, c *Check) Result {
	const limit = time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o := new(outcome)
	before, err := r.observe(ctx)
	if err == nil {
		err = checkKinds[c.Kind](r, ctx, c, o)
	}
	if err != nil {
		o.fail("%v", err)
	} else {
		r.compare(ctx, c, before, o)
	}
	if len(o.problems) > 0 {
		o.problems = append(o.problems, r.explain(ctx, before)...)
	}
	return Result{
		Name: c.Name, Pass: len(o.problems) == 0, Detail: oneLine(append(o.problems, o.detail...)),
		Sent: o.sent, Received: o.received, Lost: max(0, o.sent-o.received),
	}
}

// oneLine joins what is to be said; an error of several lines becomes one.
func oneLine(list []string) string {
	return strings.ReplaceAll(strings.Join(list, "; "), "\n", "; ")
}

// errFailed says that the lab worked, and a check failed.
var errFailed = errors.New("a check failed")

// during runs traffic, with the check's event in the middle of it. busy holds
// while the traffic must go on.
func (r *runner) during(ctx context.Context, c *Check, o *outcome, traffic func(busy func() bool) error) error {
	if c.Event == nil {
		return traffic(nil)
	}
	const lead, tail = 300 * time.Millisecond, 500 * time.Millisecond
	done := make(chan struct{})
	var eventErr error
	go func() {
		defer close(done)
		time.Sleep(lead)
		start := time.Now()
		eventErr = r.event(ctx, c.Event, o)
		o.say("%s of %s took %d ms", c.Event.Do, c.Event.Node, time.Since(start).Milliseconds())
		time.Sleep(tail)
	}()
	err := traffic(func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	})
	<-done
	return errors.Join(err, eventErr)
}

// event does what an Event says.
func (r *runner) event(ctx context.Context, e *Event, o *outcome) error {
	n := r.node(e.Node)
	switch e.Do {
	case "kill":
		// A while without a daemon: the data path must go on by itself.
		return r.restartCulvert(ctx, n, unix.SIGKILL, 500*time.Millisecond, r.culvert)
	case "restart":
		return r.restartCulvert(ctx, n, unix.SIGTERM, 0, r.culvert)
	case "upgrade":
		return r.upgrade(ctx, n, o)
	case "apply":
		return r.applyCulvert(ctx, n)
	case "link_down":
		return r.namespace(n).batch([]string{"link set dev " + e.Device + " down"})
	case "link_up":
		return r.namespace(n).batch([]string{"link set dev " + e.Device + " up"})
	}
	return fmt.Errorf("event %s is not known", e.Do)
}

// runLab is up, checks and down.
func runLab(ctx context.Context, in *instance, upgradeTo string, keep bool, p *progress) (*Report, error) {
	if err := in.up(ctx, p); err != nil {
		return nil, err
	}
	r := &runner{instance: in, upgradeTo: upgradeTo, progress: p}
	report, err := r.run(ctx)
	if keep {
		p.say("%s is kept: `culvert lab down %s` takes it down", in.name, in.Topology.Name)
		return report, err
	}
	return report, errors.Join(err, in.down(p))
}
