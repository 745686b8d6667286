package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
)

// Check is one thing that must hold while the lab is up. Which fields count
// depends on Kind: see checkKinds.
type Check struct {
	Name string `json:"name"`
	Kind string `json:"kind"`

	From   string     `json:"from"`            // node that sends
	At     string     `json:"at,omitempty"`    // node that receives
	Source netip.Addr `json:"source,omitzero"` // the kernel's choice unless set
	To     netip.Addr `json:"to,omitzero"`
	// ToName is a node, a pod or a Service in place of an address, for each of
	// Families (both unless set).
	ToName   string   `json:"to_name,omitempty"`
	Families []string `json:"families,omitempty"`
	// Port is the one that is connected to, and AtPort where the receiver
	// listens, where something on the way translates them (tcp, udp). A Service
	// says both, and so does NodePort: the Service of which it is the node's.
	Port     uint16 `json:"port,omitempty"`
	AtPort   uint16 `json:"at_port,omitempty"`
	NodePort string `json:"node_port,omitempty"`
	// Device is the GTP-U link of an echo or end_marker; of other kinds what
	// the sender's sockets are bound to.
	Device string `json:"device,omitempty"`
	// Both sends in both directions (udp; needs Source).
	Both bool `json:"both,omitempty"`
	// Also are more streams at the same time (udp), of the same pace.
	Also     []Way `json:"also,omitempty"`
	Variants       // in which it is made: all unless set

	Count    int      `json:"count,omitempty"`
	Interval Duration `json:"interval,omitempty"`
	Size     int      `json:"size,omitempty"`
	Bytes    int64    `json:"bytes,omitempty"`
	Flows    int      `json:"flows,omitempty"`
	HopLimit int      `json:"hop_limit,omitempty"`
	DF       bool     `json:"df,omitempty"`
	// Command of culvert is asked, with the address of ToName if there is one
	// (shows).
	Command []string `json:"command,omitempty"`
	// Kubectl is what it has to do (kubectl).
	Kubectl *command `json:"kubectl,omitempty"`
	// Limit is how long it may take: a minute unless set.
	Limit Duration `json:"limit,omitempty"`
	// Within repeats the check until it passes.
	Within Duration `json:"within,omitempty"`

	Expect   Expect          `json:"expect,omitzero"`
	Counters []CounterExpect `json:"counters,omitempty"`
	// Accounts names culvert nodes whose outcomes must add up to the frames
	// that their neighbours sent them.
	Accounts []string `json:"accounts,omitempty"`
	// Event happens while the traffic flows, and then Events, one after
	// another. They are what an n4 check is made of.
	Event  *Event  `json:"event,omitempty"`
	Events []Event `json:"events,omitempty"`
	// Before and After are done before and after the check, which has not
	// passed where they fail.
	Before []Event `json:"before,omitempty"`
	After  []Event `json:"after,omitempty"`

	listen netip.AddrPort // where the receiver is, unless it is at To
}

// Way is where a stream goes.
type Way struct {
	From   string     `json:"from"`
	At     string     `json:"at"`
	Source netip.Addr `json:"source,omitzero"`
	To     netip.Addr `json:"to"`
	Device string     `json:"device,omitempty"`
	Both   bool       `json:"both,omitempty"`
}

// ways are all of a check's streams.
func (c *Check) ways() []Way {
	return append([]Way{{From: c.From, At: c.At, Source: c.Source, To: c.To, Device: c.Device, Both: c.Both}}, c.Also...)
}

// events are all that happens under load.
func (c *Check) events() []Event {
	if c.Event == nil {
		return c.Events
	}
	return append([]Event{*c.Event}, c.Events...)
}

// Expect says when a check passes: everything arrives, once and whole, unless
// a field says otherwise.
type Expect struct {
	Error   string `json:"error,omitempty"`    // an ICMP error of this kind at the sender, and nothing arrives
	MTU     uint32 `json:"mtu,omitempty"`      // that it names
	Nothing bool   `json:"nothing,omitempty"`  // nothing arrives
	MaxLost int    `json:"max_lost,omitempty"` // this many may be lost
	// Outer wants an ICMP error about the GTP-U packets, at the endpoint
	// of a node.
	Outer *OuterExpect `json:"outer,omitempty"`
	// Container wants a PDU Session Container with every T-PDU.
	Container *ContainerExpect `json:"container,omitempty"`
	// Interface is where an adjacency must leave by.
	Interface string `json:"interface,omitempty"`
	// Links are the ends of links between routers that OSPFv3 must know.
	Links int `json:"links,omitempty"`
	// InOrder wants no datagram ahead of an earlier one of its flow, MinGap a
	// time in which nothing arrived: so long they were kept.
	InOrder bool     `json:"in_order,omitempty"`
	MinGap  Duration `json:"min_gap,omitempty"`
	// Rate wants a stream to be held to a rate, by loss.
	Rate *RateExpect `json:"rate,omitempty"`
	// Handover wants tunnels to change at a GTP-U endpoint.
	Handover *HandoverExpect `json:"handover,omitempty"`
	// Usage wants an SMF to be told what the streams counted themselves.
	Usage *UsageExpect `json:"usage,omitempty"`
	// Client is the node or pod that the receiver sees connect (tcp).
	Client string `json:"client,omitempty"`
	// Pods is how many of those behind a Service get connections (spread).
	Pods int `json:"pods,omitempty"`
	// Code is CNI's of an error (cni_status); 0 is success.
	Code uint `json:"code,omitempty"`
	// Shows is a part of what a command shows (shows).
	Shows any `json:"shows,omitempty"`
	// Reports of UPFs.
	Reports []ReportExpect `json:"reports,omitempty"`
}

