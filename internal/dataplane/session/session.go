package session

import (
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
)

// Session is one PFCP session as the data path handles it. The caller has
// resolved everything that its rules refer to.
type Session struct {
	// ID identifies the session. An Ethernet session needs an ID that no session
	// has had before: the data path remembers hosts by it.
	ID    uint64
	Rules []Rule
	// Meters are shared by several rules, which name them by their index here.
	Meters []Meter
	// Quotas are those of the rules that share some.
	Quotas []Quota
}

// Direction of a rule's packets.
type Direction uint8

// The directions.
const (
	Uplink   Direction = iota // from the UE
	Downlink                  // to the UE
)

// Rule is one PDR with everything that is done to its packets. Of several that
// match a packet the one with the lowest Precedence counts, of equals the one
// with the lowest ID.
type Rule struct {
	ID         uint16
	Precedence uint32
	Direction  Direction

	// Ethernet: T-PDUs are frames. This holds for all rules of a session, or for
	// none.
	Ethernet bool
	// TEID: packets arrive in G-PDUs with it. 0: they arrive without GTP-U; those
	// of an Ethernet session arrive on Link.
	TEID uint32
	Link Link
	// Sources apply to a rule with a TEID: the T-PDU's source must be in one of
	// them. None: any source. One IPv4 address and one IPv6 /64 are checked
	// without a lookup, more need filters.
	Sources []netip.Prefix
	// AtSID has the rule apply to packets at a SID too.
	AtSID AtSID
	// Destinations apply to a rule without a TEID: IPv4 /32, IPv6 /64 and framed
	// routes. Group is that of their UE, for packets from UEs. All rules with a
	// destination have the same one.
	Destinations []netip.Prefix
	Group        Group
	Filters      []Filter // any of them; none: every packet
	QFIs         uint64   // bit q: QFI q; 0: any

	Action Action
	// Duplicate hands a copy of each forwarded packet to the daemon.
	Duplicate bool
	Forward   Forwarding
	// QFI, RQI and Container are of the PDU Session Container that is sent.
	QFI       uint8
	RQI       bool
	Container Container

	// Rate is this rule's own limit in kbit/s; 0: none. Meters are those of
	// Session.Meters that it shares.
	Rate   uint64
	Meters []int
	RuleLimits
}

// AtSID says which packets at the SIDs of a slice a rule applies to: those whose
// argument names its TEID and, where the argument names nothing, those from the UEs
// (uplink) or to them (downlink), whatever their QFI would be. No other session has
// them. The zero value: none.
type AtSID struct {
	Slice uint32
	UEs   []netip.Prefix // IPv4 /32, IPv6 /64; none in an Ethernet session
}

// RuleLimits are volumes in octets, counted as RuleUsage counts. 0: no limit. The
// data path rounds them up to 256 octets.
type RuleLimits struct {
	// At NotifyAt the data path sends the daemon an event, once. From StopAt on it drops
	// packets.
	NotifyAt, StopAt uint64
	// Shares: StopAt, rounded down, is the end of the rule's share of the session's quotas. From
	// there on it drops packets when what all rules of a quota counted is at its end.
	Shares bool
	// RefusedNotifyAt is NotifyAt for the refused volume. The event may come
	// earlier.
	RefusedNotifyAt uint64
}

// Link is where an Ethernet session's data network is.
type Link = ethernet.Link

// Frames is PDR_FRAMES (bpf/def/tables.h): T-PDUs of the entry are frames.
const Frames = 0x80

// Container is the kind of PDU Session Container in sent G-PDUs (TS 38.415).
type Container uint8

// The kinds.
const (
	ContainerNone Container = iota
	ContainerDownlink
	ContainerUplink
)

// Action is what the data path does with a rule's packets.
type Action uint8

// The actions.
const (
	ActionDrop    Action = iota // and count
	ActionGate                  // drop: the gate is closed
	ActionForward               // as Forwarding says
	ActionBuffer                // hand up to the daemon, which keeps them
	ActionFull                  // drop: the daemon has no room for more
	// ActionHold is ActionBuffer for packets that arrive, and ActionForward for
	// packets that the daemon kept and sends in again (InjectKept).
	ActionHold
)

