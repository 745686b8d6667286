package srv6

import (
	"net/netip"
	"strings"
	"testing"
)

// valid is a SID that Validate takes, for each behaviour that mutations start
// from.
func valid(b Behavior) LocalSID {
	s := LocalSID{SID: netip.MustParsePrefix("2001:db8:1:e000::/64"), Behavior: b}
	switch b {
	case EndX, EndDX6:
		s.NextHop = netip.MustParseAddr("2001:db8::2")
	case EndDX4:
		s.NextHop = netip.MustParseAddr("192.0.2.2")
	case EndDX2:
		s.Interface = "eth1"
	case EndT, EndDT4, EndDT6, EndDT46:
		s.Table = 254
	case EndB6Encaps, EndB6EncapsRed:
		s.Policy = "p"
	case EndMAP:
		s.Map = netip.MustParseAddr("2001:db8:2::1")
	case EndLimit:
		s.GroupBits, s.RateBits = 16, 24
	case EndMGTP6D, EndMGTP6DDi:
		s.Policy, s.Source, s.PDUType, s.ArgsOffset = "p", netip.MustParseAddr("2001:db8::1"), PDUTypeIPv4, 64
	case EndMGTP6E:
		s.Source = netip.MustParseAddr("2001:db8::1")
	case EndMGTP4E:
		s.SID, s.SourcePrefixLength = netip.MustParsePrefix("2001:db8:4e::/48"), 64
	}
	return s
}

