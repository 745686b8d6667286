package srpolicy

import (
	"cmp"
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// Advertised is a candidate path as a controller advertises it to a headend (RFC 9830
// section 2). Color and endpoint identify the policy.
type Advertised struct {
	Color    uint32     `json:"color"`
	Endpoint netip.Addr `json:"endpoint"`
	// Distinguisher distinguishes the paths that one speaker advertises for a policy.
	Distinguisher uint32 `json:"distinguisher,omitempty"`

	PolicyName   string        `json:"policy_name,omitempty"`
	Name         string        `json:"name,omitempty"`
	Preference   uint32        `json:"preference,omitempty"` // 100 unless set
	BindingSID   netip.Addr    `json:"binding_sid,omitzero"`
	SegmentLists []SegmentList `json:"segment_lists"`
}

// EffectivePreference returns the preference, with the default filled in.
func (a Advertised) EffectivePreference() uint32 { return cmp.Or(a.Preference, DefaultPreference) }

// Validate returns what prevents this node from using the path.
func (a Advertised) Validate() []srv6.FieldError {
	var errs faults
	if !a.Endpoint.IsValid() || a.Endpoint.Zone() != "" {
		errs.add("endpoint", "give the address of the policy's end, or :: for any", "%s is no address of a node", a.Endpoint)
	}
	if a.BindingSID.IsValid() {
		errs = append(errs, srv6.CheckUnicast6("binding_sid", a.BindingSID)...)
	}
	return append(errs, checkLists(a.SegmentLists)...)
}
