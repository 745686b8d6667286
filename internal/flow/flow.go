// Package flow folds records of packets into flows between pods, and counts these by workload.
// It is bounded in all it keeps.
//
//  1. A Table takes records (Fold), each in the order in which the data path saw them.
//  2. Settle, now and then, counts what has happened and forgets what is old.
//  3. List and Pairs say what there is.
//
// A Table has a lock of its own, which it holds while it asks its Directory.
package flow

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Record is of one packet, or of some that a stack has put together.
type Record struct {
	Time                time.Time
	Source, Destination netip.AddrPort // not valid: the packet was not read
	Protocol            uint8
	Flags               uint8 // of TCP; of a chosen ICMP Echo Reply: ACK
	Tenant              uint8
	Where               Where
	Pod                 int // ifindex of the veth of the pod whose record it is; 0: the node's
	// Packets and Octets are those of the record itself, which stands for Sampling times as
	// many.
	Packets, Octets uint64
	Sampling        uint32
	Dropped         bool
	Reason          string // why the journey ended
	Policy          string // SR policy by which it left
	List            int    // which of its lists
	Class           string // traffic class
}

// Where is where the data path saw a packet.
type Where uint8

// The places.
const (
	FromPod    Where = iota // at a pod's veth
	FromKernel              // the kernel's own, or one that it has translated
	FromTunnel              // at an uplink
	Forwarded               // where the kernel forwards: dropped there
)

// End is one end of a flow. Pod, Workload and Node are empty as far as they are not known.
type End struct {
	Pod       string     `json:"pod,omitempty"` // namespace/name
	Namespace string     `json:"namespace,omitempty"`
	Workload  string     `json:"workload,omitempty"` // kind/name of what the pod belongs to
	Node      string     `json:"node,omitempty"`     // that has the pod, or whose address it is
	Address   netip.Addr `json:"address,omitzero"`
	Port      uint16     `json:"port,omitempty"`
	// Local: a pod of this node.
	Local bool `json:"-"`
}

// IsKnown says whether an end is a pod's or a node's.
func (e End) IsKnown() bool { return e.Pod != "" || e.Node != "" }

// String is the end for people.
func (e End) String() string {
	name := e.Pod
	if name == "" && e.Node != "" && e.Workload == "" {
		name = "node " + e.Node
	}
	if name == "" && e.Address.IsValid() {
		name = e.Address.String()
		if e.Address.Is6() && e.Port != 0 {
			name = "[" + name + "]"
		}
	}
	if e.Port != 0 {
		name += ":" + strconv.Itoa(int(e.Port))
	}
	return cmp.Or(name, "-")
}

// The verdicts.
const (
	Allowed = "allowed"
	Dropped = "dropped"
)

// Where a node sees a flow from.
const (
	AtSource      = "source"
	AtDestination = "destination"
)

// The paths of flows, besides that into a policy.
const (
	PathLocal  = "local"
	PathKernel = "kernel"
	PathTunnel = "tunnel"
	PathPolicy = "policy"
)

// Flow is packets between two ends, and their answers. Numbers of packets are estimates where
// Sampling is more than 1.
type Flow struct {
	ID          uint64 `json:"id,string"` // of this agent's
	Source      End    `json:"source"`
	Destination End    `json:"destination"`
	Service     string `json:"service,omitempty"` // address and port that the source sent to
	Protocol    string `json:"protocol"`
	Tenant      uint8  `json:"tenant,omitempty"`
	Verdict     string `json:"verdict"`          // allowed, or dropped: the last packet
	Reason      string `json:"reason,omitempty"` // of dropped packets
	// NetworkPolicies are those that isolate the pod for the direction, and none of which
	// allows it.
	NetworkPolicies []string `json:"network_policies,omitempty"`
	// Observed is source where the flow's source is a pod of this node, and else destination.
	Observed string `json:"observed"`
	// Path is local, kernel, tunnel (it came by one) or policy: then SRPolicy has the name, and
	// SegmentList says which.
	Path        string    `json:"path,omitempty"`
	SRPolicy    string    `json:"sr_policy,omitempty"`
	SegmentList int       `json:"segment_list,omitempty"` // 1 is the first
	Class       string    `json:"class,omitempty"`
	Packets     uint64    `json:"packets"`
	Octets      uint64    `json:"octets"` // of layer 3
	Answers     uint64    `json:"answers"`
	AnswerBytes uint64    `json:"answer_octets"`
	Drops       uint64    `json:"drops,omitempty"`
	Sampling    uint32    `json:"sampling"`
	Handshake   uint64    `json:"handshake_us,omitempty"` // from SYN to SYN/ACK
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	Closed      bool      `json:"closed,omitempty"` // a FIN or RST was seen
}

// Filter says which flows are meant: those for which everything that is set holds.
type Filter struct {
	Since     time.Duration `json:"since,omitempty"`     // that had a packet in this time
	Follow    bool          `json:"follow,omitempty"`    // and go on
	Pod       string        `json:"pod,omitempty"`       // namespace/name of either end
	Namespace string        `json:"namespace,omitempty"` // of either end
	Verdict   string        `json:"verdict,omitempty"`
	Port      uint16        `json:"port,omitempty"` // of the destination, or of the Service
}

// Matches says whether a flow is meant. Since does not count.
func (f Filter) Matches(v *Flow) bool {
	switch {
	case f.Pod != "" && v.Source.Pod != f.Pod && v.Destination.Pod != f.Pod:
	case f.Namespace != "" && v.Source.Namespace != f.Namespace && v.Destination.Namespace != f.Namespace:
	case f.Verdict != "" && v.Verdict != f.Verdict:
	case f.Port != 0 && v.Destination.Port != f.Port && !strings.HasSuffix(v.Service, ":"+strconv.Itoa(int(f.Port))):
	default:
		return true
	}
	return false
}

// protocols that have names.
var protocols = map[uint8]string{1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}

func protocolName(n uint8) string {
	if name := protocols[n]; name != "" || n == 0 {
		return name
	}
	return strconv.Itoa(int(n))
}

const tcp = 6

// Flags of TCP.
const (
	fin = 1
	syn = 2
	rst = 4
	ack = 16
)
