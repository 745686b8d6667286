package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// events are what is done, by the kind of the event.
var events = map[string]func(*runner, context.Context, *topology.Event, *report.Outcome) error{
	"kill":      (*runner).kill,
	"restart":   (*runner).restart,
	"apply":     (*runner).apply,
	"link_down": (*runner).setLink,
	"link_up":   (*runner).setLink,
	"n9":        (*runner).nextVariant,
	"mode":      (*runner).nextVariant,
	"smf":       (*runner).smfEvent,
	"tunnel":    (*runner).moveTunnel,
	"inject":    (*runner).inject,
	"active":    (*runner).active,
	"object":    (*runner).object,
	"no_object": (*runner).dropObject,
	"attach":    (*runner).attachPod,
	"detach":    (*runner).detachPod,
	"told":      (*runner).told,
	"recorded":  (*runner).recorded,
	"pause":     (*runner).signalAPIServer,
	"resume":    (*runner).signalAPIServer,
	"stop":      (*runner).stop,
	"start":     (*runner).startAgain,
	"collect":   (*runner).collectPod,
	"route":     (*runner).setRoute,
	"no_route":  (*runner).setRoute,
	"mtu":       (*runner).mtu,
	"shows":     (*runner).showsEvent,
	"wait":      (*runner).wait,
	"reboot":    (*runner).reboot,
	"kubectl":   (*runner).kubectlEvent,
	"upgrade":   (*runner).upgradeEvent,
}

func (r *runner) upgradeEvent(ctx context.Context, e *topology.Event, o *report.Outcome) error {
	if n := r.Node(e.Node); n.Kind != topology.Kubelet {
		return r.upgrade(ctx, n, o)
	}
	return r.upgradeCluster(ctx, o)
}

// during runs traffic, with the check's events in the middle of it. busy holds
// while the traffic must go on.
func (r *runner) during(ctx context.Context, c *topology.Check, o *report.Outcome, traffic func(busy func() bool) error) error {
	list := c.AllEvents()
	if len(list) == 0 {
		return traffic(nil)
	}
	const lead, tail = 300 * time.Millisecond, 500 * time.Millisecond
	done := make(chan struct{})
	var eventErr error
	go func() {
		defer close(done)
		time.Sleep(lead)
		eventErr = r.eventsOf(ctx, list, o)
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

// eventsOf does events in order, up to the first that fails, and says how long
// they took.
func (r *runner) eventsOf(ctx context.Context, list []topology.Event, o *report.Outcome) error {
	for i := range list {
		e := &list[i]
		start := time.Now()
		if err := events[e.Do](r, ctx, e, o); err != nil {
			return fmt.Errorf("%s: %w", e.Title(), err)
		}
		if e.Do != "wait" && e.Do != "tunnel" {
			o.Say("%s took %d ms", e.Title(), time.Since(start).Milliseconds())
		}
	}
	return nil
}

// kill leaves a while without a daemon: the data path must go on by itself.
func (r *runner) kill(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	if n := r.Node(e.Node); n.Kind == topology.Kubelet {
		return r.killProgram(ctx, n, e.Program)
	}
	return restartCulvert(ctx, r.Instance, r.Node(e.Node), unix.SIGKILL, 500*time.Millisecond, r.Culvert)
}

func (r *runner) restart(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return restartCulvert(ctx, r.Instance, r.Node(e.Node), unix.SIGTERM, 0, r.Culvert)
}

func (r *runner) apply(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return applyCulvert(ctx, r.Instance, r.Node(e.Node), e.Overlay)
}

func (r *runner) setLink(_ context.Context, e *topology.Event, _ *report.Outcome) error {
	return r.Namespace(r.Node(e.Node)).Batch([]string{"link set dev " + e.Device + " " + strings.TrimPrefix(e.Do, "link_")})
}

func (r *runner) wait(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(e.For)):
		return nil
	}
}
