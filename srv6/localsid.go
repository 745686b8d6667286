package srv6

import "net/netip"

// LocalSID binds a segment identifier of this node to a behaviour (RFC 8986
// section 3, RFC 9433 section 6). Only the parameters that Behavior names in
// its row of the behaviour table may be set; the zero value of each means
// "not given".
type LocalSID struct {
	// SID is LOC:FUNC as a prefix: the bits behind it are the argument. A SID
	// without an argument may be given as a full address (/128).
	SID      netip.Prefix `json:"sid" jsonschema:"description=LOC:FUNC as a prefix; the bits behind it are the argument"`
	Behavior Behavior     `json:"behavior"`
	Flavors  []Flavor     `json:"flavors,omitempty"`

	// Table is the kernel's number of the routing table that End.T and
	// End.DT* look up.
	Table uint32 `json:"table,omitempty"`
	// NextHop and Interface name the adjacency of End.X and End.DX*: a next
	// hop alone is resolved by the main table, an interface alone means that
	// the packet's own destination is on that link (End.DX2: the frame leaves
	// there as it is).
	NextHop   netip.Addr `json:"next_hop,omitzero"`
	Interface string     `json:"interface,omitempty"`
	// Policy names the SR policy of End.B6.Encaps*, End.M.GTP6.D and .Di.
	Policy string `json:"policy,omitempty"`
	// Map is the SID that End.MAP writes.
	Map netip.Addr `json:"map,omitzero"`

	// Source is the outer IPv6 source of what End.M.GTP6.D, .Di and
	// End.M.GTP6.E push.
	Source netip.Addr `json:"source,omitzero"`
	// SourcePrefixLength is where End.M.GTP4.E finds the IPv4 source in the
	// outer IPv6 source, in bits from its start (at most 96).
	SourcePrefixLength uint8 `json:"source_prefix_length,omitempty"`
	// PDUType is what End.M.GTP6.D and .Di carry.
	PDUType PDUType `json:"pdu_type,omitempty"`
	// PDUSessionContainer is the one that End.M.GTP4.E and End.M.GTP6.E put
	// into the GTP-U header (TS 38.415): none unless set.
	PDUSessionContainer ContainerType `json:"pdu_session_container,omitempty"`
	// ArgsOffset is where Args.Mob.Session starts in the SID that receives it
	// (End.M.GTP6.D: the last SID of the policy; .Di: the same, if set), in
	// bits, at most 88. For .Di 0 means that no argument is written.
	ArgsOffset uint8 `json:"args_offset,omitempty"`

	// GroupBits and RateBits are the lengths of End.Limit's two arguments;
	// RateUnit is what a rate of 1 means, in kbit/s (1 unless set).
	GroupBits uint8  `json:"group_bits,omitempty"`
	RateBits  uint8  `json:"rate_bits,omitempty"`
	RateUnit  uint32 `json:"rate_unit,omitempty"`

	// BlockLength is the length of the locator block of a NEXT-C-SID SID in
	// bits (RFC 9800; 32 in F3216).
	BlockLength uint8 `json:"block_length,omitempty"`

	// AllowUpperLayer hands a packet that ends at this SID to the kernel
	// (RFC 8986 section 4.1.1) in place of a Parameter Problem.
	AllowUpperLayer bool `json:"allow_upper_layer,omitempty"`
}
