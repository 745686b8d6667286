package srpolicy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/srv6"
)

func translation() Steering {
	return Steering{Prefix: prefix("10.99.0.0/24"), GTP4D: &GTP4D{SIDPrefix: prefix("2001:db8:4e::/48"),
		SourcePrefix: prefix("2001:db8:2::1/64"), PDUType: srv6.PDUTypeIPv4v6}}
}

func TestValidSteering(t *testing.T) {
	longest := translation()
	longest.GTP4D.SIDPrefix, longest.GTP4D.SourcePrefix = prefix("2001:db8:4e::/56"), prefix("2001:db8:2::/96")
	longest.GTP4D.Policy = "core"
	for name, s := range map[string]Steering{
		"IPv6 into a policy":  {Prefix: prefix("2001:db8:9::/48"), Policy: "core"},
		"default route":       {Prefix: prefix("0.0.0.0/0"), Policy: "core"},
		"into a tunnel":       {Prefix: prefix("10.45.0.2/32"), Tunnel: "ue1"},
		"prefix of interface": {Prefix: prefix("10.0.0.0/8"), Interface: "eth1", Policy: "core"},
		"interface":           {Interface: "eth1", Policy: "core"},
		"two tags":            {Interface: "eth1", VLANs: []uint16{1, 4094}, Policy: "core"},
		"H.M.GTP4.D":          translation(),
		"longest prefixes":    longest,
	} {
		if errs := s.Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

func TestInvalidSteering(t *testing.T) {
	change := func(f func(*Steering)) Steering {
		s := translation()
		f(&s)
		return s
	}
	for want, s := range map[string]Steering{
		"prefix: nothing says which":        {Policy: "core"},
		"prefix: 10.0.0.1/8 has bits":       {Prefix: prefix("10.0.0.1/8"), Policy: "core"},
		"prefix: ::ffff:10.0.0.0/104 is":    {Prefix: netip.PrefixFrom(addr("::ffff:10.0.0.0"), 104), Policy: "core"},
		"vlans: are matched only":           {Prefix: prefix("10.0.0.0/8"), VLANs: []uint16{5}, Policy: "core"},
		"vlans: are matched":                {Prefix: prefix("10.0.0.0/8"), Interface: "eth1", VLANs: []uint16{5}, Policy: "core"},
		"vlans: has 3 tags":                 {Interface: "eth1", VLANs: []uint16{1, 2, 3}, Policy: "core"},
		"vlans[1]: 4095 is not":             {Interface: "eth1", VLANs: []uint16{1, 4095}, Policy: "core"},
		"vlans[0]: 0 is not":                {Interface: "eth1", VLANs: []uint16{0}, Policy: "core"},
		"policy: nothing says where":        {Interface: "eth1"},
		"tunnel: stands beside policy":      {Interface: "eth1", Policy: "core", Tunnel: "ue1"},
		"h_m_gtp4_d: stands beside tunnel":  change(func(s *Steering) { s.Tunnel = "ue1" }),
		"h_m_gtp4_d: takes GTP-U to an":     change(func(s *Steering) { s.Prefix = prefix("2001:db8::/32") }),
		"h_m_gtp4_d: takes":                 change(func(s *Steering) { s.Prefix, s.Interface = netip.Prefix{}, "eth1" }),
		"h_m_gtp4_d.sid_prefix: is missing": change(func(s *Steering) { s.GTP4D.SIDPrefix = netip.Prefix{} }),
		"h_m_gtp4_d.sid_prefix: is not":     change(func(s *Steering) { s.GTP4D.SIDPrefix = prefix("10.0.0.0/8") }),
		"h_m_gtp4_d.sid_prefix: 57 bits":    change(func(s *Steering) { s.GTP4D.SIDPrefix = prefix("2001:db8::/57") }),
		"h_m_gtp4_d.sid_prefix: 2001:db8::": change(func(s *Steering) { s.GTP4D.SIDPrefix = prefix("2001:db8::1/48") }),
		"h_m_gtp4_d.source_prefix: is miss": change(func(s *Steering) { s.GTP4D.SourcePrefix = netip.Prefix{} }),
		"h_m_gtp4_d.source_prefix: is not":  change(func(s *Steering) { s.GTP4D.SourcePrefix = prefix("10.0.0.0/8") }),
		"h_m_gtp4_d.source_prefix: 97 bits": change(func(s *Steering) { s.GTP4D.SourcePrefix = prefix("2001:db8::/97") }),
		"h_m_gtp4_d.pdu_type: is missing":   change(func(s *Steering) { s.GTP4D.PDUType = srv6.PDUTypeNone }),
	} {
		errs := s.Validate()
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) || errs[0].Fix == "" {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
}

func TestKey(t *testing.T) {
	for want, s := range map[string]Steering{
		"10.0.0.0/8":      {Prefix: prefix("10.0.0.1/8")},
		"2001:db8::/32":   {Prefix: prefix("2001:db8::/32")},
		"eth1":            {Interface: "eth1"},
		"10.0.0.0/8@eth1": {Prefix: prefix("10.0.0.1/8"), Interface: "eth1"},
		"eth1.100":        {Interface: "eth1", VLANs: []uint16{100}},
		"eth1.100.7":      {Interface: "eth1", VLANs: []uint16{100, 7}},
		"":                {},
	} {
		if got := s.Key(); got != want {
			t.Errorf("key of %+v is %q, want %q", s, got, want)
		}
	}
}
