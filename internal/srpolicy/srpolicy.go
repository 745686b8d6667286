// Package srpolicy models SR policies and what is steered into them
// (RFC 9256, RFC 8986 section 5).
package srpolicy

import (
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// MaxSegments is the longest segment list that the data path writes.
const MaxSegments = 12

// MaxSegmentLists is how many weighted lists one policy holds.
const MaxSegmentLists = 8

// Policy is an SR policy. Its segment lists are one candidate path, beside which
// there may be others (CandidatePath).
type Policy struct {
	Name string `json:"name"`
	// Behavior is how packets are steered into it: H.Encaps, H.Encaps.Red (the
	// default), H.Encaps.L2 or H.Encaps.L2.Red. The .Red ones leave the first
	// segment out of the SRH; this holds for End.B6 and End.M.GTP6.D too.
	Behavior srv6.Behavior `json:"behavior,omitempty"`
	// Source is the outer IPv6 source: the node's encapsulation source unless
	// set.
	Source     netip.Addr `json:"source,omitzero"`
	Color      uint32     `json:"color,omitempty"`
	Endpoint   netip.Addr `json:"endpoint,omitzero"`
	BindingSID netip.Addr `json:"binding_sid,omitzero"`
	// Preference is that of SegmentLists, where there are other candidate paths.
	Preference   uint32        `json:"preference,omitempty"`
	SegmentLists []SegmentList `json:"segment_lists,omitempty"`
}

// SegmentList is one weighted list of a policy, first segment first.
type SegmentList struct {
	Weight   uint32       `json:"weight,omitempty"` // 1 unless set
	Segments []netip.Addr `json:"segments"`
}

// Steering sends packets into a policy, into a GTP-U tunnel, or through
// H.M.GTP4.D. It matches by destination Prefix, or by Interface and VLANs.
type Steering struct {
	Prefix    netip.Prefix `json:"prefix,omitzero"`
	Interface string       `json:"interface,omitempty"`
	// VLANs are the tags of the frames meant, outermost first; none means
	// untagged frames.
	VLANs []uint16 `json:"vlans,omitempty"`

	Policy string `json:"policy,omitempty"`
	Tunnel string `json:"tunnel,omitempty"`
	// GTP4D translates G-PDUs to Prefix (RFC 9433 section 6.7).
	GTP4D *GTP4D `json:"h_m_gtp4_d,omitempty"`
}

// GTP4D are the parameters of H.M.GTP4.D.
type GTP4D struct {
	// SIDPrefix is LOC:FUNC of the End.M.GTP4.E at the far end (at most 56
	// bits): the IPv4 destination and Args.Mob.Session follow it.
	SIDPrefix netip.Prefix `json:"sid_prefix"`
	// SourcePrefix is the source UPF prefix (at most 96 bits): the IPv4 source
	// follows it, and the bits behind that stay as given here.
	SourcePrefix netip.Prefix `json:"source_prefix"`
	PDUType      srv6.PDUType `json:"pdu_type"`
	// Policy, if any, puts its segments before the GTP4 SID.
	Policy string `json:"policy,omitempty"`
}
