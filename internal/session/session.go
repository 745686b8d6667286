// Package session models what an SMF tells a user plane function (TS 29.244):
// sessions and their rules, as plain values. It knows neither PFCP's encoding nor how
// packets are handled. It starts no goroutines and has no locks.
package session

import (
	"fmt"
	"net/netip"
	"time"
)

// Session is a PFCP session. Rule lists are sorted by ID. An ID means nothing outside
// of its session.
type Session struct {
	// SEID is ours, CPSEID the control plane's. Our requests go to CPAddr.
	SEID   uint64     `json:"seid,string"`
	CPSEID uint64     `json:"cp_seid,string"`
	CPAddr netip.Addr `json:"cp_addr"`
	// Node is the Node ID of the association that the session belongs to.
	Node string `json:"node"`

	PDNType PDNType `json:"pdn_type,omitempty"`
	SNSSAI  SNSSAI  `json:"snssai,omitzero"`
	DNN     string  `json:"dnn,omitempty"`
	UserID  string  `json:"user_id,omitempty"`
	// InactivityTimer is the User Plane Inactivity Timer: the control plane gets a
	// report after so long without a packet. 0 means that it wants none.
	InactivityTimer time.Duration `json:"inactivity_timer,omitempty"`

	PDRs []PDR `json:"pdrs,omitempty"`
	FARs []FAR `json:"fars,omitempty"`
	QERs []QER `json:"qers,omitempty"`
	URRs []URR `json:"urrs,omitempty"`
	BARs []BAR `json:"bars,omitempty"`
}

// PDNType is the type of the PDU session (TS 29.244 section 8.2.79). 0 means that the
// SMF did not say.
type PDNType uint8

// The PDN types.
const (
	PDNIPv4         PDNType = 1
	PDNIPv6         PDNType = 2
	PDNIPv4v6       PDNType = 3
	PDNUnstructured PDNType = 4
	PDNEthernet     PDNType = 5
)

// SNSSAI names a network slice (TS 23.003 section 28.4.2). HasSD tells
// "no slice differentiator" from 000000. The zero value means that the SMF named none.
type SNSSAI struct {
	SST   uint8  `json:"sst"`
	SD    uint32 `json:"sd,omitempty"` // 24 bits
	HasSD bool   `json:"has_sd,omitempty"`
}

// String is SST and SD as operators write them: 1-000001.
func (s SNSSAI) String() string {
	switch {
	case s == SNSSAI{}:
		return "none"
	case !s.HasSD:
		return fmt.Sprint(s.SST)
	}
	return fmt.Sprintf("%d-%06x", s.SST, s.SD)
}

// Interface is a Source or Destination Interface (TS 29.244 sections 8.2.2 and
// 8.2.24).
type Interface uint8

// The interfaces.
const (
	Access     Interface = 0
	Core       Interface = 1
	SGiLAN     Interface = 2 // N6-LAN
	CPFunction Interface = 3
	LIFunction Interface = 4 // as a destination only
)

// InterfaceType is a 3GPP Interface Type (TS 29.244 section 8.2.118).
type InterfaceType uint8

// Some of the interface types: those that change what is done.
const (
	TypeN3  InterfaceType = 11 // N3 3GPP Access
	TypeN6  InterfaceType = 17
	TypeN9  InterfaceType = 15
	TypeN19 InterfaceType = 18 // 5G VN internal
)

// PDR is a Packet Detection Rule. Of the PDRs that match a packet, the one with the
// lowest precedence value applies.
type PDR struct {
	ID         uint16 `json:"id"`
	Precedence uint32 `json:"precedence"`
	PDI        PDI    `json:"pdi"`
	// RemoveOuter removes the GTP-U header (Outer Header Removal, whatever its
	// description says).
	RemoveOuter bool     `json:"remove_outer,omitempty"`
	FAR         uint32   `json:"far"` // ID
	QERs        []uint32 `json:"qers,omitempty"`
	URRs        []uint32 `json:"urrs,omitempty"`
}

