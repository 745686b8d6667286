// Package srpolicy models SR policies and what is steered into them (RFC 9256, RFC
// 8986 section 5), as plain values and pure functions.
package srpolicy

import (
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// MaxSegments is the longest segment list that the data path writes.
const MaxSegments = 12

// MaxSegmentLists is how many segment lists a policy can have.
const MaxSegmentLists = 8

// Policy is an SR policy. Its segment lists are one candidate path; CandidatePath adds
// others.
type Policy struct {
	Name string `json:"name"`
	// Behavior says how packets enter the policy: H.Encaps, H.Encaps.Red (the
	// default), H.Encaps.L2 or H.Encaps.L2.Red. The .Red behaviours omit the first
	// segment from the SRH, also for End.B6 and End.M.GTP6.D.
	Behavior srv6.Behavior `json:"behavior,omitempty"`
	// Source is the outer IPv6 source. Default: the node's encapsulation source.
	Source     netip.Addr `json:"source,omitzero"`
	Color      uint32     `json:"color,omitempty"`
	Endpoint   netip.Addr `json:"endpoint,omitzero"`
	BindingSID netip.Addr `json:"binding_sid,omitzero"`
	// Preference of SegmentLists among the policy's candidate paths. Default 100.
	Preference   uint32        `json:"preference,omitempty"`
	SegmentLists []SegmentList `json:"segment_lists,omitempty"`
	// DelayConstraint is of SegmentLists, and of the candidate paths that have none.
	DelayConstraint
	// Protection are the lists of the candidate path that takes over at once where none of
	// SegmentLists is up. Down says of each list, those of Protection last, why packets cannot
	// take it now; empty: they can. Nil: all can. Slow says of each why packets do not take it
	// for its delay, though they could. All three are state, and no part of a configuration.
	Protection []SegmentList `json:"-"`
	Down       []string      `json:"-"`
	Slow       []string      `json:"-"`
}

// SegmentList is a weighted segment list of a policy, first segment first.
type SegmentList struct {
	Weight   uint32       `json:"weight,omitempty"` // 1 unless set
	Segments []netip.Addr `json:"segments"`
}

// Steering sends packets into a policy, into a GTP-U tunnel, or through
// H.M.GTP4.D. It matches by destination Prefix, by Interface and VLANs, or by both Prefix
// and Interface: then the interface has a table of its own, which untagged packets that
// arrive there meet before that of the node. So customers may have the same prefixes. With
// Tenant it matches what that tenant's pods send, by Prefix in the tenant's own table.
type Steering struct {
	Prefix    netip.Prefix `json:"prefix,omitzero"`
	Interface string       `json:"interface,omitempty"`
	Tenant    uint8        `json:"tenant,omitempty"` // its id
	// VLANs are the tags of the frames, outermost first. None means untagged frames, and with
	// H.Encaps.L2 all frames that no other entry takes. They do not go with Prefix.
	VLANs []uint16 `json:"vlans,omitempty"`

	Policy string `json:"policy,omitempty"`
	Tunnel string `json:"tunnel,omitempty"`
	// GTP4D translates G-PDUs to Prefix (RFC 9433 section 6.7).
	GTP4D *GTP4D `json:"h_m_gtp4_d,omitempty"`
}

// GTP4D are the parameters of H.M.GTP4.D.
type GTP4D struct {
	// SIDPrefix is LOC:FUNC of the tail end's End.M.GTP4.E (at most 56 bits). The
	// IPv4 destination and Args.Mob.Session follow it.
	SIDPrefix netip.Prefix `json:"sid_prefix"`
	// SourcePrefix is the source UPF prefix (at most 96 bits). The IPv4 source follows
	// it, and then the bits that are given here.
	SourcePrefix netip.Prefix `json:"source_prefix"`
	PDUType      srv6.PDUType `json:"pdu_type"`
	// Policy, if set, puts its segments before the GTP4 SID.
	Policy string `json:"policy,omitempty"`
}