func TestValidSIDs(t *testing.T) {
	for _, row := range Table() {
		if row.Headend {
			continue
		}
		if errs := valid(row.Behavior).Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", row.Name, errs)
		}
	}
	for name, change := range map[string]func(*LocalSID){
		"whole address":         func(s *LocalSID) { s.SID = netip.MustParsePrefix("2001:db8::1/128") },
		"all flavors":           func(s *LocalSID) { s.Flavors, s.BlockLength = Flavors(), 32 },
		"upper layer":           func(s *LocalSID) { s.AllowUpperLayer = true },
		"block one bit shorter": func(s *LocalSID) { s.Flavors, s.BlockLength = []Flavor{NextCSID}, 63 },
		"block of 48, with PSP": func(s *LocalSID) { s.Flavors, s.BlockLength = []Flavor{NextCSID, PSP}, 48 },
	} {
		s := valid(End)
		change(&s)
		if errs := s.Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	tenant := valid(EndDT46)
	tenant.Table, tenant.Tenant = 0, 7
	if errs := tenant.Validate(); len(errs) > 0 {
		t.Errorf("the table of a tenant: %v", errs)
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// Each row is one mutation of a valid SID, and the one error it gets.
func TestInvalidSIDs(t *testing.T) {
	for _, tt := range []struct {
		behavior Behavior
		change   func(*LocalSID)
		want     string // field: part of the problem
	}{
		{End, func(s *LocalSID) { s.SID = netip.Prefix{} }, "sid: is missing"},
		{End, func(s *LocalSID) { s.SID = prefix("::/0") }, "sid: ::/0 is every address"},
		{End, func(s *LocalSID) { s.SID = prefix("10.0.0.0/8") }, "sid: 10.0.0.0 is an IPv4 address"},
		{End, func(s *LocalSID) { s.SID = prefix("2001:db8::1/64") }, "sid: 2001:db8::1/64 has bits behind its length"},
		{End, func(s *LocalSID) { s.SID = prefix("fe80::/64") }, "sid: fe80:: is a link-local"},
		{End, func(s *LocalSID) { s.SID = prefix("ff0e::/64") }, "sid: ff0e:: is a multicast"},
		{End, func(s *LocalSID) { s.SID = prefix("::1/128") }, "sid: ::1 is a loopback"},
		{End, func(s *LocalSID) { s.Behavior = BehaviorNone }, "behavior: is missing"},
		{End, func(s *LocalSID) { s.Behavior = 99 }, "behavior: Behavior(99) is unknown"},
		{End, func(s *LocalSID) { s.Behavior = HEncapsRed }, "behavior: H.Encaps.Red is a headend"},
		{End, func(s *LocalSID) { s.Table = 254 }, "table: is not a parameter of End"},
		{EndMAP, func(s *LocalSID) { s.AllowUpperLayer = true }, "allow_upper_layer: is not a parameter of End.MAP"},
		{EndMAP, func(s *LocalSID) { s.BlockLength = 32 }, "block_length: is not a parameter of End.MAP"},
		{EndMAP, func(s *LocalSID) { s.Map = netip.Addr{} }, "map: is missing: End.MAP needs it"},
		{EndMAP, func(s *LocalSID) { s.Map = addr("192.0.2.1") }, "map: 192.0.2.1 is an IPv4"},
		{EndMAP, func(s *LocalSID) { s.Map = addr("2001:db8:1:e000::5") }, "map: 2001:db8:1:e000::5 is the SID itself"},
		{EndT, func(s *LocalSID) { s.Table = 0 }, "table: is missing: End.T needs it"},
		{EndT, func(s *LocalSID) { s.Table = 1 << 29 }, "table: 536870912 is too large"},
		{EndX, func(s *LocalSID) { s.NextHop = netip.Addr{} }, "next_hop: is missing: End.X needs next_hop or interface"},
		{EndX, func(s *LocalSID) { s.NextHop = addr("192.0.2.1") }, "next_hop: 192.0.2.1 is not an IPv6"},
		{EndX, func(s *LocalSID) { s.NextHop = addr("::ffff:192.0.2.1") }, "next_hop: ::ffff:192.0.2.1 is not an IPv6"},
		{EndX, func(s *LocalSID) { s.NextHop = addr("fe80::1") }, "next_hop: fe80::1 is a link-local"},
		{EndX, func(s *LocalSID) { s.NextHop = addr("fe80::1%eth0") }, "next_hop: fe80::1%eth0 has a zone"},
		{EndDX6, func(s *LocalSID) { s.NextHop = addr("::") }, "next_hop: :: is not the address of one"},
		{EndDX4, func(s *LocalSID) { s.NextHop = addr("2001:db8::2") }, "next_hop: 2001:db8::2 is not an IPv4"},
		{EndDX2, func(s *LocalSID) { s.Interface = "" }, "interface: is missing: End.DX2"},
		{End, func(s *LocalSID) { s.Flavors = []Flavor{PSP, USD, PSP} }, "flavors[2]: PSP is given twice"},
		{EndDT4, func(s *LocalSID) { s.Flavors = []Flavor{PSP} }, "flavors[0]: End.DT4 has no flavor PSP"},
		{EndMAP, func(s *LocalSID) { s.Flavors = []Flavor{PSP} }, "flavors[0]: End.MAP has no flavor PSP"},
		{End, func(s *LocalSID) { s.BlockLength = 32 }, "block_length: belongs to the flavor NEXT-C-SID"},
		{End, func(s *LocalSID) { s.Flavors = []Flavor{NextCSID} }, "block_length: is missing"},
		{End, func(s *LocalSID) { s.Flavors, s.BlockLength = []Flavor{NextCSID}, 64 }, "block_length: 64 leaves no C-SID"},
		{EndB6Encaps, func(s *LocalSID) { s.Policy = "" }, "policy: is missing: End.B6.Encaps"},
		{EndLimit, func(s *LocalSID) { s.RateBits = 0 }, "rate_bits: is missing"},
		{EndLimit, func(s *LocalSID) { s.RateBits = 33 }, "rate_bits: 33 is too long"},
		{EndLimit, func(s *LocalSID) { s.GroupBits = 41 }, "group_bits: LOC:FUNC, group and rate have 129 bits"},
		{EndLimit, func(s *LocalSID) { s.SID, s.GroupBits = prefix("2001:db8::/32"), 65 }, "group_bits: 65 is too long"},
		{EndLimit, func(s *LocalSID) { s.RateUnit = 4294968 }, "rate_unit: 4294968 kbit/s is too much"},
		{EndMGTP6D, func(s *LocalSID) { s.ArgsOffset = 89 }, "args_offset: 89 leaves no room"},
		{EndMGTP6D, func(s *LocalSID) { s.ArgsOffset = 0 }, "args_offset: is missing"},
		{EndMGTP6D, func(s *LocalSID) { s.PDUType = PDUTypeNone }, "pdu_type: is missing"},
		{EndMGTP6D, func(s *LocalSID) { s.Source = addr("10.0.0.1") }, "source: 10.0.0.1 is an IPv4"},
		{EndMGTP6DDi, func(s *LocalSID) { s.Policy = "" }, "policy: is missing"},
		{EndMGTP6E, func(s *LocalSID) { s.SID = prefix("2001:db8::/89") }, "sid: LOC:FUNC of 89 bits leaves no room"},
		{EndMGTP6E, func(s *LocalSID) { s.Source = netip.Addr{} }, "source: is missing"},
		{EndMGTP4E, func(s *LocalSID) { s.SID = prefix("2001:db8::/57") }, "sid: LOC:FUNC of 57 bits leaves no room"},
		{EndMGTP4E, func(s *LocalSID) { s.SourcePrefixLength = 97 }, "source_prefix_length: 97 leaves no room"},
		{EndMGTP4E, func(s *LocalSID) { s.SourcePrefixLength = 0 }, "source_prefix_length: is missing"},
		{EndMGTP4E, func(s *LocalSID) { s.PDUType = PDUTypeIPv4 }, "pdu_type: is not a parameter of End.M.GTP4.E"},
	} {
		s := valid(tt.behavior)
		tt.change(&s)
		errs := s.Validate()
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tt.want) {
			t.Errorf("%v: want %q, got %v", tt.behavior, tt.want, errs)
			continue
		}
		if errs[0].Fix == "" {
			t.Errorf("%v: %q has no fix", tt.behavior, errs[0])
		}
	}
}

func TestLimitsOfLengthsAreTaken(t *testing.T) {
	gtp6 := valid(EndMGTP6E)
	gtp6.SID = prefix("2001:db8::/88")
	gtp4 := valid(EndMGTP4E)
	gtp4.SID, gtp4.SourcePrefixLength = prefix("2001:db8::/56"), 96
	limit := valid(EndLimit)
	limit.GroupBits, limit.RateUnit = 40, 4294967
	d := valid(EndMGTP6D)
	d.ArgsOffset = 88
	for _, s := range []LocalSID{gtp6, gtp4, limit, d} {
		if errs := s.Validate(); len(errs) > 0 {
			t.Errorf("%v %v: %v", s.SID, s.Behavior, errs)
		}
	}
}

func TestAllErrorsAreCollected(t *testing.T) {
	s := LocalSID{SID: prefix("2001:db8::1/64"), Behavior: EndMGTP6D, Table: 1, Flavors: []Flavor{USD}}
	var fields []string
	for _, e := range s.Validate() {
		fields = append(fields, e.Field)
	}
	const want = "sid table policy source pdu_type args_offset flavors[0]"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("fields with errors are %q, want %q", got, want)
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "to-upf.2", "S1:uplink", strings.Repeat("x", 63), "1"} {
		if errs := CheckName("name", name); errs != nil {
			t.Errorf("%q: %v", name, errs)
		}
	}
	for _, name := range []string{"", "-a", "a b", "a/b", "ä", "a\n", strings.Repeat("x", 64)} {
		if errs := CheckName("name", name); len(errs) != 1 || errs[0].Field != "name" {
			t.Errorf("%q: %v", name, errs)
		}
	}
}

func TestCheckUnicast(t *testing.T) {
	for _, a := range []string{"192.0.2.1", "2001:db8::1", "fd00::1"} {
		if errs := CheckUnicast("remote", addr(a)); errs != nil {
			t.Errorf("%s: %v", a, errs)
		}
	}
	for _, a := range []string{"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.0.1",
		"::", "::1", "ff02::1", "fe80::1", "fe80::1%eth0", "::ffff:192.0.2.1"} {
		if errs := CheckUnicast("remote", addr(a)); len(errs) != 1 {
			t.Errorf("%s: %v", a, errs)
		}
	}
	if errs := CheckUnicast("remote", netip.Addr{}); len(errs) != 1 {
		t.Errorf("no address: %v", errs)
	}
}
