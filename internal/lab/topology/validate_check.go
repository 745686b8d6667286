package topology

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/packet"
)

// CheckKinds are the kinds of checks.
var CheckKinds = []string{
	"adjacency", "advertised", "again", "captured", "charged", "cni_status", "culvert", "dead", "echo", "end_marker", "frame", "gnb", "isolated", "kubectl", "leftovers", "machine", "n4", "one_family",
	"ospf", "page", "ping", "pods", "procedure", "program", "route", "router_solicitation", "shows", "spread", "suite", "tcp", "udp",
}

// fromNobody are the kinds of checks that are about the whole cluster, or about the
// SMFs that their events name.
var fromNobody = []string{"culvert", "isolated", "kubectl", "leftovers", "n4", "procedure", "suite"}

// ReportKinds are the kinds of reports that an SMF gets.
var ReportKinds = []string{"downlink_data", "error_indication", "hosts", "path_failed", "path_lost", "restarted", "usage"}

func (v validator) check(c *Check) {
	v.want(c.Name != "", "name: missing")
	v.want(slices.Contains(CheckKinds, c.Kind), "kind: %q: use one of %s", c.Kind, strings.Join(CheckKinds, ", "))
	v.none(v.t.hasVariants(c.Variants))
	// Those between which the check sends.
	var nodes []string
	if !slices.Contains(fromNobody, c.Kind) {
		nodes = append(nodes, c.From)
	}
	if c.At != "" {
		nodes = append(nodes, c.At)
	}
	for _, w := range c.Also {
		nodes = append(nodes, w.From, w.At)
	}
	if slices.ContainsFunc(nodes, func(name string) bool { return !v.exists(name) }) {
		return
	}
	switch c.Kind {
	case "router_solicitation", "advertised":
		v.solicited(c)
	case "kubectl":
		v.kubectl(c.Kubectl)
	case "gnb":
		v.want(c.At != "" && len(c.Command) > 0, "at, command: give the node that reaches N4, and what follows culvert gnb ping")
	case "page":
		v.culvert(c.At)
		v.want(c.Device != "" && c.Source.IsValid() && c.To.IsValid(), "device, source, to: give the UE that sends, and to whom")
	case "leftovers":
		v.want(len(v.t.Kubelets()) > 0, "leftovers: the lab has no node of kind kubelet")
	case "captured":
		v.want(c.Capture != "" && !strings.Contains(c.Capture, "/") && c.Filter != "" && (c.Count > 0) != c.Expect.Nothing,
			"capture, filter, count: give a file of the node, what tshark looks for, and how often, or expect nothing")
	case "program":
		v.want(len(c.Program) > 0 && c.Program[0] != "" && !strings.Contains(c.Program[0], "/") && len(c.Expect.Says) > 0,
			"program, says: give what is run, which begins with the name of a program, and what it has to write")
	case "machine":
		kindIs(Machine)(v, c.From)
		v.want(c.Script != "", "script: missing: what is run in the machine")
	case "procedure":
		v.want(len(c.AllEvents()) > 0, "events: a procedure is made of some")
	case "suite":
		v.suite(c.Suite)
	case "isolated":
		v.want(len(v.t.Kubelets()) > 0 && c.Count > 1, "isolated: give count, of 2 or more pods, in a lab with a node of kind kubelet")
		kindIs(Pod)(v, c.At)
	case "dead":
		kindIs(Pod)(v, c.ToName)
	case "frame":
		v.frame(c)
	case "one_family":
		v.want(len(c.Families) == 1, "families: one_family is about one of them")
	case "ospf":
		n := v.t.Node(c.From)
		v.want(n.FRR != nil && slices.Contains(n.FRR.Daemons, "ospf6d"), "from: %q does not run ospf6d", c.From)
	}
	v.counters(c.Counters)
	v.rest(c)
}

// rest validates what checks of all kinds have.
func (v validator) rest(c *Check) {
	for _, name := range c.Accounts {
		v.culvert(name)
	}
	v.in("expect").expect(c)
	for field, list := range map[string][]Event{"event": c.AllEvents(), "before": c.Before, "after": c.After} {
		for i := range list {
			v.in("%s", field).event(&list[i])
		}
	}
}

// solicited wants the GTP-U links of a UE, and of who answers it or what it gets.
func (v validator) solicited(c *Check) {
	v.endpoint(c.From, c.Device)
	if c.Kind == "router_solicitation" {
		v.endpoint(c.At, c.AtDevice)
		return
	}
	v.want(c.Prefix.IsValid() && c.Prefix.Addr().Is6(), "prefix: %v: give what is to be advertised", c.Prefix)
}

// counters wants what counts to be of nodes that do.
func (v validator) counters(list []CounterExpect) {
	for _, x := range list {
		in := v.in("counters")
		if n := v.t.Node(x.Node); n == nil || !n.Counts() {
			in.culvert(x.Node)
		}
		in.want(slices.Contains([]string{"", "sent", "received", "some", "none"}, x.Packets), "packets: %q: use sent, received, some or none", x.Packets)
		in.want(x.Slice == "" || x.Direction == "uplink" || x.Direction == "downlink", "direction: %q: use uplink or downlink, of a slice", x.Direction)
		in.none(v.t.hasVariants(x.Variants))
	}
}

