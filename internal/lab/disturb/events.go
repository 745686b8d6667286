package disturb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// events are what is done, by the kind of the event.
var events = map[string]func(context.Context, *Runner, *topology.Event, *report.Outcome) error{
	"kill":      kill,
	"restart":   restart,
	"apply":     apply,
	"link_down": setLink,
	"link_up":   setLink,
	"n9":        nextVariant,
	"mode":      nextVariant,
	"smf":       smfEvent,
	"tunnel":    moveTunnel,
	"inject":    injectPaths,
	"active":    active,
	"object":    applyObjectEvent,
	"no_object": dropObject,
	"attach":    attachEvent,
	"detach":    detachEvent,
	"told":      told,
	"recorded":  recorded,
	"pause":     signalAPIServer,
	"resume":    signalAPIServer,
	"stop":      stop,
	"start":     startAgain,
	"collect":   collectPod,
	"route":     setRoute,
	"no_route":  setRoute,
	"mtu":       mtu,
	"shows":     showsEvent,
	"wait":      wait,
	"reboot":    reboot,
	"kubectl":   kubectlEvent,
	"upgrade":   upgradeEvent,
}

func upgradeEvent(ctx context.Context, r *Runner, e *topology.Event, o *report.Outcome) error {
	if n := r.Node(e.Node); n.Kind != topology.Kubelet {
		return upgradeDaemon(ctx, r, n, o)
	}
	return upgradeCluster(ctx, r, o)
}

// During runs traffic, with the check's events in the middle of it. busy holds
// while the traffic must go on.
func During(ctx context.Context, r *Runner, c *topology.Check, o *report.Outcome, traffic func(busy func() bool) error) error {
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
		eventErr = Do(ctx, r, list, o)
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

// Do does events in order, up to the first that fails, and says how long
// they took.
func Do(ctx context.Context, r *Runner, list []topology.Event, o *report.Outcome) error {
	for i := range list {
		e := &list[i]
		start := time.Now()
		if err := events[e.Do](ctx, r, e, o); err != nil {
			return fmt.Errorf("%s: %w", e.Title(), err)
		}
		if e.Do != "wait" && e.Do != "tunnel" {
			o.Say("%s took %d ms", e.Title(), time.Since(start).Milliseconds())
		}
	}
	return nil
}
