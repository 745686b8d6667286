package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
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
	Device string     `json:"device,omitempty"` // GTP-U link, or interface
	// Both sends in both directions (udp; needs Source).
	Both bool `json:"both,omitempty"`

	Count    int      `json:"count,omitempty"`
	Interval Duration `json:"interval,omitempty"`
	Size     int      `json:"size,omitempty"`
	Bytes    int64    `json:"bytes,omitempty"`
	Flows    int      `json:"flows,omitempty"`
	HopLimit int      `json:"hop_limit,omitempty"`
	DF       bool     `json:"df,omitempty"`
	// Within repeats the check until it passes.
	Within Duration `json:"within,omitempty"`

	Expect   Expect          `json:"expect,omitzero"`
	Counters []CounterExpect `json:"counters,omitempty"`
	// Accounts names culvert nodes whose outcomes must add up to the frames
	// that their neighbours sent them.
	Accounts []string `json:"accounts,omitempty"`
	// Event happens while the traffic flows.
	Event *Event `json:"event,omitempty"`
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
	// Packets is sent (the default), received or some (more than none).
	Packets string `json:"packets,omitempty"`
	// Shares are the parts of the policy's lists in percent; Tolerance is in
	// percentage points.
	Shares    []float64 `json:"shares,omitempty"`
	Tolerance float64   `json:"tolerance,omitempty"`
}

// Event is something that is done to the lab under traffic.
type Event struct {
	Do     string `json:"do"` // kill, restart, upgrade, apply, link_down, link_up
	Node   string `json:"node"`
	Device string `json:"device,omitempty"` // link_down, link_up
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

var events = []string{"kill", "restart", "upgrade", "apply", "link_down", "link_up"}

func (t *Topology) validateCheck(c *Check) error {
	if c.Name == "" {
		return fmt.Errorf("name: missing")
	}
	if _, ok := checkKinds[c.Kind]; !ok {
		return fmt.Errorf("kind: %q: use one of %s", c.Kind, strings.Join(sortedKeys(checkKinds), ", "))
	}
	nodes := []string{c.From}
	if c.At != "" {
		nodes = append(nodes, c.At)
	}
	culverts := slices.Clone(c.Accounts)
	for _, x := range c.Counters {
		culverts = append(culverts, x.Node)
		switch x.Packets {
		case "", "sent", "received", "some":
		default:
			return fmt.Errorf("counters: packets: %q: use sent, received or some", x.Packets)
		}
	}
	if e := c.Event; e != nil {
		if !slices.Contains(events, e.Do) {
			return fmt.Errorf("event: do: %q: use one of %s", e.Do, strings.Join(events, ", "))
		}
		if isLink := strings.HasPrefix(e.Do, "link_"); isLink != (e.Device != "") {
			return fmt.Errorf("event: device: link_down and link_up have one, others do not")
		} else if isLink {
			nodes = append(nodes, e.Node)
		} else {
			culverts = append(culverts, e.Node)
		}
	}
	if n := t.node(c.From); c.Kind == "ospf" && n != nil && (n.FRR == nil || !slices.Contains(n.FRR.Daemons, "ospf6d")) {
		return fmt.Errorf("from: %q does not run ospf6d", c.From)
	}
	for _, name := range nodes {
		if t.node(name) == nil {
			return fmt.Errorf("no node is called %q", name)
		}
	}
	for _, name := range culverts {
		if n := t.node(name); n == nil || n.Kind != Culvert {
			return fmt.Errorf("%q is no node of kind culvert", name)
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
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