// forwards says that Forward counts.
func (a Action) forwards() bool { return a == ActionForward || a == ActionHold }

// Filter is an SDF filter, seen from the UE. Prefixes that are not valid match
// any address; ports from 0 to 65535 any packet, with ports or without.
type Filter struct {
	Remote, Local           netip.Prefix
	AnyProtocol             bool
	Protocol                uint8
	RemotePorts, LocalPorts [2]uint16 // inclusive
	ToS, ToSMask            uint8     // mask 0: any
	HasFlowLabel            bool
	FlowLabel               uint32
	HasSPI                  bool
	SPI                     uint32
	Frame                   *FrameFilter // of rules of Ethernet sessions
}

// FrameFilter is an Ethernet packet filter. Addresses and types of 0 match any.
type FrameFilter struct {
	Source, Destination     [6]byte
	SourceTo, DestinationTo [6]byte // the last of a range; 0: of one address
	EtherType               uint16
	CTag, STag              *uint16 // VLAN ids
	// IP: the rest of the Filter is about the packet in the frame, and there is
	// one.
	IP bool
}

// Meter is a token bucket that several rules share, of octets or of packets.
type Meter struct {
	Rate    uint64 // kbit/s; 0: Packets in each Period
	Packets uint16
	Period  time.Duration
}

// Forwarding is where a rule sends packets. Equal forwardings of many sessions
// share one entry.
type Forwarding struct {
	Kind ForwardingKind
	// Table is the kernel's routing table (ForwardTable); 0: main.
	Table uint32
	// Internal lets packets of a UE reach other UEs, addresses of this node
	// and the protected prefixes (ForwardTable, ForwardVPN).
	Internal bool
	// Group is that of the UE whose packets these are (ForwardTable, ForwardVPN): they may
	// reach the UEs with the same one.
	Group Group
	// VPN is the number of the steering table with a VPN's routes (ForwardVPN).
	VPN uint8
	// Remote and Source are outer addresses; Source unset: the node's own of
	// that family. TEID is the remote's.
	Remote, Source netip.Addr
	TEID           uint32
	// Control says that Remote is a control plane (ForwardGTPU): where only the kernel
	// reaches it, packets are handed up to be sent.
	Control bool
	// ArgsOffset is where Args.Mob.Session begins in the last segment by SRv6, in bits:
	// TEID and QFI go there. 0: nowhere. Frames of Ethernet sessions need it.
	ArgsOffset uint8
	Flow       class.SessionFlow // ForwardPolicy: its policy, or that of its class
	Link       Link              // ForwardLink
	// ToS of the outer header where ToSMask says so; other bits are the inner
	// packet's.
	ToS, ToSMask uint8
	// Slice counts and limits the packets; 0: none.
	Slice uint32
}

// ForwardingKind says what is pushed.
type ForwardingKind uint8

// The kinds.
const (
	ForwardTable  ForwardingKind = iota // nothing: by the kernel's routes
	ForwardGTPU                         // GTP-U to Remote and TEID
	ForwardSRv6                         // one IPv6 header to Remote, no SRH
	ForwardPolicy                       // an SR policy
	ForwardLink                         // nothing: the frame leaves by Link
	ForwardVPN                          // an SR policy, by the routes of VPN
)

// RuleUsage counts what a rule forwarded, in T-PDUs and their octets, and what
// gates and rates refused before its StopAt. It only grows as long as the rule's
// ID is in the session, whatever else changes.
type RuleUsage struct {
	Rule    uint16
	Volume  counter.Counter
	Refused counter.Counter
}

// Event is what the data path reports about a rule.
type Event struct {
	Session uint64
	Rule    uint16
	Kind    EventKind
}

// EventKind is the kind of an event.
type EventKind uint8

// The kinds.
const (
	EventNotify EventKind = iota // NotifyAt or RefusedNotifyAt is reached
	EventStop                    // a packet was dropped because of StopAt
)
