package topology

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// onAttached wants a pod that the lab attaches itself.
func (t *Topology) onAttached(e *Event) error {
	if n := t.Node(e.Node); n != nil && t.IsReal(n) {
		return fmt.Errorf("%s is attached by its kubelet", e.Node)
	}
	return t.onPod(e)
}

func (t *Topology) onStop(e *Event) error {
	if n := t.Node(e.Node); n != nil && n.Daemon() {
		return nil
	}
	if err := t.onAPIServer(e); err != nil {
		return fmt.Errorf("%w, culvert or cluster", err)
	}
	return nil
}

func (t *Topology) onAPIServer(e *Event) error {
	if n := t.Node(e.Node); n == nil || n.Kind != APIServer {
		return fmt.Errorf("%q is no node of kind apiserver", e.Node)
	}
	return nil
}

func (t *Topology) onRoute(e *Event) error {
	if t.Node(e.Node) == nil {
		return fmt.Errorf("no node is called %q", e.Node)
	}
	if len(strings.Fields(e.Route)) < 2 {
		return errors.New("route: missing")
	}
	return nil
}

func (t *Topology) onMTU(e *Event) error {
	if e.MTU == 0 {
		return errors.New("mtu: missing")
	}
	return t.onPod(e)
}

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
	Kubectl *Command `json:"kubectl,omitempty"`
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
	if e.Overlay != "" && t.Node(e.Node).Overlays[e.Overlay] == nil {
		return fmt.Errorf("overlay: %s has no %q", e.Node, e.Overlay)
	}
	return nil
}

func (t *Topology) onLink(e *Event) error {
	n := t.Node(e.Node)
	if n == nil {
		return fmt.Errorf("no node is called %q", e.Node)
	}
	if !slices.Contains(t.Devices(n), e.Device) {
		return fmt.Errorf("device: %s has no link %q", e.Node, e.Device)
	}
	return nil
}

func (t *Topology) onVariant(*Event) error {
	if len(t.VariantNames()) < 2 {
		return errors.New("the lab has not several of them to choose from")
	}
	return nil
}

func (t *Topology) onTunnel(e *Event) error {
	if _, err := t.Reference(e.FTEID); err != nil {
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

// Title is what an event is called in a report.
func (e *Event) Title() string {
	switch {
	case e.Do == "smf":
		return fmt.Sprintf("%v by %s", e.Step["do"], e.SMF)
	case e.Node == "":
		return e.Do
	}
	return e.Do + " of " + e.Node
}

func (t *Topology) onInject(e *Event) error {
	if n := t.Node(e.Node); n == nil || n.Kind != Host {
		return fmt.Errorf("%q is no node of kind host", e.Node)
	}
	return nil
}

func (t *Topology) onObject(e *Event) error {
	if t.APIServer() == nil {
		return errors.New("the lab has no kube-apiserver")
	}
	_, err := ObjectPath(e.Object)
	return err
}

func (t *Topology) onPod(e *Event) error {
	if n := t.Node(e.Node); n == nil || n.Kind != Pod {
		return fmt.Errorf("%q is no pod", e.Node)
	}
	return nil
}

func (t *Topology) onActive(e *Event) error {
	if e.Policy == "" || e.Preference == 0 {
		return errors.New("policy, preference: missing")
	}
	return t.wantCulvert(e.Node)
}

// Command is what a check or an event has kubectl do. Input is a list of objects
// for its standard input.
type Command struct {
	Args  []string         `json:"args"`
	Input []map[string]any `json:"input,omitempty"`
	// Output must match what it prints.
	Output string `json:"output,omitempty"`
}

func (t *Topology) validateCommand(c *Command) error {
	if t.APIServer() == nil || c == nil || len(c.Args) == 0 {
		return errors.New("kubectl: give args, in a lab with kube-apiserver")
	}
	_, err := regexp.Compile(c.Output)
	return err
}

// NodePrograms are those of a node of kind kubelet that can be killed, by the words
// that they are started with. They are started again: culvert by its kubelet, the
// others by the node's first process.
var NodePrograms = map[string][]string{
	"culvert": {"culvert", "run"}, "containerd": {"containerd"}, "kubelet": {"kubelet"}, "kube-proxy": {"kube-proxy"},
}

func (t *Topology) onKill(e *Event) error {
	if err := t.wantCulvert(e.Node); err != nil {
		return err
	}
	if e.Program != "" && (t.Node(e.Node).Kind != Kubelet || NodePrograms[e.Program] == nil) {
		return fmt.Errorf("program: a node of kind kubelet has %s", strings.Join(slices.Sorted(maps.Keys(NodePrograms)), ", "))
	}
	return nil
}

func (t *Topology) onReboot(e *Event) error {
	if n := t.Node(e.Node); n == nil || n.Kind != Kubelet {
		return fmt.Errorf("%q is no node of kind kubelet", e.Node)
	}
	return nil
}

func (t *Topology) onTold(e *Event) error {
	if e.State == "" && e.Says == "" {
		return errors.New("state, says: missing")
	}
	return t.onObject(e)
}

func (t *Topology) onShows(e *Event) error {
	if len(e.Command) == 0 || e.Shows == nil {
		return errors.New("command, shows: missing")
	}
	return t.wantCulvert(e.Node)
}
