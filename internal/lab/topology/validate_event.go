package topology

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// need is what an event of a kind must say: of which node it is, and more.
type need struct {
	node  func(v validator, name string) bool
	check func(v validator, e *Event)
}

// needs of the kinds of events.
var needs = map[string]need{
	"kill": {nil, func(v validator, e *Event) {
		if e.Node == "" && e.Program != "" {
			v.programOf(e)
		} else if v.culvert(e.Node) {
			v.want(e.Program == "" || v.t.Node(e.Node).Kind == Kubelet && NodePrograms[e.Program] != nil,
				"program: a node of kind kubelet has %s", strings.Join(keys(NodePrograms), ", "))
		}
	}},
	"restart": {validator.culvert, nil},
	"upgrade": {validator.culvert, nil},
	"apply": {validator.culvert, func(v validator, e *Event) {
		v.want(e.Overlay == "" || v.t.Node(e.Node).Overlays[e.Overlay] != nil, "overlay: %s has no %q", e.Node, e.Overlay)
	}},
	"link_down": {validator.exists, validator.linkOf},
	"link_up":   {validator.exists, validator.linkOf},
	"node_down": {kindIs(FRR), nil},
	"node_up":   {kindIs(FRR), nil},
	"n9":        {nil, validator.several},
	"mode":      {nil, validator.several},
	"smf":       {nil, validator.step},
	"tunnel":    {validator.exists, validator.tunnel},
	"program":   {nil, validator.programOf},
	"end":       {nil, validator.programOf},
	"says": {nil, func(v validator, e *Event) {
		if e.Node != "" {
			v.culvert(e.Node)
			v.want(e.Program == "", "program, node: give one of them")
		} else {
			v.programOf(e)
		}
		v.want(e.Says != "", "says: missing")
	}},
	"capture": {validator.exists, validator.linkOf},
	"inject":  {kindIs(Host), nil},
	"active": {validator.culvert, func(v validator, e *Event) {
		v.want(e.Policy != "" && e.Preference != 0, "policy, preference: missing")
	}},
	"object":    {nil, validator.object},
	"no_object": {nil, validator.object},
	"attach":    {kindIs(Pod), nil},
	"detach":    {kindIs(Pod), nil},
	"told":      {nil, validator.status},
	"recorded":  {nil, validator.status},
	"pause":     {kindIs(APIServer, Culvert, Cluster), nil},
	"resume":    {kindIs(APIServer, Culvert, Cluster), nil},
	"stop":      {kindIs(APIServer, Culvert, Cluster), nil},
	"start":     {kindIs(APIServer, Culvert, Cluster), nil},
	"collect": {kindIs(Pod), func(v validator, e *Event) {
		v.want(!v.t.IsReal(v.t.Node(e.Node)), "%s is attached by its kubelet", e.Node)
	}},
	"route":    {validator.exists, validator.route},
	"no_route": {validator.exists, validator.route},
	"mtu":      {kindIs(Pod), func(v validator, e *Event) { v.want(e.MTU != 0, "mtu: missing") }},
	"shows": {validator.culvert, func(v validator, e *Event) {
		v.want(len(e.Command) > 0 && e.Shows != nil, "command, shows: missing")
	}},
	"engine_start": {validator.engine, nil},
	"engine_stop":  {validator.engine, nil},
	"engine_kill":  {validator.engine, nil},
	"engine_acts":  {validator.engine, nil},
	"engine_shows": {validator.engine, func(v validator, e *Event) { v.want(e.Shows != nil, "shows: missing") }},
	"wait":         {nil, func(v validator, e *Event) { v.want(e.For > 0, "for: missing: how long") }},
	"busy": {nil, func(v validator, e *Event) {
		v.want(e.For > 0 && e.For <= Duration(3*time.Second), "for: %v: a CPU that is busy for more than 3s harms others", time.Duration(e.For))
	}},
	"run":    {kindIs(Machine), func(v validator, e *Event) { v.want(e.Script != "", "script: missing") }},
	"reboot": {kindIs(Kubelet), nil},
	"move": {kindIs(Kubelet), func(v validator, e *Event) {
		v.want(e.Address.IsValid() && e.Address.Addr().Is6(), "address: missing: of IPv6, with the length of its prefix")
		v.linkOf(e)
	}},
	"kubectl": {nil, func(v validator, e *Event) { v.kubectl(e.Kubectl) }},
}

