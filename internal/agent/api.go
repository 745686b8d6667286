// Package agent keeps the data path in the desired state: what the
// configuration file and the management API ask for, and what the kernel's
// routes and neighbours say.
package agent

import (
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Kind names a sort of resource, as the configuration's lists do.
type Kind string

// The kinds, and what Key each is known by.
const (
	KindInterface Kind = "interface" // name
	KindLocator   Kind = "locator"   // name
	KindSID       Kind = "sid"       // prefix
	KindPolicy    Kind = "policy"    // name
	KindSteering  Kind = "steering"  // prefix, or interface[.vlan[.vlan]]
	KindTunnel    Kind = "tunnel"    // name
	KindSettings  Kind = "settings"  // encapsulation, domain, gtpu: one of each
)

// Origin says who asked for a resource. Applying a file leaves what came
// through the API alone, and the reverse.
type Origin string

const (
	OriginFile Origin = "file"
	OriginAPI  Origin = "api"
)

// Op is what a Change does.
type Op string

const (
	OpAdd    Op = "add"
	OpUpdate Op = "update"
	OpDelete Op = "delete"
)

// Change is one difference between the running and the desired state.
type Change struct {
	Op     Op     `json:"op"`
	Kind   Kind   `json:"kind"`
	Key    string `json:"key"`
	Detail string `json:"detail,omitempty"`
}

// Counter counts packets and bytes (which bytes: docs/semantics.md section 1).
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Status is the daemon at a glance.
type Status struct {
	Version    string            `json:"version"`
	Started    time.Time         `json:"started"`
	DataPath   string            `json:"data_path"` // hash of the loaded build
	PinPath    string            `json:"pin_path"`
	Interfaces []InterfaceStatus `json:"interfaces"`
	Resources  map[Kind]int      `json:"resources"`
	Outcomes   []Outcome         `json:"outcomes"`
}

// InterfaceStatus is an interface of the configuration, as it is.
type InterfaceStatus struct {
	config.Interface
	Ifindex  int    `json:"ifindex"`
	Attached string `json:"attached"` // native, generic, or why not
	MTU      int    `json:"mtu"`
}

// Outcome is how packets' journeys ended (bpf/def/reason.h).
type Outcome struct {
	Reason  string `json:"reason"`
	Drop    bool   `json:"drop"`
	Text    string `json:"text"`
	Counter `json:",inline"`
}

// SIDStatus is a local SID with its counter.
type SIDStatus struct {
	srv6.LocalSID
	Origin  Origin  `json:"origin"`
	Counter Counter `json:"counter"`
	NextHop string  `json:"next_hop_state,omitempty"` // resolved adjacency, or why not
}

// PolicyStatus is a policy with its counter (the sum of its lists') and each list's.
type PolicyStatus struct {
	srpolicy.Policy
	Origin  Origin    `json:"origin"`
	Counter Counter   `json:"counter"`
	Lists   []Counter `json:"lists"`
}

// SteeringStatus is a steering entry.
type SteeringStatus struct {
	srpolicy.Steering
	Origin Origin `json:"origin"`
}

// TunnelStatus is a GTP-U tunnel with its counters.
type TunnelStatus struct {
	gtpu.Tunnel
	Origin   Origin  `json:"origin"`
	Received Counter `json:"received"`
	Sent     Counter `json:"sent"`
}

// AdjacencyStatus is a next hop that packets leave by.
type AdjacencyStatus struct {
	Key       string `json:"key"`
	State     string `json:"state"` // ready, or why not
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
	VLANs     []int  `json:"vlans,omitempty"`
	MTU       int    `json:"mtu,omitempty"`
}

// Ref names one resource.
type Ref struct {
	Kind Kind   `json:"kind"`
	Key  string `json:"key"`
}

// TraceFilter says which packets are traced: those for which everything that
// is set holds. The data path matches all but SID and TEID.
type TraceFilter struct {
	Source      netip.Prefix `json:"source,omitzero"`      // of the received outer header
	Destination netip.Prefix `json:"destination,omitzero"` // of the received outer header
	Interface   string       `json:"interface,omitempty"`  // received on
	Drops       bool         `json:"drops,omitempty"`      // only packets that were dropped
	SID         netip.Prefix `json:"sid,omitzero"`         // the local SID met is in this prefix
	TEID        *uint32      `json:"teid,omitempty"`       // in a GTP-U header, received or sent
}

// TraceEvent is one packet's journey. What it did not meet is left empty.
type TraceEvent struct {
	Time      time.Time    `json:"time"`
	Interface string       `json:"interface"`
	SID       netip.Prefix `json:"sid,omitzero"`
	// Target is what steering or a tunnel sent it to: pass, policy, tunnel or
	// H.M.GTP4.D.
	Target string `json:"target,omitempty"`
	Tunnel string `json:"tunnel,omitempty"`
	Policy string `json:"policy,omitempty"`
	// SegmentList is the one that was taken, first segment first.
	SegmentList []netip.Addr `json:"segment_list,omitempty"`
	Adjacency   string       `json:"adjacency,omitempty"` // as AdjacencyStatus.Key
	Egress      string       `json:"egress,omitempty"`    // interface
	Reason      string       `json:"reason"`              // as Outcome.Reason
	Drop        bool         `json:"drop"`
	Text        string       `json:"text"`    // as Outcome.Text
	Verdict     string       `json:"verdict"` // XDP action
	// In and Out are the first bytes of the frame as received and as sent, of
	// InLength and OutLength bytes.
	InLength  int    `json:"in_length"`
	OutLength int    `json:"out_length,omitempty"`
	In        []byte `json:"in"`
	Out       []byte `json:"out,omitempty"`
}