// suite wants tests to be chosen, by a cluster that runs pods.
func (v validator) suite(s *Suite) {
	if !v.want(s != nil && s.Focus != "" && s.Workers > 0, "suite: give focus and workers") {
		return
	}
	v.want(len(v.t.Kubelets()) > 0, "suite: the lab has no node of kind kubelet")
	v.want((s.Skip == "") == (s.Because == ""), "because: say why tests are left out, where some are")
	for _, text := range []string{s.Focus, s.Skip} {
		_, err := regexp.Compile(text)
		v.none(err)
	}
}

// frame wants layers that can be read, once addresses are in the place of names.
func (v validator) frame(c *Check) {
	v.want(c.At != "", "at: missing: where the frames are looked for")
	from := v.t.Node(c.From)
	v.want(from.Kind == Pod || c.Next != "" && len(v.t.Devices(from)) > 0, "next: missing: who gets the frames of a node that is no pod")
	if c.Next != "" && v.exists(c.Next) {
		devices := v.t.Devices(v.t.Node(c.Next))
		v.want(len(devices) > 0, "next: %s has no link", c.Next)
		v.want(c.NextDevice == "" || slices.Contains(devices, c.NextDevice), "next_device: %s has no %q", c.Next, c.NextDevice)
	} else {
		v.want(c.NextDevice == "", "next_device: say who is next")
	}
	var layers packet.Layers
	text, err := json.Marshal(c.Frame)
	if err == nil {
		err = json.Unmarshal(AddressNames.ReplaceAllFunc(text, func(name []byte) []byte {
			v.exists(string(AddressNames.FindSubmatch(name)[1]))
			return []byte("::")
		}), &layers)
	}
	v.none(err)
	v.want(len(layers) > 0, "frame: missing: its layers")
}

// AddressNames are {NAME.ipv4} and {NAME.ipv6} in layers: addresses of a node or pod.
var AddressNames = regexp.MustCompile(`\{([a-z0-9-]+)\.(ipv4|ipv6)\}`)

// culvert wants a node that runs culvert.
func (v validator) culvert(name string) bool {
	n := v.t.Node(name)
	return v.want(n != nil && n.Culvert(), "%q is no node of kind culvert, cluster or kubelet", name)
}

// endpoint wants a node to have GTP-U links of these names.
func (v validator) endpoint(name string, devices ...string) {
	if !v.exists(name) {
		return
	}
	for _, device := range devices {
		has := slices.ContainsFunc(v.t.Node(name).GTPU, func(l gtpulink.Link) bool { return l.Device == device })
		v.want(has, "%s has no GTP-U link %q", name, device)
	}
}

func (v validator) expect(c *Check) {
	if x := c.Expect.Rate; x != nil {
		v.want(c.Kind == "udp" && x.Kbits > 0 && x.Tolerance > 0, "rate: give kbit_s and tolerance, of a check of kind udp")
	}
	v.want(c.Kind == "udp" || c.Expect.P99 == 0 && c.Expect.Busiest == nil && c.Expect.MinLost == 0 && c.Expect.Settles == 0 && c.Expect.LossFor == 0 && c.Expect.ActsWithin == 0,
		"p99, busiest, min_lost, settles, loss_for, acts_within: of a check of kind udp")
	v.want((c.Rounds > 0) == (c.Expect.LossFor > 0) && (c.Rounds == 0 || c.Rounds >= LeastRounds), "rounds, loss_for: give both, and %d rounds at least", LeastRounds)
	for name := range c.Expect.Classes {
		v.want(c.Kind == "udp" && slices.Contains(c.Classes(), name), "classes: no stream is of class %q", name)
	}
	if h := c.Expect.Handover; h != nil {
		v.in("handover").endpoint(h.Node, h.From, h.To)
	}
	if u := c.Expect.Usage; u != nil {
		v.in("usage").none(v.t.hasSessions(u.SMF, u.Sessions))
		v.want(c.Kind == "udp" && len(v.t.Node(c.From).GTPU) > 0,
			"usage: it is compared with one stream (udp) from a node with GTP-U links")
	}
	isCharged := c.Kind == "charged" && c.Both
	v.want(isCharged == (c.Expect.Charged != nil) && isCharged == (c.Kind == "charged"),
		"charged: a check of kind charged sends both ways, and says here how the session ends and where the records are")
	if x := c.Expect.Charged; x != nil {
		in := v.in("charged")
		in.endpoint(c.From, c.Device)
		in.culvert(x.UPF)
		in.want(v.t.Node(x.Node) != nil && x.Capture != "" && !strings.Contains(x.Capture, "/"), "node, capture: give a file of a node")
		in.want(len(x.End) > 0, "end: missing: what ends the session")
		for i := range x.End {
			in.in("end").event(&x.End[i])
		}
		in.want(x.CDR == "" || imsiForm.MatchString(x.CDR), "cdr: %q: give an IMSI", x.CDR)
	}
	for _, x := range c.Expect.Reports {
		v.want(v.t.SMF(x.SMF) != nil, "reports: no SMF is called %q", x.SMF)
		v.want(slices.Contains(ReportKinds, x.Kind), "reports: kind: %q: use one of %s", x.Kind, strings.Join(ReportKinds, ", "))
	}
}