// EventKinds are the kinds of events.
func EventKinds() []string { return keys(needs) }

func (v validator) event(e *Event) {
	n, ok := needs[e.Do]
	if !v.want(ok, "do: %q: use one of %s", e.Do, strings.Join(EventKinds(), ", ")) {
		return
	}
	v.want(e.Device == "" || slices.Contains([]string{"tunnel", "capture", "move"}, e.Do) || strings.HasPrefix(e.Do, "link_"), "device: %s has none", e.Do)
	v.want(e.Overlay == "" || e.Do == "apply", "overlay: %s has none", e.Do)
	v.want(e.UPF == "" && !e.UE.IsValid() || e.Do == "tunnel", "upf, ue: %s has none", e.Do)
	v.want(!e.Address.IsValid() || e.Do == "move", "address: %s has none", e.Do)
	v.want(!e.SID.IsValid() || e.Do == "tunnel", "sid: %s has none", e.Do)
	v.want(e.SMF == "" && e.Step == nil || e.Do == "smf", "smf, step: %s has none", e.Do)
	v = v.in("%s", e.Do)
	if (n.node == nil || n.node(v, e.Node)) && n.check != nil {
		n.check(v, e)
	}
}

// kindIs wants a node of one of these kinds.
func kindIs(kinds ...Kind) func(validator, string) bool {
	var words []string
	for _, k := range kinds {
		words = append(words, string(k))
	}
	text := strings.Join(words, ", ")
	return func(v validator, name string) bool {
		n := v.t.Node(name)
		return v.want(n != nil && slices.Contains(kinds, n.Kind), "%q is no node of kind %s", name, text)
	}
}

// engine wants a node with an engine.
func (v validator) engine(name string) bool {
	n := v.t.Node(name)
	return v.want(n != nil && n.Engine != nil, "%q has no engine", name)
}

func (v validator) linkOf(e *Event) {
	v.want(slices.Contains(v.t.Devices(v.t.Node(e.Node)), e.Device), "device: %s has no link %q", e.Node, e.Device)
}

// tunnel wants to know where it goes: to what an SMF refers to, or to the session of the
// device's address.
func (v validator) tunnel(e *Event) {
	v.endpoint(e.Node, e.Device)
	if e.UPF != "" {
		v.culvert(e.UPF)
		v.want(e.FTEID == "" && e.UE.IsValid(), "ue: give the address whose session it is of, and no fteid")
		return
	}
	_, err := v.t.ParseReference(e.FTEID)
	v.none(err)
}

func (v validator) several(*Event) {
	v.want(len(v.t.VariantNames()) > 1, "the lab has not several of them to choose from")
}

func (v validator) object(e *Event) {
	v.want(v.t.APIServer() != nil, "the lab has no kube-apiserver")
	_, err := ObjectPath(e.Object)
	v.none(err)
}

func (v validator) status(e *Event) {
	v.want(e.State != "" || e.Says != "", "state, says: missing")
	v.object(e)
}

func (v validator) route(e *Event) { v.want(len(strings.Fields(e.Route)) > 1, "route: missing") }

func (v validator) kubectl(c *Command) {
	if v.want(v.t.APIServer() != nil && c != nil && len(c.Args) > 0, "kubectl: give args, in a lab with kube-apiserver") {
		for _, text := range []string{c.Output, c.Refused} {
			_, err := regexp.Compile(text)
			v.none(err)
		}
		v.want(c.Refused == "" || c.Output == "", "output, refused: give one of them")
		if c.Agent != "" {
			v.culvert(c.Agent)
		}
	}
}