// PDI says which packets a PDR is for. Everything that is set must match.
type PDI struct {
	Source          Interface      `json:"source"`
	InterfaceType   *InterfaceType `json:"interface_type,omitempty"`
	NetworkInstance string         `json:"network_instance,omitempty"`
	// TEID is ours, at one or both of the addresses. 0 means that packets arrive
	// without GTP-U.
	TEID  uint32     `json:"teid,omitempty"`
	TEID4 netip.Addr `json:"teid4,omitzero"`
	TEID6 netip.Addr `json:"teid6,omitzero"`
	// ChooseID is the CHOOSE ID of a TEID that we chose. Other PDRs of the session
	// that ask with the same CHOOSE ID get the same TEID.
	ChooseID *uint8 `json:"choose_id,omitempty"`
	// UE lists the UE's addresses: /32, and IPv6 prefixes (/64 unless the SMF says
	// otherwise). They are the destinations of downlink packets and the sources of
	// uplink packets. A downlink PDR with neither UE nor TEID applies to the
	// addresses of the session's other PDRs. Open5GS's SMF writes such PDRs, with a
	// filter "to assigned", for a QoS flow that it adds later.
	UE []netip.Prefix `json:"ue,omitempty"`
	// FramedRoutes are networks behind the UE.
	FramedRoutes []netip.Prefix `json:"framed_routes,omitempty"`
	// A packet must match one of Filters, unless the list is empty. They include
	// the filters of the application.
	Filters       []Filter `json:"filters,omitempty"`
	QFIs          []uint8  `json:"qfis,omitempty"` // any of these; none: all
	ApplicationID string   `json:"application_id,omitempty"`
	// Ethernet matches if any of the filters does.
	Ethernet []EthernetFilter `json:"ethernet,omitempty"`
}

// Filter is an SDF filter (TS 29.244 section 8.2.5) as the UE sees it: Remote is the
// network's side and Local the UE's, in both directions.
type Filter struct {
	ID *uint32 `json:"id,omitempty"` // bidirectional filters share it
	// Text is the IPFilterRule that the SMF sent.
	Text   string       `json:"text,omitempty"`
	Remote netip.Prefix `json:"remote,omitzero"` // not valid: any
	Local  netip.Prefix `json:"local,omitzero"`  // not valid: any, or "assigned"
	// Protocol is the IP protocol, unless AnyProtocol is set.
	Protocol    uint8       `json:"protocol,omitempty"`
	AnyProtocol bool        `json:"any_protocol,omitempty"`
	RemotePorts []PortRange `json:"remote_ports,omitempty"` // none: any
	LocalPorts  []PortRange `json:"local_ports,omitempty"`
	ToS         uint8       `json:"tos,omitempty"`
	ToSMask     uint8       `json:"tos_mask,omitempty"` // 0: any
	FlowLabel   *uint32     `json:"flow_label,omitempty"`
	SPI         *uint32     `json:"spi,omitempty"`
}

// PortRange is a range of ports, with both ends.
type PortRange struct {
	From uint16 `json:"from"`
	To   uint16 `json:"to"`
}

// EthernetFilter is an Ethernet Packet Filter (TS 29.244 section 7.5.2.2-3).
// What is not set matches everything.
type EthernetFilter struct {
	Source      [6]byte `json:"source,omitzero"`
	Destination [6]byte `json:"destination,omitzero"`
	// SourceTo and DestinationTo are the last addresses of ranges that begin with
	// Source and Destination.
	SourceTo      [6]byte  `json:"source_to,omitzero"`
	DestinationTo [6]byte  `json:"destination_to,omitzero"`
	EtherType     uint16   `json:"ether_type,omitempty"`
	CVLAN         *uint16  `json:"c_vlan,omitempty"` // VLAN id
	SVLAN         *uint16  `json:"s_vlan,omitempty"`
	Filters       []Filter `json:"filters,omitempty"`
}

// Action is a FAR's Apply Action (TS 29.244 section 8.2.26).
type Action uint16

// The bits of Apply Action.
const (
	Drop      Action = 1 << 0
	Forward   Action = 1 << 1
	Buffer    Action = 1 << 2
	Notify    Action = 1 << 3 // NOCP
	Duplicate Action = 1 << 4
)

// FAR is a Forwarding Action Rule.
type FAR struct {
	ID         uint32       `json:"id"`
	Action     Action       `json:"action"`
	Forwarding *Forwarding  `json:"forwarding,omitempty"`
	Duplicates []Forwarding `json:"duplicates,omitempty"`
	BAR        *uint8       `json:"bar,omitempty"` // ID
}

// Forwarding says where packets go (Forwarding Parameters).
type Forwarding struct {
	Destination     Interface      `json:"destination"`
	InterfaceType   *InterfaceType `json:"interface_type,omitempty"`
	NetworkInstance string         `json:"network_instance,omitempty"`
	Outer           *OuterHeader   `json:"outer,omitempty"`
	// ToS is what Transport Level Marking sets in the outer header.
	ToS     uint8 `json:"tos,omitempty"`
	ToSMask uint8 `json:"tos_mask,omitempty"` // 0: not marked
}

