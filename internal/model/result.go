package model

import (
	"fmt"
	"net/netip"
)

// Reason is how a journey ended (bpf/def/reason.h), in lower case.
type Reason string

// The reasons that the model arrives at.
const (
	Forwarded      Reason = "forwarded"
	Passed         Reason = "passed"
	SlowPath       Reason = "slow_path"
	Replied        Reason = "replied"
	SRDomainEdge   Reason = "sr_domain_edge"
	HopLimit       Reason = "hop_limit"
	SRHMalformed   Reason = "srh_malformed"
	SegmentsLeft   Reason = "segments_left"
	UpperLayer     Reason = "upper_layer"
	RoutingType    Reason = "routing_type"
	ExtensionChain Reason = "extension_chain"
	IPv6Malformed  Reason = "ipv6_malformed"
	IPv4Malformed  Reason = "ipv4_malformed"
	InnerMalformed Reason = "inner_malformed"
	ECN            Reason = "ecn"
	NoSegmentList  Reason = "no_segment_list"
	NoClassPolicy  Reason = "no_class_policy"
	Limited        Reason = "limited"
	UDPMalformed   Reason = "udp_malformed"
	GTPUVersion    Reason = "gtpu_version"
	GTPULength     Reason = "gtpu_length"
	GTPUExtension  Reason = "gtpu_extension"
	GTPUMessage    Reason = "gtpu_message"
	TEIDUnknown    Reason = "teid_unknown"
	EchoFromSelf   Reason = "echo_from_self"
	PDUType        Reason = "pdu_type"
	NoRoute        Reason = "no_route"
	TooBig         Reason = "too_big"
	Headroom       Reason = "headroom"
	NoNeighbour    Reason = "no_neighbour"
	NoPDR          Reason = "no_pdr"
	FARDrop        Reason = "far_drop"
	GateClosed     Reason = "gate_closed"
	BufferFull     Reason = "buffer_full"
	UESource       Reason = "ue_source"
	UEToUE         Reason = "ue_to_ue"
	OtherSlice     Reason = "other_slice"
	NoVPNRoute     Reason = "no_vpn_route"
	UEToCore       Reason = "ue_to_core"
	RateExceeded   Reason = "rate"
	SliceRate      Reason = "slice_rate"
	QuotaUsedUp    Reason = "quota"
	SlowPathSize   Reason = "slow_path_size"
	NoRole         Reason = "role"
	NoPeer         Reason = "peer"
	NotForHost     Reason = "host"
	Martian        Reason = "martian"
	Fragment       Reason = "fragment"
	NATProtocol    Reason = "nat_protocol"
	NATPorts       Reason = "nat_ports"
	NATNoMapping   Reason = "nat_no_mapping"
	NATBehind      Reason = "nat_behind"
	Turns          Reason = "turns"
	Tags           Reason = "tags"
)

// Drop says whether the frame ended there.
func (r Reason) Drop() bool {
	return r != Forwarded && r != Passed && r != SlowPath && r != Replied
}

// Result is the end of one frame's journey.
type Result struct {
	Reason Reason
	Out    []byte // the frame as it leaves; nil where it was dropped or taken over
	Egress int    // ifindex, where it was forwarded or replied, or leaves in fragments
	Punt   *Punt
	Copies []*Punt // duplicates for the daemon, before Punt
	Events []Event
	Counts Counts // what the journey added, outcomes included
}

// PuntKind says what the slow path is to do.
type PuntKind string

// The kinds of bpf/def/tables.h, enum punt_kind.
const (
	PuntReassemble      PuntKind = "reassemble"
	PuntFragment        PuntKind = "fragment"
	PuntICMP            PuntKind = "icmp"
	PuntErrorIndication PuntKind = "error_indication"
	PuntBuffer          PuntKind = "buffer"
	PuntDuplicate       PuntKind = "duplicate"
	PuntFlood           PuntKind = "flood"
	PuntSend            PuntKind = "send"
	PuntPathMTU         PuntKind = "path_mtu"
	PuntFragmentOuter   PuntKind = "fragment_outer"
)

// puntData is how much of a frame a record holds.
const puntData = 2048

// Punt is a record for the slow path.
type Punt struct {
	Kind PuntKind
	Type uint8 // ICMPv6's numbers, also where the packet is IPv4
	Code uint8
	Info uint32 // ICMP: pointer or MTU; fragment: MTU; Error Indication: TEID; path MTU: whose error it is
	L3   int    // where the IP header that is meant starts in Data
	// Session and Rule are what buffer and duplicate are about.
	Session uint64
	Rule    uint16
	// Rewritten says that the packet was for this node again: Data is not as it arrived.
	Rewritten bool
	Data      []byte
}

// Event is what the data path reports to the daemon about a rule.
type Event struct {
	Session uint64    `json:"session"`
	Rule    uint16    `json:"rule"`
	Kind    EventKind `json:"kind"`
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds.
const (
	EventNotify EventKind = "notify" // notify_at is reached
	EventStop   EventKind = "stop"   // a packet was dropped because of stop_at
)

// Counter counts packets and bytes.
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Counts are counters by name: see the functions below.
type Counts map[string]Counter

func (c Counts) add(name string, bytes int) {
	v := c[name]
	c[name] = Counter{v.Packets + 1, v.Bytes + uint64(bytes)}
}

// Add sums up.
func (c Counts) Add(more Counts) {
	for name, v := range more {
		c[name] = Counter{c[name].Packets + v.Packets, c[name].Bytes + v.Bytes}
	}
}

// OutcomeName is the counter of a reason.
func OutcomeName(r Reason) string { return "outcome " + string(r) }

// SIDName is the counter of a local SID.
func SIDName(sid netip.Prefix) string { return "sid " + sid.Masked().String() }

// ListName is the counter of a policy's segment list.
func ListName(policy string, list int) string { return fmt.Sprintf("list %s %d", policy, list) }

// ClassName is the counter of a traffic class.
func ClassName(class string) string { return "class " + class }

// ReceivedName and SentName are the counters of a tunnel.
func ReceivedName(tunnel string) string { return "received " + tunnel }

// RefusedName is what a rule's gates and rates refused.
func RefusedName(session uint64, rule uint16) string {
	return fmt.Sprintf("refused %d/%d", session, rule)
}

// RuleName is the volume of a session's rule.
func RuleName(session uint64, rule uint16) string { return fmt.Sprintf("rule %d/%d", session, rule) }

// SliceName is the counter of a slice in one direction.
func SliceName(slice uint32, d Direction) string { return fmt.Sprintf("slice %d %s", slice, d) }

// SentName is the counter of what went into a tunnel.
func SentName(tunnel string) string { return "sent " + tunnel }
