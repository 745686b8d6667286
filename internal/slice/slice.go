// Package slice is what carries a network slice between user plane functions
// and out to its data network.
package slice

import (
	"net/netip"
	"strconv"

	"github.com/culvert-net/culvert/internal/session"
)

// Slice is chosen by the S-NSSAI of a session, or by its network instance.
type Slice struct {
	Name string `json:"name"`
	// SNSSAI; the zero value: sessions of any.
	SNSSAI SNSSAI `json:"snssai,omitzero"`
	// NetworkInstance of the sessions' rules; empty: any.
	NetworkInstance string `json:"network_instance,omitempty"`
	// Table is the kernel's routing table for packets that leave without a
	// tunnel (N6); 0: main.
	Table uint32 `json:"table,omitempty"`
	// N6 of Ethernet sessions is a link.
	N6 *N6 `json:"n6,omitempty"`
	// N9 is the way to and from the next UPF. Without it the SMF's Outer
	// Header Creation decides.
	N9 *N9 `json:"n9,omitempty"`
	// RateLimit of the whole slice, each way, in kbit/s; 0: none.
	RateLimit session.BitRate `json:"rate_limit,omitzero"`
}

// N6 is where the data network of Ethernet sessions is.
type N6 struct {
	// Interface that has the data network's frames, not that of a VLAN. They
	// all are for sessions: the node itself has no address there.
	Interface string `json:"interface"`
	// VLAN id, from 1 to 4094, of the frames that are meant; 0: all of the
	// interface that no other slice has.
	VLAN uint16 `json:"vlan,omitempty"`
}

// SNSSAI as a configuration writes it: sst 1 to 255, sd six hex digits.
type SNSSAI struct {
	SST uint8  `json:"sst,omitempty"`
	SD  string `json:"sd,omitempty"`
}

// Transport of a slice's N9 (or N6) packets.
type Transport string

// The transports.
const (
	GTPU Transport = "gtpu"
	SRv6 Transport = "srv6"
)

// Mode of SRv6 (paper: SRv6 mobile user plane, traditional and enhanced).
type Mode string

// The modes.
const (
	Traditional Mode = "traditional" // one SID as the destination, no SRH
	Enhanced    Mode = "enhanced"    // an SR policy
)

// N9 is the way of a slice's packets between user plane functions.
type N9 struct {
	Transport Transport `json:"transport" jsonschema:"enum=gtpu,enum=srv6"`
	// Mode of SRv6: traditional unless set.
	Mode Mode `json:"mode,omitempty" jsonschema:"enum=traditional,enum=enhanced"`
	// Uplink and Downlink are SIDs that packets are sent to in traditional
	// mode: the next UPF's End.DT4, End.DT6 or End.DT46, towards the network
	// and towards the access. One that is not set: packets of that direction
	// do not go by N9 here.
	Uplink   netip.Addr `json:"uplink,omitzero"`
	Downlink netip.Addr `json:"downlink,omitzero"`
	// UplinkPolicy and DownlinkPolicy name SR policies, in enhanced mode.
	UplinkPolicy   string `json:"uplink_policy,omitempty"`
	DownlinkPolicy string `json:"downlink_policy,omitempty"`
	// ArgsOffset is for Ethernet sessions by SRv6, which are refused without it: at
	// which bit of uplink and downlink, or of the policies' last segments,
	// Args.Mob.Session begins, at most 88. The next UPF's SID ends there. It says
	// whose a frame is.
	ArgsOffset uint8 `json:"args_offset,omitempty" jsonschema:"maximum=88"`
	// LocalSID is ours: what arrives for it is decapsulated (End.DT46, and of
	// Ethernet sessions End.DX2 with an argument, which takes 40 bits behind it)
	// and meets the sessions' rules.
	LocalSID netip.Prefix `json:"local_sid,omitzero"`
}

// Value is what the configuration means; false: it says none, or what it says
// is none.
func (s SNSSAI) Value() (session.SNSSAI, bool) {
	out := session.SNSSAI{SST: s.SST}
	if s.SST == 0 {
		return out, false
	}
	if s.SD == "" {
		return out, true
	}
	sd, err := strconv.ParseUint(s.SD, 16, 24)
	out.SD, out.HasSD = uint32(sd), true
	return out, err == nil && len(s.SD) == 6
}
