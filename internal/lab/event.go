package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Event is something that is done to the lab, mostly under traffic.
type Event struct {
	Do     string `json:"do"`               // one of eventKinds
	Node   string `json:"node,omitempty"`   // all but n9, mode, smf, wait
	Device string `json:"device,omitempty"` // link_down, link_up; tunnel: of the GTP-U endpoint
	// Overlay of the node's configuration that an apply lays over it; none: the
	// configuration as it is.
	Overlay string `json:"overlay,omitempty"`
	// SMF does the step, which is one of `culvert smf run`, where an F-TEID may
	// be a reference: see resolve.
	SMF  string         `json:"smf,omitempty"`
	Step map[string]any `json:"step,omitempty"`
	// FTEID is where a tunnel goes from here on, as a reference: what the gNB is
	// told by N2. IPv6: the F-TEID's address of that family.
	FTEID string `json:"fteid,omitempty"`
	IPv6  bool   `json:"ipv6,omitempty"`
	// Paths are what an injector tells; Object is one of the Kubernetes API.
	Paths  []map[string]any `json:"paths,omitempty"`
	Object map[string]any   `json:"object,omitempty"`
	// Policy is one whose active candidate path must have the Preference.
	Policy     string `json:"policy,omitempty"`
	Preference uint32 `json:"preference,omitempty"`
	// State is what the node is to say of the object, and Says a part of why.
	State string `json:"state,omitempty"`
	Says  string `json:"says,omitempty"`
	// Route is in iproute2's grammar, MTU that of a pod's packets.
	Route string `json:"route,omitempty"`
	MTU   int    `json:"mtu,omitempty"`
	// Command of culvert is to show Shows, and may show more.
	Command []string `json:"command,omitempty"`
	Shows   any      `json:"shows,omitempty"`
	// Program of a node of kind kubelet that is killed; culvert unless set.
	Program string `json:"program,omitempty"`
	// Kubectl is what it is to do.
	Kubectl *command `json:"kubectl,omitempty"`
	// For is how long a wait is.
	For Duration `json:"for,omitempty"`
}

// eventNeeds are the kinds of events, and what each wants of the topology.
var eventNeeds = map[string]func(*Topology, *Event) error{
	"kill":      (*Topology).onKill,
	"restart":   (*Topology).onCulvert,
	"upgrade":   (*Topology).onCulvert,
	"apply":     (*Topology).onApply,
	"link_down": (*Topology).onLink,
	"link_up":   (*Topology).onLink,
	"n9":        (*Topology).onVariant,
	"mode":      (*Topology).onVariant,
	"smf":       (*Topology).onSMF,
	"tunnel":    (*Topology).onTunnel,
	"inject":    (*Topology).onInject,
	"active":    (*Topology).onActive,
	"object":    (*Topology).onObject,
	"no_object": (*Topology).onObject,
	"attach":    (*Topology).onPod,
	"detach":    (*Topology).onPod,
	"told":      (*Topology).onTold,
	"recorded":  (*Topology).onTold,
	"pause":     (*Topology).onAPIServer,
	"resume":    (*Topology).onAPIServer,
	"stop":      (*Topology).onStop,
	"start":     (*Topology).onStop,
	"collect":   (*Topology).onAttached,
	"route":     (*Topology).onRoute,
	"no_route":  (*Topology).onRoute,
	"mtu":       (*Topology).onMTU,
	"shows":     (*Topology).onShows,
	"wait":      (*Topology).onWait,
	"reboot":    (*Topology).onReboot,
	"kubectl":   func(t *Topology, e *Event) error { return t.validateCommand(e.Kubectl) },
}

func (t *Topology) validateEvent(e *Event) error {
	needs, ok := eventNeeds[e.Do]
	if !ok {
		return fmt.Errorf("do: %q: use one of %s", e.Do, strings.Join(slices.Sorted(maps.Keys(eventNeeds)), ", "))
	}
	if e.Device != "" && e.Do != "tunnel" && !strings.HasPrefix(e.Do, "link_") {
		return fmt.Errorf("device: %s has none", e.Do)
	}
	if e.Overlay != "" && e.Do != "apply" {
		return fmt.Errorf("overlay: %s has none", e.Do)
	}
	if (e.SMF != "" || e.Step != nil) && e.Do != "smf" {
		return fmt.Errorf("smf, step: %s has none", e.Do)
	}
	if err := needs(t, e); err != nil {
		return fmt.Errorf("%s: %w", e.Do, err)
	}
	return nil
}