// RateExpect is a rate of IP packets.
type RateExpect struct {
	Kbits     float64 `json:"kbit_s"`
	Tolerance float64 `json:"tolerance"` // in percent
}

// HandoverExpect wants End Markers by the tunnel of one device, no T-PDU there
// after them, and T-PDUs by the tunnel of another.
type HandoverExpect struct {
	Node string `json:"node"`
	From string `json:"from"` // device
	To   string `json:"to"`   // device
}

// UsageExpect says whose usage: the check sends from the UE's side.
type UsageExpect struct {
	SMF      string `json:"smf"`
	Sessions string `json:"sessions"` // a group of the SMF's
	// BeforeQoS: what was sent counts, not what arrived.
	BeforeQoS bool `json:"before_qos,omitempty"`
}

// ReportExpect says how many reports an SMF must get during the check. What an
// SMF may report of its own: restarted and path_lost.
type ReportExpect struct {
	SMF   string `json:"smf"`
	Kind  string `json:"kind"` // see reportKinds
	Count int    `json:"count"`
}

// OuterExpect is an ICMP error that a GTP-U endpoint must get.
type OuterExpect struct {
	Node  string `json:"node"`
	Error string `json:"error"`
	MTU   uint32 `json:"mtu,omitempty"`
}

// ContainerExpect is what a GTP-U endpoint must find with the T-PDUs.
type ContainerExpect struct {
	Node   string `json:"node"`
	Device string `json:"device"`
	QFI    uint8  `json:"qfi"`
	RQI    bool   `json:"rqi,omitempty"`
}

