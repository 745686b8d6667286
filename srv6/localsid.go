package srv6

import "net/netip"

// LocalSID binds a segment identifier of this node to a behaviour (RFC 8986
// section 3, RFC 9433 section 6). Only the parameters that Behavior names in
// its row of the behaviour table may be set. A zero value means "not given".
type LocalSID struct {
	// SID is LOC:FUNC as a prefix. The bits behind it are the argument. A SID
	// without an argument may be a full address (/128).
	SID      netip.Prefix `json:"sid" jsonschema:"description=LOC:FUNC as a prefix; the bits behind it are the argument"`
	Behavior Behavior     `json:"behavior"`
	Flavors  []Flavor     `json:"flavors,omitempty"`

	// Table is the routing table that End.T and End.DT* look up, by the kernel's
	// number.
	Table uint32 `json:"table,omitempty"`
	// Tenant is the id of the tenant whose table of pods End.DT* looks up in place of
	// Table. It comes from the tenants of a cluster, not from a configuration of SIDs.
	Tenant uint8 `json:"-"`
	// NextHop and Interface are the adjacency of End.X and End.DX*. The main table
	// resolves a next hop without an interface. An interface without a next hop
	// means that the packet's own destination is on that link (End.DX2: the frame
	// leaves there unchanged).
	NextHop   netip.Addr `json:"next_hop,omitzero"`
	Interface string     `json:"interface,omitempty"`
	// Policy names the SR policy of End.B6.Encaps*, End.M.GTP6.D and .Di.
	Policy string `json:"policy,omitempty"`
	// Map is the SID that End.MAP writes.
	Map netip.Addr `json:"map,omitzero"`

	// Source is the outer IPv6 source that End.M.GTP6.D, .Di and End.M.GTP6.E
	// write.
	Source netip.Addr `json:"source,omitzero"`
	// SourcePrefixLength is the offset of the IPv4 source in the outer IPv6 source
	// that End.M.GTP4.E receives, in bits (at most 96).
	SourcePrefixLength uint8 `json:"source_prefix_length,omitempty"`
	// PDUType is the type of the PDUs that End.M.GTP6.D and .Di carry.
	PDUType PDUType `json:"pdu_type,omitempty"`
	// PDUSessionContainer is the container (TS 38.415) that End.M.GTP4.E and
	// End.M.GTP6.E put into the GTP-U header: none by default.
	PDUSessionContainer ContainerType `json:"pdu_session_container,omitempty"`
	// ArgsOffset is the offset of Args.Mob.Session in the last SID of the policy, in
	// bits, at most 88. End.M.GTP6.D needs it. End.M.GTP6.D.Di writes no argument
	// where it is 0.
	ArgsOffset uint8 `json:"args_offset,omitempty"`

	// GroupBits and RateBits are the lengths of End.Limit's two arguments. RateUnit
	// is what a rate of 1 means, in kbit/s (default 1).
	GroupBits uint8  `json:"group_bits,omitempty"`
	RateBits  uint8  `json:"rate_bits,omitempty"`
	RateUnit  uint32 `json:"rate_unit,omitempty"`

	// BlockLength is the length of the locator block of a NEXT-C-SID SID in
	// bits (RFC 9800; 32 in F3216).
	BlockLength uint8 `json:"block_length,omitempty"`

	// AllowUpperLayer hands a packet that ends at this SID to the kernel
	// (RFC 8986 section 4.1.1) in place of a Parameter Problem.
	AllowUpperLayer bool `json:"allow_upper_layer,omitempty"`

	// IgnoreTag takes every packet for a G-PDU, whatever message its SRH's tag names:
	// for networks that have tags of their own.
	IgnoreTag bool `json:"ignore_tag,omitempty"`
}
