package srv6

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ParseSID parses LOC:FUNC, a prefix. An address alone is a prefix of 128 bits. The
// configuration and the management API use it.
func ParseSID(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not a SID: leave out the zone", s)
		}
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a SID: give LOC:FUNC as a prefix, such as "+
			"2001:db8:1:e000::/64, or a whole IPv6 address", s)
	}
	return p, nil
}

// Validate checks the SID against the row of its behaviour: missing parameters,
// parameters that the behaviour does not accept, and invalid values. It does not
// look up other resources (policy, interface, locator).
func (s LocalSID) Validate() []FieldError {
	errs := s.checkPrefix()
	row, ok := Lookup(s.Behavior)
	switch {
	case s.Behavior == BehaviorNone:
		return append(errs, FieldError{"behavior", "is missing", "give one of " + endpointNames()})
	case !ok:
		return append(errs, FieldError{"behavior", s.Behavior.String() + " is unknown",
			"give one of " + endpointNames()})
	case row.Headend:
		return append(errs, FieldError{"behavior", row.Name + " is a headend behaviour, not a SID's",
			"set it where packets are steered: in a policy or a steering entry"})
	}
	errs = append(errs, s.checkParameters(row)...)
	errs = append(errs, s.checkFlavors(row)...)
	errs = append(errs, s.checkAddresses()...)
	return append(errs, s.checkLengths(row)...)
}

// endpointNames are the behaviours that a SID can have.
func endpointNames() string {
	var all []Behavior
	for _, row := range table {
		if !row.Headend {
			all = append(all, row.Behavior)
		}
	}
	return names(all)
}

// checkPrefix checks the SID itself.
func (s LocalSID) checkPrefix() []FieldError {
	const fix = "give LOC:FUNC as an IPv6 prefix, such as 2001:db8:1:e000::/64"
	switch {
	case !s.SID.IsValid():
		return []FieldError{{"sid", "is missing", fix}}
	case s.SID.Bits() == 0:
		return []FieldError{{"sid", s.SID.String() + " is every address", fix}}
	}
	if errs := CheckUnicast6("sid", s.SID.Addr()); errs != nil {
		return errs
	}
	return CheckPrefix("sid", s.SID)
}

// checkParameters compares which parameters are set with those of the row.
func (s LocalSID) checkParameters(row Row) []FieldError {
	var errs []FieldError
	missing := len(row.OneOf) > 0
	for _, p := range parameters {
		set := p.isSet(&s)
		switch {
		case set && !row.Takes(p.Name):
			errs = append(errs, FieldError{p.Name, "is not a parameter of " + row.Name,
				"remove it: " + row.Name + " takes " + cmp.Or(strings.Join(row.takes(), ", "), "no parameter")})
		case !set && slices.Contains(row.Required, p.Name):
			errs = append(errs, FieldError{p.Name, "is missing: " + row.Name + " needs it",
				"give " + p.Description})
		}
		missing = missing && !(set && slices.Contains(row.OneOf, p.Name))
	}
	if missing {
		errs = append(errs, FieldError{row.OneOf[0], "is missing: " + row.Name + " needs " +
			strings.Join(row.OneOf, " or "), "give " + describe(row.OneOf)})
	}
	return errs
}

// describe joins the parameters' descriptions.
func describe(parameterNames []string) string {
	var all []string
	for _, p := range parameters {
		if slices.Contains(parameterNames, p.Name) {
			all = append(all, p.Name+", "+p.Description)
		}
	}
	return strings.Join(all, ", or ")
}

// checkFlavors wants flavors of the row, each once.
func (s LocalSID) checkFlavors(row Row) []FieldError {
	var errs []FieldError
	for i, f := range s.Flavors {
		field := fmt.Sprintf("flavors[%d]", i)
		switch {
		case !slices.Contains(row.Flavors, f):
			errs = append(errs, FieldError{field, row.Name + " has no flavor " + f.String(),
				"remove it: " + row.Name + " can have " + cmp.Or(names(row.Flavors), "none")})
		case slices.Contains(s.Flavors[:i], f):
			errs = append(errs, FieldError{field, f.String() + " is given twice", "remove one"})
		}
	}
	return errs
}

// checkAddresses checks the addresses and the table that are set.
func (s LocalSID) checkAddresses() []FieldError {
	errs := CheckTable("table", s.Table)
	if s.NextHop.IsValid() {
		errs = append(errs, s.checkNextHop()...)
	}
	if s.Map.IsValid() {
		errs = append(errs, CheckUnicast6("map", s.Map)...)
		if s.SID.IsValid() && s.SID.Contains(s.Map) {
			errs = append(errs, FieldError{"map", fmt.Sprintf("%s is the SID itself: packets would come back", s.Map),
				"give the SID of another node"})
		}
	}
	if s.Source.IsValid() {
		errs = append(errs, CheckUnicast6("source", s.Source)...)
	}
	return errs
}

