package packet

import (
	"encoding/hex"
	"net/netip"
	"strings"
)

// A Layer is one header, or the payload.
type Layer interface {
	// protocol is the number by which IPv6 and IPv4 name the layer.
	protocol() uint8
	// build is the layer in front of what it carries. around are the layers
	// outside of it, outermost first, and inner the next one inside, if any.
	build(payload []byte, around []Layer, inner Layer) []byte
}

// Frame builds a frame, or a packet when the first layer is not Ethernet.
func Frame(layers ...Layer) []byte {
	var b []byte
	for i := len(layers) - 1; i >= 0; i-- {
		var inner Layer
		if i+1 < len(layers) {
			inner = layers[i+1]
		}
		b = layers[i].build(b, layers[:i], inner)
	}
	return b
}

// Hex is bytes, written in hexadecimal with spaces where they help.
type Hex []byte

// UnmarshalText reads hexadecimal digits.
func (h *Hex) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	*h = b
	return err
}

// MarshalText writes hexadecimal digits.
func (h Hex) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

// Ethernet is Ethernet II with up to two tags.
type Ethernet struct {
	Dst  Hex      `json:"dst,omitempty"` // 02:00:00:00:00:02 unless set
	Src  Hex      `json:"src,omitempty"` // 02:00:00:00:00:01 unless set
	VLAN []uint16 `json:"vlan,omitempty"`
	Type *uint16  `json:"type,omitempty"`
}

// IPv6 is the fixed header of RFC 8200.
type IPv6 struct {
	Src       netip.Addr `json:"src"`
	Dst       netip.Addr `json:"dst"`
	HopLimit  *uint8     `json:"hop_limit,omitempty"` // 64 unless set
	Class     uint8      `json:"class,omitempty"`
	FlowLabel uint32     `json:"flow_label,omitempty"`
	Next      *uint8     `json:"next,omitempty"`
	Length    *uint16    `json:"length,omitempty"`
	Version   *uint8     `json:"version,omitempty"`
}

// IPv4 is the header of RFC 791.
type IPv4 struct {
	Src      netip.Addr `json:"src"`
	Dst      netip.Addr `json:"dst"`
	TTL      *uint8     `json:"ttl,omitempty"` // 64 unless set
	TOS      uint8      `json:"tos,omitempty"`
	ID       uint16     `json:"id,omitempty"`
	Fragment uint16     `json:"fragment,omitempty"` // flags and offset as they stand
	Protocol *uint8     `json:"protocol,omitempty"`
	Length   *uint16    `json:"length,omitempty"`
	IHL      *uint8     `json:"ihl,omitempty"`
	Checksum *uint16    `json:"checksum,omitempty"`
	Options  Hex        `json:"options,omitempty"`
}

// SRH is the Segment Routing Header of RFC 8754.
type SRH struct {
	// Segments as they stand: Segment List[0] is the last one of the path.
	Segments []netip.Addr `json:"segments"`
	Left     *uint8       `json:"left,omitempty"` // Last Entry unless set
	Last     *uint8       `json:"last,omitempty"`
	Flags    uint8        `json:"flags,omitempty"`
	Tag      uint16       `json:"tag,omitempty"`
	TLV      Hex          `json:"tlv,omitempty"`
	Next     *uint8       `json:"next,omitempty"`
	Length   *uint8       `json:"length,omitempty"`
	Type     *uint8       `json:"type,omitempty"` // 4 unless set
}

// Extension is an IPv6 extension header of any kind.
type Extension struct {
	Kind   uint8  `json:"kind"` // its protocol number
	Data   Hex    `json:"data,omitempty"`
	Next   *uint8 `json:"next,omitempty"`
	Length *uint8 `json:"length,omitempty"`
}

// UDP is the header of RFC 768.
type UDP struct {
	Sport    uint16  `json:"sport"`
	Dport    uint16  `json:"dport"`
	Length   *uint16 `json:"length,omitempty"`
	Checksum *uint16 `json:"checksum,omitempty"`
	// Partial leaves the pseudo-header's sum, as a local stack does for
	// hardware to complete.
	Partial bool `json:"partial,omitempty"`
}

// TCP is the header of RFC 9293.
type TCP struct {
	Sport    uint16  `json:"sport"`
	Dport    uint16  `json:"dport"`
	Sequence uint32  `json:"sequence,omitempty"`
	Flags    *uint8  `json:"flags,omitempty"`   // ACK unless set
	Options  Hex     `json:"options,omitempty"` // padded with zeros
	Length   *uint8  `json:"length,omitempty"`  // of the header, in 4 octets
	Checksum *uint16 `json:"checksum,omitempty"`
	Partial  bool    `json:"partial,omitempty"`
}

// ICMP is the header of RFC 792, or of RFC 4443 behind IPv6.
type ICMP struct {
	V6       bool    `json:"v6,omitempty"`
	Type     uint8   `json:"type"`
	Code     uint8   `json:"code,omitempty"`
	Rest     uint32  `json:"rest,omitempty"`
	Checksum *uint16 `json:"checksum,omitempty"`
}

// GTPU is the header of TS 29.281.
type GTPU struct {
	TEID       uint32      `json:"teid"`
	Type       *uint8      `json:"type,omitempty"` // 255 (G-PDU) unless set
	Sequence   *uint16     `json:"sequence,omitempty"`
	NPDU       *uint8      `json:"npdu,omitempty"`
	Extensions []GTPUExt   `json:"extensions,omitempty"`
	Container  *PDUSession `json:"container,omitempty"` // last in the chain
	Flags      *uint8      `json:"flags,omitempty"`
	Length     *uint16     `json:"length,omitempty"`
}

// GTPUExt is one extension header.
type GTPUExt struct {
	Type    uint8  `json:"type"`
	Content Hex    `json:"content"` // 4n - 2 octets
	Length  *uint8 `json:"length,omitempty"`
}

// PDUSession is the container of TS 38.415.
type PDUSession struct {
	Type uint8 `json:"type"` // 0 downlink, 1 uplink
	QFI  uint8 `json:"qfi"`
	RQI  bool  `json:"rqi,omitempty"`
	More Hex   `json:"more,omitempty"` // octets behind the second, 4n of them
}

// VXLAN is the header of RFC 7348; an Ethernet frame follows.
type VXLAN struct {
	VNI uint32 `json:"vni"`
}

// Payload is bytes that no layer explains.
type Payload struct {
	Data  Hex   `json:"data,omitempty"`
	Count int   `json:"count,omitempty"` // so many octets 0, 1, 2, ...
	Proto uint8 `json:"proto,omitempty"` // 59 (No Next Header) unless set
}