// OuterHeader is Outer Header Creation: GTP-U, or only UDP or IP.
type OuterHeader struct {
	Kind OuterKind  `json:"kind"`
	Addr netip.Addr `json:"addr"`
	TEID uint32     `json:"teid,omitempty"` // GTP-U
	Port uint16     `json:"port,omitempty"` // UDP alone
}

// OuterKind is the kind of header that Outer Header Creation makes.
type OuterKind uint8

// The kinds of outer headers, over IPv4 or IPv6 by the address.
const (
	OuterGTPU OuterKind = iota
	OuterUDP
	OuterIP
)

// QER is a QoS Enforcement Rule. Rates are in kbit/s. nil means no limit.
type QER struct {
	ID             uint32       `json:"id"`
	UplinkClosed   bool         `json:"uplink_closed,omitempty"` // Gate Status
	DownlinkClosed bool         `json:"downlink_closed,omitempty"`
	MBR            *BitRate     `json:"mbr,omitempty"`
	GBR            *BitRate     `json:"gbr,omitempty"`
	PacketRate     *PacketRates `json:"packet_rate,omitempty"`
	QFI            *uint8       `json:"qfi,omitempty"`
	Reflective     bool         `json:"reflective,omitempty"` // RQI
}

// BitRate is a rate in kbit/s, each way.
type BitRate struct {
	Uplink   uint64 `json:"uplink"`
	Downlink uint64 `json:"downlink"`
}

// PacketRates limit packets, each way. 0 Packets mean no limit.
type PacketRates struct {
	Uplink   PacketRate `json:"uplink,omitzero"`
	Downlink PacketRate `json:"downlink,omitzero"`
}

// PacketRate is a number of packets in each period.
type PacketRate struct {
	Packets uint16        `json:"packets"`
	Per     time.Duration `json:"per"`
}

// URR is a Usage Reporting Rule.
type URR struct {
	ID      uint32 `json:"id"`
	Volume  bool   `json:"volume,omitempty"` // Measurement Method
	Time    bool   `json:"time,omitempty"`
	Event   bool   `json:"event,omitempty"`
	Trigger uint32 `json:"trigger,omitempty"` // Reporting Triggers, see Trigger*

	Period            time.Duration `json:"period,omitempty"` // Measurement Period
	VolumeThreshold   *Volume       `json:"volume_threshold,omitempty"`
	VolumeQuota       *Volume       `json:"volume_quota,omitempty"`
	TimeThreshold     time.Duration `json:"time_threshold,omitempty"`
	TimeQuota         time.Duration `json:"time_quota,omitempty"`
	HasTimeQuota      bool          `json:"has_time_quota,omitempty"`
	QuotaHolding      time.Duration `json:"quota_holding,omitempty"` // Quota Holding Time
	QuotaValidity     time.Duration `json:"quota_validity,omitempty"`
	InactivityTime    time.Duration `json:"inactivity_time,omitempty"`   // Inactivity Detection Time
	EthernetIdle      time.Duration `json:"ethernet_idle,omitempty"`     // Ethernet Inactivity Timer
	MonitoringTime    time.Time     `json:"monitoring_time,omitzero"`    // UTC
	SubsequentVolume  *Volume       `json:"subsequent_volume,omitempty"` // thresholds after it
	SubsequentTime    time.Duration `json:"subsequent_time,omitempty"`
	Linked            []uint32      `json:"linked,omitempty"` // Linked URR IDs
	Inactive          bool          `json:"inactive,omitempty"`
	FARForQuotaAction *uint32       `json:"far_for_quota_action,omitempty"`
	// Measurement Information.
	BeforeQoS       bool `json:"before_qos,omitempty"`        // MBQE
	NumberOfPackets bool `json:"number_of_packets,omitempty"` // MNOP
	ImmediateStart  bool `json:"immediate_start,omitempty"`   // ISTM
}

// Volume limits octets. nil means no limit.
type Volume struct {
	Total    *uint64 `json:"total,omitempty"`
	Uplink   *uint64 `json:"uplink,omitempty"`
	Downlink *uint64 `json:"downlink,omitempty"`
}

// BAR is a Buffering Action Rule.
type BAR struct {
	ID uint8 `json:"id"`
	// NotificationDelay delays the Downlink Data Report (50 ms units in PFCP).
	NotificationDelay time.Duration `json:"notification_delay,omitempty"`
	// SuggestedCount bounds the packets that are kept. 0 means our own limit.
	SuggestedCount uint16 `json:"suggested_count,omitempty"`
}
