package traffic

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
)

// MaxFrame is the longest frame, in octets with FCS: one that is as long as Ethernet's
// before tunnels are around it.
const MaxFrame = 1600

// Streams is how many flows are told apart where packets are out of order. Of more, several
// are as one.
const Streams = trafficrun.Streams

// maxSegments is what an SRH of a template holds.
const maxSegments = 12

// MAC is an Ethernet address; nil is none given.
type MAC net.HardwareAddr

// UnmarshalText reads six octets with colons.
func (m *MAC) UnmarshalText(text []byte) error {
	a, err := net.ParseMAC(string(text))
	if err == nil && len(a) != 6 {
		err = fmt.Errorf("%q has %d octets, want 6", text, len(a))
	}
	*m = MAC(a)
	return err
}

// MarshalText is the opposite of UnmarshalText.
func (m MAC) MarshalText() ([]byte, error) { return []byte(net.HardwareAddr(m).String()), nil }

// Template says what packets are like. As what is sent, a field that is not
// given has the default that is named; as what is expected (Options.Expect) it
// may be anything.
type Template struct {
	Name     string   `json:"name,omitempty"`
	Ethernet Ethernet `json:"ethernet,omitzero"`
	Outer    Outer    `json:"outer,omitzero"` // none: the inner packet is in the frame
	Inner    Inner    `json:"inner,omitzero"`

	// One of these three gives the length. Size is of the frame, in octets with
	// FCS (default the least that holds the tag: 64 for IPv4); Payload is what is behind the
	// inner IP header, UDP's included, as paper 001 counts; IMIX is 28 frames of
	// 64 octets, 16 of 570 and 4 of 1518 (each at least as long as the headers want).
	Size    int  `json:"size,omitempty"`
	Payload int  `json:"payload,omitempty"`
	IMIX    bool `json:"imix,omitempty"`

	// How many there are of each, counted up from the one that is given; 0 and 1
	// are the same. TEIDs and UEs are one number: the n-th tunnel is the n-th UE's.
	TEIDs   int `json:"teids,omitempty"`   // outer.teid, and the number in the SID (outer.number_at)
	UEs     int `json:"ues,omitempty"`     // the inner address that inner.ue names: IPv4 addresses, or IPv6 /64 prefixes
	Sources int `json:"sources,omitempty"` // outer.source: gNBs; without a tunnel the inner address that is not the UE's
	Flows   int `json:"flows,omitempty"`   // inner.source_port

	// Order is that of the numbers: sequential (default), or random by the
	// trial's seed.
	Order Order `json:"order,omitempty"`
}

// Order is how packets go through flows.
type Order string

// The orders.
const (
	Sequential Order = "sequential"
	Random     Order = "random"
)

// Ethernet is the frame's header.
type Ethernet struct {
	Source      MAC `json:"source,omitempty"`      // default that of the sending interface
	Destination MAC `json:"destination,omitempty"` // the device's; there is no default
}

// Kind is what is around the inner packet.
type Kind string

// The kinds of outer headers. Their addresses say whether they are IPv4 or IPv6.
const (
	Plain Kind = "" // the inner packet is in the frame
	GTPU  Kind = "gtpu"
	SRv6  Kind = "srv6"
	VXLAN Kind = "vxlan"
)

// Outer are the headers of a tunnel.
type Outer struct {
	Kind         Kind       `json:"kind,omitempty"`
	Source       netip.Addr `json:"source,omitzero"`
	Destination  netip.Addr `json:"destination,omitzero"` // of GTP-U and VXLAN; SRv6 goes to a segment
	HopLimit     uint8      `json:"hop_limit,omitempty"`  // or TTL; default 64
	TrafficClass *uint8     `json:"traffic_class,omitempty"`
	FlowLabel    *uint32    `json:"flow_label,omitempty"`

	// Of GTP-U.
	SourcePort uint16    `json:"source_port,omitempty"` // default 2152
	TEID       uint32    `json:"teid,omitempty"`
	Container  Container `json:"container,omitempty"` // PDU Session Container (TS 38.415); default none
	QFI        uint8     `json:"qfi,omitempty"`

	// VNI is VXLAN's network; its inner frame has the Ethernet header's addresses.
	VNI uint32 `json:"vni,omitempty"`

	// Of SRv6: the segments in the order of travel.
	Segments []netip.Addr `json:"segments,omitempty"`
	// SegmentsLeft is how many are to be travelled; default all but the first.
	SegmentsLeft *int `json:"segments_left,omitempty"`
	// Reduced leaves the first segment out of the SRH (H.Encaps.Red), and the SRH
	// where it was the only one.
	Reduced bool `json:"reduced,omitempty"`
	// NumberAt is the octet of the last segment where 32 bits count with TEIDs:
	// 11 for a SID with Args.Mob.Session behind 80 bits. 0: nowhere.
	NumberAt int `json:"number_at,omitempty"`
	// SourceNumberAt is the octet of source where 32 bits count with Sources;
	// default 12, its end.
	SourceNumberAt int `json:"source_number_at,omitempty"`
}

// Container is the direction of a PDU Session Container.
type Container string

// The containers.
const (
	NoContainer Container = ""
	Uplink      Container = "uplink"
	Downlink    Container = "downlink"
)

// Inner is the packet that users send: UDP over IP. Without addresses it is
// only Ethernet, of the local experimental EtherType.
type Inner struct {
	Source          netip.Addr `json:"source,omitzero"`
	Destination     netip.Addr `json:"destination,omitzero"`
	HopLimit        uint8      `json:"hop_limit,omitempty"` // or TTL; default 64
	TrafficClass    *uint8     `json:"traffic_class,omitempty"`
	FlowLabel       *uint32    `json:"flow_label,omitempty"`
	SourcePort      uint16     `json:"source_port,omitempty"`      // default 4000
	DestinationPort uint16     `json:"destination_port,omitempty"` // default 5000
	// NoChecksum leaves the UDP checksum out (IPv4 only).
	NoChecksum bool `json:"no_checksum,omitempty"`
	// UE says which address counts with UEs: source or destination.
	UE End `json:"ue,omitempty"`
}

// End is one of a packet's two addresses.
type End string

// The ends.
const (
	Source      End = "source"
	Destination End = "destination"
)

// ParseTemplate reads YAML or JSON. Its errors, config.Errors, name the field and
// the fix.
func ParseTemplate(text []byte) (Template, error) {
	var t Template
	if _, err := config.Unmarshal(text, &t); err != nil {
		return Template{}, err
	}
	return t, t.Check()
}
