package topology

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
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
	// Device is the GTP-U link of an echo, end_marker or router_solicitation, and what
	// is captured; of other kinds what the sender's sockets are bound to.
	Device string `json:"device,omitempty"`
	// AtDevice is the GTP-U link at which a router_solicitation or an end_marker arrives; of the
	// latter Device unless set.
	AtDevice string `json:"at_device,omitempty"`
	// Prefix is what router advertisements give a UE's device, a GTP-U link (advertised).
	Prefix netip.Prefix `json:"prefix,omitzero"`
	// Both sends in both directions (udp; needs Source).
	Both bool `json:"both,omitempty"`
	// Class is what the stream is counted as, with those of Also that have the same (udp).
	Class string `json:"class,omitempty"`
	// Also are more streams at the same time (udp), for as long, and of the same pace unless
	// they say another.
	Also     []Way `json:"also,omitempty"`
	Variants       // in which it is made: all unless set

	Count    int      `json:"count,omitempty"`
	Interval Duration `json:"interval,omitempty"`
	Size     int      `json:"size,omitempty"`
	Bytes    int64    `json:"bytes,omitempty"`
	Flows    int      `json:"flows,omitempty"`
	DSCP     uint8    `json:"dscp,omitempty"` // (udp)
	HopLimit int      `json:"hop_limit,omitempty"`
	DF       bool     `json:"df,omitempty"`
	// Command of culvert is asked, with the address of ToName if there is one
	// (shows).
	Command []string `json:"command,omitempty"`
	// Program of others is run in From, with its arguments (program).
	Program []string `json:"program,omitempty"`
	// Script of the shell is run in From, a node of kind machine; it fails where a command of it
	// does (machine).
	Script string `json:"script,omitempty"`
	// Capture is a file in the directory of From, and Filter what tshark looks for in it
	// (captured).
	Capture string `json:"capture,omitempty"`
	Filter  string `json:"filter,omitempty"`
	// Frame are the layers of frames that are made by hand, outermost first, around data by
	// which they are found (frame). {NAME.ipv4} and {NAME.ipv6} are addresses. Next is the node
	// whose MAC they are for; those of a pod are for its own node's. NextDevice is its interface:
	// the first unless set.
	Frame      []map[string]any `json:"frame,omitempty"`
	Next       string           `json:"next,omitempty"`
	NextDevice string           `json:"next_device,omitempty"`
	// Suite are tests of Kubernetes' (suite).
	Suite *Suite `json:"suite,omitempty"`
	// Kubectl is what it has to do (kubectl).
	Kubectl *Command `json:"kubectl,omitempty"`
	// Limit is how long it may take: a minute unless set.
	Limit Duration `json:"limit,omitempty"`
	// Within repeats the check until it passes.
	Within Duration `json:"within,omitempty"`
	// Rounds is how often the check is made at most, for the median that Expect.LossFor limits.
	Rounds int `json:"rounds,omitempty"`

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

	// Listen is where the receiver is, unless it is at To: no file says it.
	Listen netip.AddrPort `json:"-"`
}

// LeastRounds are needed before a median says something.
const LeastRounds = 3

// Way is where a stream goes.
type Way struct {
	From   string     `json:"from"`
	At     string     `json:"at"`
	Source netip.Addr `json:"source,omitzero"`
	To     netip.Addr `json:"to"`
	Device string     `json:"device,omitempty"`
	Both   bool       `json:"both,omitempty"`

	// After is how long after the others the stream begins; it ends with them.
	After    Duration `json:"after,omitempty"`
	Interval Duration `json:"interval,omitempty"`
	DSCP     uint8    `json:"dscp,omitempty"`
	Size     int      `json:"size,omitempty"`
	Flows    int      `json:"flows,omitempty"`
	Class    string   `json:"class,omitempty"`
}

// Suite are those tests of e2e.test whose names match Focus and do not match Skip, at most
// Workers at a time. Why some are left out is Because.
type Suite struct {
	Focus   string `json:"focus"`
	Skip    string `json:"skip,omitempty"`
	Because string `json:"because,omitempty"`
	Workers int    `json:"workers"`
}

