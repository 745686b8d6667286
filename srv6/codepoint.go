package srv6

// codepoints are the IANA "SRv6 Endpoint Behaviors" of one behaviour. The
// registry numbers the combinations of PSP, USP and USD in one order, but in
// three runs that were assigned at different times.
type codepoints struct {
	plain    uint16 // + PSP 1, USP 2 where flavored
	usd      uint16
	nextCSID uint16 // + PSP 1, USP 2, USD 4 where flavored
	flavored bool   // PSP, USP and USD have codepoints of their own
}

var registry = map[Behavior]codepoints{
	End:            {plain: 1, usd: 28, nextCSID: 43, flavored: true},
	EndX:           {plain: 5, usd: 32, nextCSID: 52, flavored: true},
	EndT:           {plain: 9, usd: 36, nextCSID: 85, flavored: true},
	EndB6Encaps:    {plain: 14, nextCSID: 93},
	EndB6EncapsRed: {plain: 27, nextCSID: 94},
	EndDX6:         {plain: 16, nextCSID: 60},
	EndDX4:         {plain: 17, nextCSID: 61},
	EndDT6:         {plain: 18, nextCSID: 62},
	EndDT4:         {plain: 19, nextCSID: 63},
	EndDT46:        {plain: 20, nextCSID: 64},
	EndDX2:         {plain: 21, nextCSID: 65},
	EndMAP:         {plain: 40},
	EndLimit:       {plain: 41},
	EndMGTP6D:      {plain: 69},
	EndMGTP6DDi:    {plain: 70},
	EndMGTP6E:      {plain: 71},
	EndMGTP4E:      {plain: 72},
}

// Codepoint returns the number by which control planes know a behaviour with these
// flavors (IANA, SRv6 Endpoint Behaviors). Headend behaviours have none, nor have
// combinations that are not registered, such as End.Limit with PSP.
func Codepoint(b Behavior, flavors ...Flavor) (uint16, bool) {
	c, ok := registry[b]
	if !ok {
		return 0, false
	}
	var set Flavor
	for _, f := range flavors {
		set |= f
	}
	sr := uint16(set & (PSP | USP | USD))
	switch {
	case set&^(PSP|USP|USD|NextCSID) != 0, sr != 0 && !c.flavored:
		return 0, false
	case set&NextCSID != 0:
		return c.nextCSID + sr, c.nextCSID != 0
	case set&USD != 0:
		return c.usd + sr - uint16(USD), true
	}
	return c.plain + sr, true
}
