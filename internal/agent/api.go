package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf/path"
	"github.com/culvert-net/culvert/internal/upf/pool"
	"github.com/culvert-net/culvert/srv6"
)

// Types of the packages below, for callers that import no adapter.
type (
	Counter           = counter.Counter // which bytes: docs/reference/semantics.md section 1
	PoolStatus        = pool.Usage
	PeerStatus        = path.Peer
	AssociationStatus = pfcp.Association
	BGPPeerStatus     = bgp.PeerStatus
	LinkState         = netdev.LinkState
)

// Status is the daemon at a glance.
type Status struct {
	Version    string               `json:"version"`
	Started    time.Time            `json:"started"`
	DataPath   string               `json:"data_path"` // hash of the loaded build
	PinPath    string               `json:"pin_path"`
	Interfaces []InterfaceStatus    `json:"interfaces"`
	Resources  map[desired.Kind]int `json:"resources"`
	Outcomes   []Outcome            `json:"outcomes"`
	Injected   uint64               `json:"injected"`          // frames that this process sent through the data path, which have outcomes, too
	UPF        *UPFStatus           `json:"upf,omitempty"`     // of a node that is one
	Overlay    *OverlayStatus       `json:"overlay,omitempty"` // of a member of a cluster
	Spread     *SpreadStatus        `json:"spread,omitempty"`  // where packets are spread over CPUs
	// Problems keep the data path from the desired state, or from outliving the daemon.
	Problems []string `json:"problems,omitempty"`
}

// UPFStatus is a user plane function at a glance.
type UPFStatus struct {
	N4             []netip.Addr `json:"n4,omitempty"` // where SMFs reach it
	NodeID         string       `json:"node_id"`
	Sessions       int          `json:"sessions"`
	MaxSessions    int          `json:"max_sessions"`
	Associations   int          `json:"associations"`
	AssociationsUp int          `json:"associations_up"` // those whose SMF answers heartbeats
	Buffered       int          `json:"buffered"`        // packets that are kept for idle UEs now
	Slices         []string     `json:"slices,omitempty"`
	Pools          []PoolStatus `json:"pools,omitempty"`
	Peers          []PeerStatus `json:"peers,omitempty"`
	// Journal is why the session journal takes no sessions: its disk is full, or
	// fails. It is empty while the journal takes some.
	Journal string `json:"journal,omitempty"`
	// N4Fast is what became of PFCP messages where the data path answers some.
	N4Fast *n4.Counts `json:"n4_fast,omitempty"`
}

// SliceStatus is a slice with what its sessions sent and got.
type SliceStatus struct {
	slice.Slice
	Origin   desired.Origin `json:"origin"`
	Sessions int            `json:"sessions"`
	Uplink   Counter        `json:"uplink"`
	Downlink Counter        `json:"downlink"`
	// Imported is the number of routes of its VPN, which its UEs' packets leave by.
	Imported int `json:"imported_routes,omitempty"`
}

// SessionFilter says which sessions are meant: those for which everything that
// is set holds.
type SessionFilter struct {
	SEID        *uint64 // one, whole
	UE          netip.Addr
	Slice       string
	Association string
	TEID        uint32 // ours
	Limit       int    // how many at most; 0: 1000
	After       uint64 // only SEIDs above it
}

// SessionStatus is a session.
type SessionStatus struct {
	SEID        uint64         `json:"seid,string"` // ours
	CPSEID      uint64         `json:"cp_seid,string"`
	Association string         `json:"association"` // Node ID
	Slice       string         `json:"slice,omitempty"`
	SliceNote   string         `json:"slice_note,omitempty"` // why none, or why that one
	DNN         string         `json:"dnn,omitempty"`
	UE          []netip.Prefix `json:"ue,omitempty"`
	TEIDs       []uint32       `json:"teids,omitempty"` // ours
	Uplink      Counter        `json:"uplink"`
	Downlink    Counter        `json:"downlink"`
	Buffered    int            `json:"buffered"`    // packets
	BufferFull  int            `json:"buffer_full"` // packets that found the buffer full, before the data path dropped the others
	// Of one that was asked for by its SEID:
	PDRs  []PDRStatus     `json:"pdrs,omitempty"`
	URRs  []URRStatus     `json:"urrs,omitempty"`
	Rules json.RawMessage `json:"rules,omitempty"` // the session as the SMF said it
}