// Classes are those of all streams, the first one's first.
func (c *Check) Classes() (names []string) {
	for _, name := range append([]string{c.Class}, classesOf(c.Also)...) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func classesOf(list []Way) (names []string) {
	for _, w := range list {
		names = append(names, w.Class)
	}
	return names
}

// AllEvents are all that happens under load.
func (c *Check) AllEvents() []Event {
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
	MinLost int    `json:"min_lost,omitempty"` // this many at least have to be lost, and any number may unless max_lost is set (udp)
	// P99 is how long 99 % of the first stream may take at most (udp).
	P99 Duration `json:"p99,omitempty"`
	// Classes say what each class of streams has to come to (udp).
	Classes map[string]ClassExpect `json:"classes,omitempty"`
	// Settles is how long after the first packet that is lost the last one is at most, and that
	// the last second of the streams is without loss (udp).
	Settles Duration `json:"settles,omitempty"`
	// LossFor limits the median, over the check's rounds, of the time from the first packet that is
	// lost to the last one (udp). A host that stalls in one round does not decide.
	LossFor Duration `json:"loss_for,omitempty"`
	// ActsWithin limits the time from the first event that is no wait, to when engine or headend
	// have answered it (udp).
	ActsWithin Duration `json:"acts_within,omitempty"`
	// Busiest is how full the fullest of the links with kbit_s may be (udp).
	Busiest *BusiestExpect `json:"busiest,omitempty"`
	// AlsoWhole wants nothing of the streams in Also to be lost.
	AlsoWhole bool `json:"also_whole,omitempty"`
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
	// Usage wants the UPF to report to an SMF what the streams counted themselves.
	Usage *UsageExpect `json:"usage,omitempty"`
	// Client is the node or pod that the receiver sees connect (tcp).
	Client string `json:"client,omitempty"`
	// Pods is how many of those behind a Service get connections (spread).
	Pods int `json:"pods,omitempty"`
	// Code is CNI's of an error (cni_status); 0 is success.
	Code uint `json:"code,omitempty"`
	// Shows is a part of what a command shows (shows).
	Shows any `json:"shows,omitempty"`
	// Says are texts that a program or a script has to write (program, machine).
	Says []string `json:"says,omitempty"`
	// Reports of UPFs.
	Reports []ReportExpect `json:"reports,omitempty"`
	// Charged is what a core is to have in its records (charged).
	Charged *ChargedExpect `json:"charged,omitempty"`
}

// ClassExpect is of the streams of a class.
type ClassExpect struct {
	P99     Duration `json:"p99,omitempty"`     // 99 % take this at most
	MinP99  Duration `json:"min_p99,omitempty"` // and this at least: the slowest hundredth shows a full queue
	MaxLost int      `json:"max_lost,omitempty"`
	MinLost int      `json:"min_lost,omitempty"` // and any number may be lost
}

// BusiestExpect is a range, in percent of kbit_s. What queues drop does not count.
type BusiestExpect struct {
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max"`
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

// UsageExpect says whose usage: the check sends from the UE's side, and what Also sends is
// of others.
type UsageExpect struct {
	SMF      string `json:"smf"`
	Sessions string `json:"sessions"` // a group of the SMF's
	// BeforeQoS: what was sent counts, not what arrived.
	BeforeQoS bool `json:"before_qos,omitempty"`
}

// ChargedExpect says where the records of a session are, of the UE that the check sends from.
type ChargedExpect struct {
	UPF     string `json:"upf"`     // that has the session
	Node    string `json:"node"`    // that has the capture of N4
	Capture string `json:"capture"` // a file of it
	// End ends the session, when all is sent.
	End []Event `json:"end"`
	// Downlink is all that the SMF has measured.
	Downlink bool `json:"downlink,omitempty"`
	// CDR wants a charging data record of free5GC's CHF, too, of the subscriber with this IMSI.
	CDR string `json:"cdr,omitempty"`
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

// Or returns d, or the default where it is not set.
func (d Duration) Or(other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return time.Duration(d)
}
