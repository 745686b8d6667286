package session

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFilter(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, tt := range []struct {
		text string
		want Filter
	}{
		{"permit out ip from any to assigned", Filter{AnyProtocol: true}},
		{"permit out 58 from ff02::2/128 to assigned", Filter{Protocol: 58, Remote: prefix("ff02::2/128")}},
		{"permit out 17 from 192.0.2.1 53 to 10.1.2.3 1024-65535", Filter{
			Protocol: 17, Remote: prefix("192.0.2.1/32"), Local: prefix("10.1.2.3/32"),
			RemotePorts: []PortRange{{53, 53}}, LocalPorts: []PortRange{{1024, 65535}},
		}},
		{"permit in 6 from 10.1.2.3/8 4000 to 192.0.2.77/24 80,443,8000-8010", Filter{
			Protocol: 6, Remote: prefix("192.0.2.0/24"), Local: prefix("10.0.0.0/8"),
			RemotePorts: []PortRange{{80, 80}, {443, 443}, {8000, 8010}}, LocalPorts: []PortRange{{4000, 4000}},
		}},
		{"  permit  out 6 from any 80 to any 0-0 ", Filter{
			Protocol: 6, RemotePorts: []PortRange{{80, 80}}, LocalPorts: []PortRange{{0, 0}},
		}},
		{"permit out udp from 10.99.0.1/32 5001 to assigned", Filter{
			Protocol: 17, Remote: prefix("10.99.0.1/32"), RemotePorts: []PortRange{{5001, 5001}},
		}},
		{"permit out 0 from 2001:db8::/32 to any", Filter{Remote: prefix("2001:db8::/32")}},
	} {
		got, err := ParseFilter(tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		tt.want.Text = tt.text
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
}

func TestParseFilterRefuses(t *testing.T) {
	for _, text := range []string{
		"",
		"permit",
		"deny out ip from any to any",
		"permit through ip from any to any",
		"permit out tls from any to any",
		"permit out 256 from any to any",
		"permit out -1 from any to any",
		"permit out ip to any from any",
		"permit out ip from any",
		"permit out ip from any to",
		"permit out ip from !10.0.0.0/8 to any",
		"permit out ip from 10.0.0.0/33 to any",
		"permit out ip from 10.0.0.256 to any",
		"permit out ip from fe80::1%eth0 to any",
		"permit out ip from 10.0.0.1 to 2001:db8::1",
		"permit out 17 from any 65536 to any",
		"permit out 17 from any 20-10 to any",
		"permit out 17 from any 1, to any",
		"permit out 17 from any 1-2-3 to any",
		"permit out 6 from any to any established",
		"permit out 6 from any to any 80 frag",
		"\x00\xff\xfe",
	} {
		if f, err := ParseFilter(text); err == nil {
			t.Errorf("%q was read as %+v", text, f)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add("permit out 17 from 192.0.2.1 53 to assigned 1-2,3")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseFilter(text)
		if err != nil {
			return
		}
		// What was read is read the same again.
		again, err := ParseFilter(got.Text)
		if err != nil || !cmp.Equal(got, again, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) {
			t.Errorf("%q: %+v, then %+v (%v)", text, got, again, err)
		}
	})
}