// CounterExpect says that a counter grows by exactly the packets sent (or
// received, which for a ping is what comes back).
type CounterExpect struct {
	Node    string `json:"node"`
	SID     string `json:"sid,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	NFT     string `json:"nft,omitempty"` // named counter
	// Metric is one for Prometheus with its labels, as in name{label="value"}.
	Metric string `json:"metric,omitempty"`
	// Slice of a user plane function, uplink or downlink.
	Slice     string `json:"slice,omitempty"`
	Direction string `json:"direction,omitempty"`
	// Packets is sent (the default), received, some (more than none) or none.
	Packets  string `json:"packets,omitempty"`
	Variants        // in which it counts: all unless set
	// Shares are the parts of the policy's lists in percent; Tolerance is in
	// percentage points.
	Shares    []float64 `json:"shares,omitempty"`
	Tolerance float64   `json:"tolerance,omitempty"`
}

func (x *CounterExpect) validate() error {
	if !slices.Contains([]string{"", "sent", "received", "some", "none"}, x.Packets) {
		return fmt.Errorf("packets: %q: use sent, received, some or none", x.Packets)
	}
	if x.Slice != "" && x.Direction != "uplink" && x.Direction != "downlink" {
		return fmt.Errorf("direction: %q: use uplink or downlink, of a slice", x.Direction)
	}
	return nil
}

// Duration is a time.Duration that is written as in "20ms".
type Duration time.Duration

// UnmarshalJSON reads a string like "20ms".
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s: give a duration as a string, as in 20ms", b)
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

// MarshalJSON writes it back.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// or returns d, or the default where it is not set.
func (d Duration) or(other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return time.Duration(d)
}

// checkNames are the kinds of checks.
var checkNames = []string{
	"adjacency", "cni_status", "culvert", "echo", "end_marker", "kubectl", "leftovers", "n4", "one_family",
	"ospf", "ping", "pods", "route", "shows", "spread", "tcp", "udp",
}

// reportNames are the kinds of reports that an SMF gets.
var reportNames = []string{"downlink_data", "error_indication", "hosts", "path_failed", "path_lost", "restarted", "usage"}

func (t *Topology) validateCheck(c *Check) error {
	if c.Name == "" {
		return fmt.Errorf("name: missing")
	}
	if !slices.Contains(checkNames, c.Kind) {
		return fmt.Errorf("kind: %q: use one of %s", c.Kind, strings.Join(checkNames, ", "))
	}
	if err := t.validateNodes(c); err != nil {
		return err
	}
	if c.Kind == "kubectl" {
		if err := t.validateCommand(c.Kubectl); err != nil {
			return err
		}
	}
	if c.Kind == "leftovers" && len(t.kubelets()) == 0 {
		return fmt.Errorf("leftovers: the lab has no node of kind kubelet")
	}
	if c.Kind == "one_family" && len(c.Families) != 1 {
		return fmt.Errorf("families: one_family is about one of them")
	}
	if n := t.node(c.From); c.Kind == "ospf" && (n.FRR == nil || !slices.Contains(n.FRR.Daemons, "ospf6d")) {
		return fmt.Errorf("from: %q does not run ospf6d", c.From)
	}
	if err := t.wantVariants(c.Variants); err != nil {
		return err
	}
	for _, x := range c.Counters {
		if err := t.wantVariants(x.Variants); err != nil {
			return fmt.Errorf("counters: %w", err)
		}
	}
	if err := t.validateExpect(c); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	for field, list := range map[string][]Event{"event": c.events(), "before": c.Before, "after": c.After} {
		for i := range list {
			if err := t.validateEvent(&list[i]); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
		}
	}
	return nil
}

// validateNodes wants the nodes that a check names to be there, and to be what
// it takes them for.
func (t *Topology) validateNodes(c *Check) error {
	var nodes []string
	switch c.Kind {
	case "n4": // it is about the SMFs that its events name
	case "kubectl", "culvert", "leftovers": // about the whole cluster
	default:
		nodes = append(nodes, c.From)
	}
	if c.At != "" {
		nodes = append(nodes, c.At)
	}
	for _, w := range c.Also {
		nodes = append(nodes, w.From, w.At)
	}
	culverts := slices.Clone(c.Accounts)
	for _, x := range c.Counters {
		if n := t.node(x.Node); n == nil || !n.counts() {
			culverts = append(culverts, x.Node)
		}
		if err := x.validate(); err != nil {
			return fmt.Errorf("counters: %w", err)
		}
	}
	for _, name := range nodes {
		if t.node(name) == nil {
			return fmt.Errorf("no node is called %q", name)
		}
	}
	for _, name := range culverts {
		if err := t.wantCulvert(name); err != nil {
			return err
		}
	}
	return nil
}

func (t *Topology) wantCulvert(name string) error {
	if n := t.node(name); n == nil || !n.culvert() {
		return fmt.Errorf("%q is no node of kind culvert, cluster or kubelet", name)
	}
	return nil
}

// wantEndpoint wants a node to have GTP-U links of these names.
func (t *Topology) wantEndpoint(name string, devices ...string) error {
	n := t.node(name)
	if n == nil {
		return fmt.Errorf("no node is called %q", name)
	}
	for _, device := range devices {
		if !slices.ContainsFunc(n.GTPU, func(l gtpulink.Link) bool { return l.Device == device }) {
			return fmt.Errorf("%s has no GTP-U link %q", name, device)
		}
	}
	return nil
}

func (t *Topology) validateExpect(c *Check) error {
	if x := c.Expect.Rate; x != nil && (c.Kind != "udp" || x.Kbits <= 0 || x.Tolerance <= 0) {
		return fmt.Errorf("rate: give kbit_s and tolerance, of a check of kind udp")
	}
	if h := c.Expect.Handover; h != nil {
		if err := t.wantEndpoint(h.Node, h.From, h.To); err != nil {
			return fmt.Errorf("handover: %w", err)
		}
	}
	if u := c.Expect.Usage; u != nil {
		if _, err := t.group(u.SMF, u.Sessions); err != nil {
			return fmt.Errorf("usage: %w", err)
		}
		if c.Kind != "udp" || len(c.Also) > 0 || len(t.node(c.From).GTPU) == 0 {
			return fmt.Errorf("usage: it is compared with one stream (udp) from a node with GTP-U links")
		}
	}
	for _, x := range c.Expect.Reports {
		if t.smf(x.SMF) == nil {
			return fmt.Errorf("reports: no SMF is called %q", x.SMF)
		}
		if !slices.Contains(reportNames, x.Kind) {
			return fmt.Errorf("reports: kind: %q: use one of %s", x.Kind, strings.Join(reportNames, ", "))
		}
	}
	return nil
}

// Result is what became of a check.
type Result struct {
	Name     string  `json:"name"`
	Pass     bool    `json:"pass"`
	Detail   string  `json:"detail"`
	Sent     int     `json:"sent"`
	Received int     `json:"received"`
	Lost     int     `json:"lost"`
	Seconds  float64 `json:"seconds"`
}

// Report is what `culvert lab run` says.
type Report struct {
	Lab     string   `json:"lab"`
	Pass    bool     `json:"pass"`
	Checks  []Result `json:"checks"`
	Kernel  string   `json:"kernel"`
	Culvert string   `json:"culvert"` // the binary that was run
	Seconds float64  `json:"seconds"`
}