// PDRStatus is what a PDR forwarded.
type PDRStatus struct {
	PDR     uint16  `json:"pdr"`
	Counter Counter `json:"counter"`
	Words   string  `json:"words,omitempty"` // the rule as a sentence, for people
	// Policy is the SR policy that the packets take; nil: none.
	Policy *PDRPolicy `json:"policy,omitempty"`
}

// PDRPolicy is an SR policy as packets of a PDR meet it.
type PDRPolicy struct {
	Name     string     `json:"name"`            // empty: the class is strict and has none, so that they are dropped
	Class    string     `json:"class,omitempty"` // traffic class of the packets; empty: none
	Color    uint32     `json:"color,omitempty"`
	Endpoint netip.Addr `json:"endpoint,omitzero"`
	// Verdict is on the candidate path that the policy has.
	Verdict srpolicy.Verdict `json:"verdict"`
}

// URRStatus is what a URR has counted since its last report.
type URRStatus struct {
	URR       uint32 `json:"urr"`
	Sequence  uint32 `json:"sequence"` // UR-SEQN of the next report
	Uplink    uint64 `json:"uplink"`   // octets
	Downlink  uint64 `json:"downlink"`
	Exhausted bool   `json:"exhausted"` // its quota is used up
}

// InterfaceStatus is an interface of the configuration, as it is.
type InterfaceStatus struct {
	config.Interface
	Ifindex  int    `json:"ifindex"`
	Attached string `json:"attached"` // native, generic, or why not
	MTU      int    `json:"mtu"`
	Lost     uint64 `json:"lost"` // frames that were forwarded there and that it did not send
	// Closed is native or generic where the data path is not on the interface, and the
	// kernel gets only what host lists; otherwise it is empty.
	Closed string `json:"closed,omitempty"`
	// Link is up, down or no_carrier; empty: there is no such interface.
	Link LinkState `json:"link,omitempty"`
}

// Outcome is how packets' journeys ended (bpf/def/reason.h), or RateLimited.
type Outcome struct {
	Reason  string `json:"reason"`
	Drop    bool   `json:"drop"`
	Text    string `json:"text"`
	Counter `json:",inline"`
}

// SIDStatus is a local SID with its counter.
type SIDStatus struct {
	srv6.LocalSID
	Slice   string         `json:"slice,omitempty"` // whose sessions receive there
	Origin  desired.Origin `json:"origin"`
	Counter Counter        `json:"counter"`
	NextHop string         `json:"next_hop_state,omitempty"` // resolved adjacency, or why not
}

// PolicyStatus is a policy as its packets meet it: SegmentLists are those of the
// active candidate path, with a counter of each. Counter is that of all lists that the
// policy has or had.
type PolicyStatus struct {
	srpolicy.Policy
	Origin  desired.Origin `json:"origin"`
	Counter Counter        `json:"counter"`
	Lists   []Counter      `json:"lists"`
	// Down says of each list why packets do not take it; empty: they do. Nil: all are up.
	Down []string `json:"down,omitempty"`
	// Slow says of each list why packets do not take it for its delay, though they could; empty:
	// they do, or it is down. Nil: none is slow.
	Slow  []string           `json:"slow,omitempty"`
	Paths []srpolicy.Verdict `json:"paths"` // best first
	// Delays are of each list; nil: none is probed.
	Delays []Delay `json:"delays,omitempty"`
	// Protection are the lists that take over at once where none of SegmentLists is up.
	Protection []ProtectionList `json:"protection,omitempty"`
	// PathMTUs are of each list; nil: all have the MTU of the links.
	PathMTUs []PathMTU `json:"path_mtus,omitempty"`
}

// Whole is the policy with the lists that it holds ready.
func (s *PolicyStatus) Whole() *srpolicy.Policy {
	p := s.Policy
	p.Protection = nil
	for _, l := range s.Protection {
		p.Protection = append(p.Protection, l.SegmentList)
	}
	return &p
}

// PathMTU is what a router said of a path, which is less than the MTU of its first link.
type PathMTU struct {
	MTU uint32 `json:"mtu"` // of layer 3, with the outer header, in octets; 0: none has said so
	Age uint32 `json:"age_seconds"`
}

