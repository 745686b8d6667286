// Package slice models what carries a network slice between user plane functions and
// to its data network, as plain values.
package slice

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/session"
)

// Slice applies to the sessions of an S-NSSAI, a network instance, or both.
type Slice struct {
	Name string `json:"name"`
	// SNSSAI of the sessions. Unset: any.
	SNSSAI SNSSAI `json:"snssai,omitzero"`
	// NetworkInstance of the sessions' rules. Unset: any.
	NetworkInstance string `json:"network_instance,omitempty"`
	// Table is the kernel's routing table for packets that leave without a tunnel
	// (N6). Unset: main.
	Table uint32 `json:"table,omitempty"`
	// N6 is the link of Ethernet sessions.
	N6 *N6 `json:"n6,omitempty"`
	// N9 is the path to and from the next UPF. Unset: the SMF's Outer Header Creation
	// decides.
	N9 *N9 `json:"n9,omitempty"`
	// UEToUE says what becomes of packets from one UE of the slice to another one in the
	// same network instance. Unset: as upf.ue_to_ue says.
	UEToUE UEToUE `json:"ue_to_ue,omitempty" jsonschema:"enum=drop,enum=route,enum=n6"`
	// VPN is the L3VPN (RFC 9252) by which the data network's routers reach the slice's UEs.
	VPN *VPN `json:"vpn,omitempty"`
	// RateLimit of the whole slice, each way, in kbit/s. 0: no limit.
	RateLimit session.BitRate `json:"rate_limit,omitzero"`
}

// SIDs are this node's SIDs at which the slice's sessions receive.
func (s *Slice) SIDs() (out []netip.Prefix) {
	if s.N9 != nil && s.N9.LocalSID.IsValid() {
		out = append(out, s.N9.LocalSID)
	}
	if s.VPN != nil {
		out = append(out, s.VPN.SID)
	}
	return out
}

// N6 is the link to the data network of Ethernet sessions.
type N6 struct {
	// Interface that receives the data network's frames, not an interface of a VLAN.
	// All its frames belong to sessions: the node itself has no address there.
	Interface string `json:"interface"`
	// VLAN ID of the frames, from 1 to 4094. 0: all frames of the interface that
	// belong to no other slice.
	VLAN uint16 `json:"vlan,omitempty"`
}

// VPN is what BGP peers hear of a slice's VPN, as entries of upf.announce with the slice's
// name in vpn say, and what the slice takes from them.
type VPN struct {
	// SID is this node's End.DT46 of the VPN: what routers send to it is for UEs of the
	// slice's sessions, and nobody else.
	SID netip.Prefix `json:"sid"`
	// Distinguisher and Export are the route distinguisher and the route targets of the
	// routes, like 65001:7 or 192.0.2.1:7.
	Distinguisher string   `json:"route_distinguisher"`
	Export        []string `json:"export_targets"`
	// Import are the route targets of the routes by which UEs' packets leave, to the SIDs of
	// the routers that advertise these. What no such route leads to is dropped. Unset: packets
	// leave as without a VPN.
	Import []string `json:"import_targets,omitempty"`
}

// Imports says whether packets of the slice's UEs leave by routes of its VPN.
func (s *Slice) Imports() bool { return s.VPN != nil && len(s.VPN.Import) > 0 }

// VPNNumbers are the numbers of slices' VPNs, from 1 on, by the slices' names, in whose order
// they are. A number of one configuration may be another slice's in the next.
func VPNNumbers(list []Slice) map[string]uint8 {
	var names []string
	for _, s := range list {
		if s.VPN != nil {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	out := make(map[string]uint8, len(names))
	for i, name := range names {
		out[name] = uint8(i + 1)
	}
	return out
}

// UEToUE is what becomes of packets from one UE to another one.
type UEToUE string

// What may become of them.
const (
	UEToUEDrop  UEToUE = "drop"
	UEToUERoute UEToUE = "route" // straight to the other UE's session
	UEToUEN6    UEToUE = "n6"    // to the router on N6, and back from there if it says so
)

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

// N9 is the path of a slice's packets between user plane functions.
type N9 struct {
	Transport Transport `json:"transport" jsonschema:"enum=gtpu,enum=srv6"`
	// Mode of SRv6: traditional by default.
	Mode Mode `json:"mode,omitempty" jsonschema:"enum=traditional,enum=enhanced"`
	// Uplink and Downlink are the SIDs that receive packets in traditional mode: the
	// next UPF's End.DT4, End.DT6 or End.DT46, towards the network and towards the
	// access. Unset: packets of that direction do not leave by N9 here.
	Uplink   netip.Addr `json:"uplink,omitzero"`
	Downlink netip.Addr `json:"downlink,omitzero"`
	// UplinkPolicy and DownlinkPolicy name SR policies, in enhanced mode.
	UplinkPolicy   string `json:"uplink_policy,omitempty"`
	DownlinkPolicy string `json:"downlink_policy,omitempty"`
	// ArgsOffset is the bit of uplink and downlink, or of the policies' last segments,
	// at which Args.Mob.Session begins, at most 88. The next UPF's SID ends there.
	// The argument says which session a packet belongs to, and its QFI. Ethernet
	// sessions by SRv6 need it.
	ArgsOffset uint8 `json:"args_offset,omitempty" jsonschema:"maximum=88"`
	// LocalSID is our SID. Packets for it are decapsulated (End.DT46 or, for Ethernet
	// sessions, End.DX2 with an argument of 40 bits behind it) and then matched
	// against the rules of the slice's sessions, uplink or downlink.
	LocalSID netip.Prefix `json:"local_sid,omitzero"`
}

// Policies are the SR policies that the slice's packets take.
func (s *Slice) Policies() []string {
	if s.N9 == nil {
		return nil
	}
	return s.N9.Policies()
}

// Policies are those of N9.
func (n *N9) Policies() []string {
	return slices.DeleteFunc([]string{n.UplinkPolicy, n.DownlinkPolicy}, func(name string) bool { return name == "" })
}

// Value returns the S-NSSAI, and whether it is set and valid.
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

// String is the S-NSSAI in short, as in 1-000001.
func (s SNSSAI) String() string {
	switch {
	case s.SST == 0:
		return "any"
	case s.SD == "":
		return strconv.Itoa(int(s.SST))
	}
	return strconv.Itoa(int(s.SST)) + "-" + s.SD
}
