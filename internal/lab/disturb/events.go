package disturb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/machine"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Runner runs the checks of an instance that is up.
type Runner struct {
	*instance.Instance
	UpgradeTo string                           // binary that an upgrade goes to
	Tell      func(format string, args ...any) // what a long check does
	Back      bool                             // a change of the variant is taken back: it is the only one that is run
}

// action is an event while it is done: in a Runner, at a node if the event has one.
type action struct {
	*Runner
	event *topology.Event
	node  *topology.Node
	o     *report.Outcome
}

// events are what is done, by the kind of the event.
var events = map[string]func(context.Context, action) error{
	"kill":    kill,
	"upgrade": upgrade,
	"reboot":  reboot,
	"move":    move,
	"n9":      nextVariant,
	"mode":    nextVariant,
	"tunnel":  moveTunnel,
	"program": func(ctx context.Context, a action) error {
		return daemon.StartProgram(ctx, a.Instance, topology.ProgramOf(a.Topology, a.event.Program))
	},
	"end": func(_ context.Context, a action) error {
		return daemon.EndProgram(a.Instance, topology.ProgramOf(a.Topology, a.event.Program), unix.SIGINT)
	},
	"says": eventually(func(_ context.Context, a action) error {
		n, name := a.node, daemon.CulvertProcess
		if n == nil {
			p := topology.ProgramOf(a.Topology, a.event.Program)
			n, name = p.Node, p.Name
		}
		return daemon.Says(a.Instance, n, name, a.event.Says, max(1, a.event.Times))
	}),
	"capture": beginCapture,
	"inject":  injectPaths,
	"attach":  attach,
	"busy":    occupy,
	"pause":   func(_ context.Context, a action) error { return signalDaemon(a, unix.SIGSTOP) },
	"resume":  func(_ context.Context, a action) error { return signalDaemon(a, unix.SIGCONT) },
	"stop":    stop,
	"start":   start,
	"link_down": func(_ context.Context, a action) error {
		return network.SetDown(a.Instance, a.node, a.event.Device)
	},
	"link_up": func(_ context.Context, a action) error {
		return network.SetUp(a.Instance, a.node, a.event.Device)
	},
	"node_down": func(_ context.Context, a action) error { return failNode(a) },
	"node_up":   reviveNode,
	"route":     func(_ context.Context, a action) error { return setRoute(a, "add") },
	"no_route":  func(_ context.Context, a action) error { return setRoute(a, "del") },
	"apply": func(ctx context.Context, a action) error {
		return daemon.ApplyCulvert(ctx, a.Instance, a.node, a.event.Overlay, nil)
	},
	"object": func(ctx context.Context, a action) error { return cluster.ApplyObject(ctx, a.Instance, a.event.Object) },
	"no_object": func(ctx context.Context, a action) error {
		return cluster.DeleteObject(ctx, a.Instance, a.event.Object)
	},
	"detach":   func(ctx context.Context, a action) error { return cluster.Detach(ctx, a.Instance, a.node) },
	"collect":  func(ctx context.Context, a action) error { return cluster.Collect(ctx, a.Instance, a.node) },
	"active":   eventually(isActive),
	"mtu":      eventually(hasMTU),
	"told":     eventually(hasStatus),
	"recorded": eventually(isRecorded),
	"shows": eventually(func(ctx context.Context, a action) error {
		return observe.Shows(ctx, a.Instance, a.node, a.event.Shows, a.event.Command...)
	}),
	"restart": func(ctx context.Context, a action) error {
		return daemon.RestartCulvert(ctx, a.Instance, a.node, unix.SIGTERM, 0, a.Culvert)
	},
	"smf": func(ctx context.Context, a action) error {
		_, err := daemon.Step(ctx, a.Instance, a.SMF(a.event.SMF), a.event.Step)
		return err
	},
	"run": func(ctx context.Context, a action) error {
		_, err := machine.Run(ctx, a.Instance, a.node, a.event.Script)
		return err
	},
	"kubectl": func(ctx context.Context, a action) error {
		_, err := cluster.RunKubectl(ctx, a.Instance, a.event.Kubectl)
		return err
	},
	"engine_start": startEngine,
	"engine_stop":  func(_ context.Context, a action) error { return stopEngine(a, unix.SIGTERM) },
	"engine_kill":  func(_ context.Context, a action) error { return stopEngine(a, unix.SIGKILL) },
	"engine_shows": awaitEngine,
	"engine_acts":  awaitChange,
	"wait": func(ctx context.Context, a action) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(a.event.For)):
			return nil
		}
	},
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

// answers are the events that wait for what engine or headend make of the others.
var answers = []string{"active", "engine_acts", "engine_shows"}

// Do does events in order, up to the first that fails, and says how long
// they took.
func Do(ctx context.Context, r *Runner, list []topology.Event, o *report.Outcome) error {
	began, begun, waited := time.Now(), false, false
	for i := range list {
		e := &list[i]
		start := time.Now()
		if err := events[e.Do](ctx, action{r, e, r.Node(e.Node), o}); err != nil {
			return fmt.Errorf("%s: %w", e.Title(), err)
		}
		switch isWait := e.Do == "wait"; {
		case isWait && !begun:
			began = time.Now()
		case isWait:
			waited = true
		default:
			if begun = true; !waited && slices.Contains(answers, e.Do) {
				o.ActedAfter = float64(time.Since(began).Milliseconds())
			}
		}
		if e.Do != "wait" && e.Do != "tunnel" {
			o.Say("%s took %d ms", e.Title(), time.Since(start).Milliseconds())
		}
	}
	return nil
}
