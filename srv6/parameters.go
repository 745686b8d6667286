package srv6

import "slices"

// Parameter is a field of LocalSID that a behaviour may need.
type Parameter struct {
	Name        string // JSON name
	Description string // what to give, as part of a sentence
	isSet       func(*LocalSID) bool
}

// parameters lists all parameters, in the order of the fields.
var parameters = []Parameter{
	{"table", "the kernel's number of a routing table (254 is main)",
		func(s *LocalSID) bool { return s.Table != 0 || s.Tenant != 0 }},
	{"next_hop", "the address of the next node",
		func(s *LocalSID) bool { return s.NextHop.IsValid() }},
	{"interface", "the name of the interface to leave by",
		func(s *LocalSID) bool { return s.Interface != "" }},
	{"policy", "the name of an SR policy",
		func(s *LocalSID) bool { return s.Policy != "" }},
	{"map", "the SID to write in its place",
		func(s *LocalSID) bool { return s.Map.IsValid() }},
	{"source", "the IPv6 source address of what is pushed",
		func(s *LocalSID) bool { return s.Source.IsValid() }},
	{"source_prefix_length", "how many bits of the IPv6 source stand before the IPv4 source (1 to 96)",
		func(s *LocalSID) bool { return s.SourcePrefixLength != 0 }},
	{"pdu_type", "what the sessions carry: ipv4, ipv6, ipv4v6, ethernet or unstructured",
		func(s *LocalSID) bool { return s.PDUType != PDUTypeNone }},
	{"pdu_session_container", "the container to put into the GTP-U header: none, downlink or uplink",
		func(s *LocalSID) bool { return s.PDUSessionContainer != ContainerNone }},
	{"args_offset", "at which bit of the receiving SID Args.Mob.Session starts (1 to 88)",
		func(s *LocalSID) bool { return s.ArgsOffset != 0 }},
	{"group_bits", "the length of the group id in the argument",
		func(s *LocalSID) bool { return s.GroupBits != 0 }},
	{"rate_bits", "the length of the limit rate in the argument (1 to 32)",
		func(s *LocalSID) bool { return s.RateBits != 0 }},
	{"rate_unit", "what a rate of 1 means, in kbit/s (1 unless set)",
		func(s *LocalSID) bool { return s.RateUnit != 0 }},
	{"block_length", "the length of the locator block in bits (32 in F3216)",
		func(s *LocalSID) bool { return s.BlockLength != 0 }},
	{"allow_upper_layer", "true to hand packets that end here to the kernel, which must have the SID as an address",
		func(s *LocalSID) bool { return s.AllowUpperLayer }},
	{"ignore_tag", "true to take every packet for a G-PDU, whatever message its SRH's tag names",
		func(s *LocalSID) bool { return s.IgnoreTag }},
}

// Parameters lists the parameters of SIDs, in the order of LocalSID's fields.
func Parameters() []Parameter { return slices.Clone(parameters) }

// Takes says whether the behaviour accepts a parameter.
func (r Row) Takes(parameter string) bool {
	if parameter == "block_length" {
		return slices.Contains(r.Flavors, NextCSID)
	}
	return slices.Contains(r.Required, parameter) || slices.Contains(r.OneOf, parameter) ||
		slices.Contains(r.Optional, parameter)
}

// takes lists the names of all parameters that the behaviour accepts.
func (r Row) takes() []string {
	var all []string
	for _, p := range parameters {
		if r.Takes(p.Name) {
			all = append(all, p.Name)
		}
	}
	return all
}