func (t *Topology) onCulvert(e *Event) error { return t.wantCulvert(e.Node) }

func (t *Topology) onApply(e *Event) error {
	if err := t.wantCulvert(e.Node); err != nil {
		return err
	}
	if e.Overlay != "" && t.node(e.Node).Overlays[e.Overlay] == nil {
		return fmt.Errorf("overlay: %s has no %q", e.Node, e.Overlay)
	}
	return nil
}

func (t *Topology) onLink(e *Event) error {
	n := t.node(e.Node)
	if n == nil {
		return fmt.Errorf("no node is called %q", e.Node)
	}
	if !slices.Contains(t.devices(n), e.Device) {
		return fmt.Errorf("device: %s has no link %q", e.Node, e.Device)
	}
	return nil
}

func (t *Topology) onVariant(*Event) error {
	if len(t.names()) < 2 {
		return errors.New("the lab has not several of them to choose from")
	}
	return nil
}

func (t *Topology) onTunnel(e *Event) error {
	if _, err := t.reference(e.FTEID); err != nil {
		return err
	}
	return t.wantEndpoint(e.Node, e.Device)
}

func (t *Topology) onWait(e *Event) error {
	if e.For <= 0 {
		return errors.New("for: missing: how long")
	}
	return nil
}

// name is what an event is called in a report.
func (e *Event) name() string {
	switch {
	case e.Do == "smf":
		return fmt.Sprintf("%v by %s", e.Step["do"], e.SMF)
	case e.Node == "":
		return e.Do
	}
	return e.Do + " of " + e.Node
}

// events are what is done, by the kind of the event.
var events = map[string]func(*runner, context.Context, *Event, *outcome) error{
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

func (r *runner) upgradeEvent(ctx context.Context, e *Event, o *outcome) error {
	if n := r.node(e.Node); n.Kind != Kubelet {
		return r.upgrade(ctx, n, o)
	}
	return r.upgradeCluster(ctx, o)
}

// during runs traffic, with the check's events in the middle of it. busy holds
// while the traffic must go on.
func (r *runner) during(ctx context.Context, c *Check, o *outcome, traffic func(busy func() bool) error) error {
	list := c.events()
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
func (r *runner) eventsOf(ctx context.Context, list []Event, o *outcome) error {
	for i := range list {
		e := &list[i]
		start := time.Now()
		if err := events[e.Do](r, ctx, e, o); err != nil {
			return fmt.Errorf("%s: %w", e.name(), err)
		}
		if e.Do != "wait" && e.Do != "tunnel" {
			o.say("%s took %d ms", e.name(), time.Since(start).Milliseconds())
		}
	}
	return nil
}

// kill leaves a while without a daemon: the data path must go on by itself.
func (r *runner) kill(ctx context.Context, e *Event, _ *outcome) error {
	if n := r.node(e.Node); n.Kind == Kubelet {
		return r.killProgram(ctx, n, e.Program)
	}
	return r.restartCulvert(ctx, r.node(e.Node), unix.SIGKILL, 500*time.Millisecond, r.culvert)
}

func (r *runner) restart(ctx context.Context, e *Event, _ *outcome) error {
	return r.restartCulvert(ctx, r.node(e.Node), unix.SIGTERM, 0, r.culvert)
}

func (r *runner) apply(ctx context.Context, e *Event, _ *outcome) error {
	return r.applyCulvert(ctx, r.node(e.Node), e.Overlay)
}

func (r *runner) setLink(_ context.Context, e *Event, _ *outcome) error {
	return r.namespace(r.node(e.Node)).batch([]string{"link set dev " + e.Device + " " + strings.TrimPrefix(e.Do, "link_")})
}

func (r *runner) wait(ctx context.Context, e *Event, _ *outcome) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(e.For)):
		return nil
	}
}