// checkNextHop wants an address of the family that the behaviour sends.
func (s LocalSID) checkNextHop() []FieldError {
	nh, want4 := s.NextHop, s.Behavior == EndDX4
	switch {
	case nh.Zone() != "":
		return []FieldError{{"next_hop", fmt.Sprintf("%s has a zone", nh),
			"write " + nh.WithZone("").String() + " and give interface"}}
	case want4 && !nh.Is4():
		return []FieldError{{"next_hop", fmt.Sprintf("%s is not an IPv4 address", nh),
			"give the IPv4 address of a neighbour: End.DX4 sends IPv4"}}
	case !want4 && (!nh.Is6() || nh.Is4In6()):
		return []FieldError{{"next_hop", fmt.Sprintf("%s is not an IPv6 address", nh),
			"give the IPv6 address of a neighbour"}}
	case nh.IsLinkLocalUnicast() && s.Interface == "":
		return []FieldError{{"next_hop", fmt.Sprintf("%s is a link-local address", nh),
			"give interface too: link-local addresses are there on every link"}}
	case nh.IsUnspecified(), nh.IsMulticast(), nh.IsLoopback():
		return []FieldError{{"next_hop", fmt.Sprintf("%s is not the address of one neighbour", nh),
			"give a neighbour's unicast address, or interface alone where destinations are on the link"}}
	}
	return nil
}

// checkLengths checks that LOC:FUNC, arguments and blocks fit each other.
func (s LocalSID) checkLengths(row Row) []FieldError {
	var errs []FieldError
	length := 0
	if s.SID.IsValid() && s.SID.Addr().Is6() {
		length = s.SID.Bits()
	}
	if length > row.MaxLength {
		errs = append(errs, FieldError{"sid", fmt.Sprintf("LOC:FUNC of %d bits leaves no room for the argument of %s",
			length, row.Name), fmt.Sprintf("give a prefix of at most %d bits", row.MaxLength)})
	}
	if s.SourcePrefixLength > sidBits-ipv4Bits && row.Takes("source_prefix_length") {
		errs = append(errs, FieldError{"source_prefix_length",
			fmt.Sprintf("%d leaves no room for the IPv4 source", s.SourcePrefixLength), "give at most 96"})
	}
	if s.ArgsOffset > sidBits-ArgsMobSessionBits && row.Takes("args_offset") {
		errs = append(errs, FieldError{"args_offset",
			fmt.Sprintf("%d leaves no room for Args.Mob.Session (40 bits)", s.ArgsOffset), "give at most 88"})
	}
	if s.Behavior == EndLimit {
		errs = append(errs, s.checkLimit(length)...)
	}
	if row.Takes("block_length") {
		errs = append(errs, s.checkBlock(length)...)
	}
	return errs
}

// The data path counts groups in 64 bits, and bit/s of a rate unit in 32.
const (
	maxGroupBits = 64
	maxRateBits  = 32
	maxRateUnit  = (1<<32 - 1) / 1000
)

// checkLimit checks End.Limit's two arguments.
func (s LocalSID) checkLimit(length int) []FieldError {
	var errs []FieldError
	most := func(field, problem string, value, limit uint32) {
		if value > limit {
			errs = append(errs, FieldError{field, fmt.Sprintf(problem, value), fmt.Sprintf("give at most %d", limit)})
		}
	}
	most("group_bits", "%d is too long", uint32(s.GroupBits), maxGroupBits)
	most("rate_bits", "%d is too long", uint32(s.RateBits), maxRateBits)
	most("rate_unit", "%d kbit/s is too much", s.RateUnit, maxRateUnit)
	if sum := length + int(s.GroupBits) + int(s.RateBits); length > 0 && sum > sidBits {
		errs = append(errs, FieldError{"group_bits",
			fmt.Sprintf("LOC:FUNC, group and rate have %d bits together", sum),
			"shorten sid, group_bits or rate_bits to 128 bits in all"})
	}
	return errs
}

// checkBlock checks the locator block of a NEXT-C-SID SID.
func (s LocalSID) checkBlock(length int) []FieldError {
	next := slices.Contains(s.Flavors, NextCSID)
	switch {
	case !next && s.BlockLength != 0:
		return []FieldError{{"block_length", "belongs to the flavor NEXT-C-SID, which this SID does not have",
			"remove it, or add NEXT-C-SID to flavors"}}
	case next && s.BlockLength == 0:
		return []FieldError{{"block_length", "is missing: NEXT-C-SID needs it",
			"give the length of the locator block in bits (32 in F3216)"}}
	case next && length > 0 && int(s.BlockLength) >= length:
		return []FieldError{{"block_length", fmt.Sprintf("%d leaves no C-SID in a prefix of %d bits", s.BlockLength, length),
			fmt.Sprintf("give less than %d", length)}}
	}
	return nil
}