// ProtectionList is a list that the data path holds ready.
type ProtectionList struct {
	srpolicy.SegmentList
	Counter Counter `json:"counter"`
	Down    string  `json:"down,omitempty"` // why packets could not take it; empty: they could
	Slow    string  `json:"slow,omitempty"` // why they would not for its delay
	Delay   Delay   `json:"delay"`
	PathMTU PathMTU `json:"path_mtu,omitzero"`
}

// Delay is of the latest round trips of a list's probes, in microseconds: the list's way and the
// way back. 0: none has returned.
type Delay struct {
	Minimum uint64 `json:"minimum"`
	Mean    uint64 `json:"mean"`
	P99     uint64 `json:"p99"`
}

// DownAt returns why packets cannot take a list now; empty: they can.
func (s PolicyStatus) DownAt(list int) string { return srpolicy.Policy{Down: s.Down}.DownAt(list) }

// SlowAt returns why packets do not take a list for its delay; empty: they do, or it is down.
func (s PolicyStatus) SlowAt(list int) string { return srpolicy.Policy{Slow: s.Slow}.SlowAt(list) }

// CandidatePathStatus is a candidate path, and what became of it.
type CandidatePathStatus struct {
	srpolicy.CandidatePath
	Origin  desired.Origin   `json:"origin"`
	Verdict srpolicy.Verdict `json:"verdict"`
}

// SteeringStatus is a steering entry.
type SteeringStatus struct {
	srpolicy.Steering
	Origin desired.Origin `json:"origin"`
	VPN    string         `json:"vpn,omitempty"` // the slice of whose VPN it is
	// Problem says why packets do not take it; empty: they do.
	Problem string `json:"problem,omitempty"`
}

// ClassStatus is a traffic class with what it carried.
type ClassStatus struct {
	class.Class
	Origin   desired.Origin `json:"origin"`
	Counter  Counter        `json:"counter"`
	Policies []string       `json:"policies"` // of its color
	// Without are the endpoints of its destinations to which none of these is valid: there
	// packets take best effort or, where the class is strict, are dropped.
	Without []netip.Addr `json:"without"`
	// Problem says so too, and for which destinations the policies end at the wrong SID.
	Problem string `json:"problem,omitempty"`
}

// TunnelStatus is a GTP-U tunnel with its counters.
type TunnelStatus struct {
	gtpu.Tunnel
	Origin   desired.Origin `json:"origin"`
	Received Counter        `json:"received"`
	Sent     Counter        `json:"sent"`
	PathMTU  PathMTU        `json:"path_mtu,omitzero"` // of the way to the remote end
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

// TraceFilter says which packets are traced: those for which everything that
// is set holds. The data path matches all but SID and TEID.
type TraceFilter struct {
	Source      netip.Prefix `json:"source,omitzero"`      // of the received outer header
	Destination netip.Prefix `json:"destination,omitzero"` // of the received outer header
	Interface   string       `json:"interface,omitempty"`  // received on
	Drops       bool         `json:"drops,omitempty"`      // only packets that were dropped
	SID         netip.Prefix `json:"sid,omitzero"`         // the local SID met is in this prefix
	TEID        *uint32      `json:"teid,omitempty"`       // in a GTP-U header, received or sent
	// UE, User and SEID choose packets that sessions handled. A packet that no session has is that of
	// a UE with an address in one of its headers, outer or inner.
	UE   netip.Addr `json:"ue,omitzero"`           // an address of the session, or in a framed route
	User string     `json:"user,omitempty"`        // the identity that the SMF gave: imsi-001010000000001
	SEID *uint64    `json:"seid,string,omitempty"` // of this node
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
	// Session is the SEID of the session that handled it, by its rule PDR.
	Session uint64 `json:"session,string,omitempty"`
	PDR     uint16 `json:"pdr,omitempty"`
}

// LocatorStatus is a locator and how many SIDs are in it.
type LocatorStatus struct {
	config.Locator
	Origin desired.Origin `json:"origin"`
	SIDs   int            `json:"sids"`
}

// Errors that a caller may want to decide by, beside those of packages desired and
// pods; the messages say what to do.
var (
	// ErrBusy: another trace runs, or other packets are being explained.
	ErrBusy = errors.New("busy")
	// ErrNoFlows: the node records no flows.
	ErrNoFlows = errors.New("this node records no flows: set overlay.flows.enabled: true in its configuration")
	// ErrNotBGP: the node speaks no BGP.
	ErrNotBGP = errors.New("this node speaks no BGP: its configuration has no bgp.asn")
	// ErrNoAnnouncements: the configuration announces nothing.
	ErrNoAnnouncements = errors.New("this node announces no UE prefixes: its configuration has no upf.announce")
	// ErrNotUPF: the node is no user plane function.
	ErrNotUPF = errors.New("this node is no user plane function: its configuration has no upf.n4")
)

// PodTraffic is what becomes of pods' packets.
type PodTraffic interface {
	// ExplainPolicy says which NetworkPolicies and rules decide about packets between two
	// parties: isolation.ErrOff on a node that enforces none.
	ExplainPolicy(isolation.Ask) ([]netpol.Verdict, error)
	// Flows calls f for each flow that the filter means, the oldest first, and goes on with
	// those that change if the filter says so, until the context ends (which is no error) or
	// f fails. ErrNoFlows: the node records none.
	Flows(ctx context.Context, filter flow.Filter, f func(flow.Flow) error) error
}

// Service is what *Agent does for the management API. All methods may be
// called at any time, from any goroutine.
type Service interface {
	Status() (Status, error)
	Interfaces() ([]InterfaceStatus, error)
	Locators() ([]LocatorStatus, error)
	SIDs() ([]SIDStatus, error)
	Policies() ([]PolicyStatus, error)
	Steerings() ([]SteeringStatus, error)
	Classes() ([]ClassStatus, error)
	CandidatePaths() ([]CandidatePathStatus, error)
	Tunnels() ([]TunnelStatus, error)
	Adjacencies() ([]AdjacencyStatus, error)
	Outcomes() ([]Outcome, error)
	Slices() ([]SliceStatus, error)
	// BGPPeers are of a node that speaks BGP: ErrNotBGP on others.
	BGPPeers() ([]BGPPeerStatus, error)
	// Announcements are of a node that announces UE prefixes: ErrNoAnnouncements on others.
	Announcements() ([]AnnouncementStatus, error)
	NATs(of string) ([]NATStatus, error)
	// Nodes are the others of the cluster: ErrNoCluster on a node that is in none.
	Nodes() ([]NodeStatus, error)
	// Associations and Sessions are of a node that is a user plane function:
	// ErrNotUPF on others. total is how many sessions the filter means.
	Associations() ([]AssociationStatus, error)
	Sessions(SessionFilter) (list []SessionStatus, total int, err error)

	PodTraffic() PodTraffic

	// Pods are those on this node.
	Pods() ([]pods.Status, error)
	// What the CNI plugin asks: see the methods of Agent.
	AddPod(pods.Attachment, pods.Pod) (pods.Network, error)
	DeletePod(pods.Attachment) error
	CheckPod(pods.Attachment, pods.Pod) (differences []string, err error)
	RetainPods(network string, valid []pods.Attachment) (removed []pods.Attachment, err error)
	PodReadiness() (pods.Readiness, error)

	// Running is the whole running configuration, of both origins.
	Running() *config.Config
	// Apply makes the resources of OriginFile those of the given
	// configuration: all of it, or nothing. With dryRun it only says what
	// would change.
	Apply(ctx context.Context, c *config.Config, dryRun bool) ([]desired.Change, error)
	// Add puts every resource of the fragment, as OriginAPI: new ones are
	// added, those that the API added before are updated.
	Add(ctx context.Context, fragment *config.Config) ([]desired.Change, error)
	// Delete removes resources of OriginAPI.
	Delete(ctx context.Context, refs []desired.Ref) ([]desired.Change, error)
	// Trace calls f for each packet that matches until the context ends (which
	// is no error) or f fails. There is one trace at a time.
	Trace(ctx context.Context, filter TraceFilter, f func(TraceEvent) error) error
	// Explain says what would become of frames that arrived by an interface now, one after
	// the other. Nothing is sent, counted or charged.
	Explain(name string, frames [][]byte) ([]TraceEvent, error)
}
