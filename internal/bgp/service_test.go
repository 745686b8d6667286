package bgp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/overlay"
)

// As RFC 9252 sections 2, 3.1 and 3.2.1 draw them: a SID whose function is in the
// label, and one that is whole.
const (
	transposed = `
		c0 28 25 05 0022 00    # Prefix-SID, 37 octets; SRv6 L3 Service, 34
		   01 001e 00          # SID Information, 30
		      2001 0db8 0001 0001 0000 0000 0000 0000
		      00 0013 00       # flags, End.DT4
		      01 0006 28 18 10 00 10 40 # 40 + 24 + 16 + 0 bits; 16 from 64 on are in the label`
	whole = `
		c0 28 25 05 0022 00
		   01 001e 00
		      fc00 0000 0001 0004 0000 0000 0000 0000
		      00 0013 00
		      01 0006 20 10 10 00 00 00`
)

func attributes(t *testing.T, text string) []bgp.PathAttributeInterface {
	t.Helper()
	var list []bgp.PathAttributeInterface
	for b := unhex(t, text); len(b) > 0; {
		a, err := bgp.GetPathAttribute(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.DecodeFromBytes(b); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		list, b = append(list, a), b[a.Len():]
	}
	return list
}

func replaced(s string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(s) }

func TestServiceIsRead(t *testing.T) {
	label := func(v uint32) *uint32 { return &v }
	for name, tt := range map[string]struct {
		attrs string
		label *uint32
		want  service
	}{
		"transposed, all bits":    {transposed, label(0xffff0), service{addr("2001:db8:1:1:ffff::"), 19, 40, 24, 16, 0}},
		"transposed, first bit":   {transposed, label(0x80000), service{addr("2001:db8:1:1:8000::"), 19, 40, 24, 16, 0}},
		"transposed, last bit":    {transposed, label(0x00010), service{addr("2001:db8:1:1:1::"), 19, 40, 24, 16, 0}},
		"not transposed bits":     {transposed, label(0x0001f), service{addr("2001:db8:1:1:1::"), 19, 40, 24, 16, 0}},
		"20 bits, across octets":  {replaced(transposed, "28 18 10 00 10 40", "28 18 18 00 14 44"), label(0xabcde), service{addr("2001:db8:1:1:abc:de00::"), 19, 40, 24, 24, 0}},
		"label takes their place": {replaced(transposed, "0001 0000 0000 0000 0000", "0001 ffff 0000 0000 0000"), label(0x00010), service{addr("2001:db8:1:1:1::"), 19, 40, 24, 16, 0}},
		"whole, with a label":     {whole, label(3), service{addr("fc00:0:1:4::"), 19, 32, 16, 16, 0}},
		"whole, without":          {whole, nil, service{addr("fc00:0:1:4::"), 19, 32, 16, 16, 0}},
		"no structure":            {"c0 28 1c 05 0019 00 01 0015 00 fc00 0000 0001 0004 0000 0000 0000 0000 00 0014 00", nil, service{SID: addr("fc00:0:1:4::"), Behavior: 20}},
		// FRR 8.4 makes it so when it reflects the route (RFC 9252 section 5: opaque).
		"an opaque behaviour":   {"c0 28 1c 05 0019 00 01 0015 00 fc00 0000 0001 0004 0000 0000 0000 0000 00 ffff 00", nil, service{SID: addr("fc00:0:1:4::"), Behavior: 0xffff}},
		"an unknown TLV before": {"c0 28 22 63 0003 aabbcc 05 0019 00 01 0015 00 fc00 0000 0001 0004 0000 0000 0000 0000 00 0014 00", nil, service{SID: addr("fc00:0:1:4::"), Behavior: 20}},
		"an unknown sub-TLV":    {"c0 28 21 05 001e 00 63 0002 aabb 01 0015 00 fc00 0000 0001 0004 0000 0000 0000 0000 00 0014 00", nil, service{SID: addr("fc00:0:1:4::"), Behavior: 20}},
	} {
		got, err := readService(attributes(t, tt.attrs), tt.label)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
	}
}

// Each is one mutation of what is sound.
func TestMalformedServices(t *testing.T) {
	label := uint32(0x00010)
	structure := func(s string) string { return strings.Replace(transposed, "28 18 10 00 10 40", s, 1) }
	for name, tt := range map[string]struct {
		attrs string
		label *uint32
		want  string
	}{
		"no label to hold it":    {transposed, nil, "no label"},
		"more than a label":      {structure("28 18 20 00 15 40"), &label, "21 bits of its SID"},
		"more than the function": {structure("28 18 10 10 12 40"), &label, "18 bits of its SID"},
		"behind the end":         {structure("28 18 10 00 10 41"), &label, "bits up to 81"},
		"too long":               {structure("28 18 10 31 10 40"), &label, "129 bits"},
		"no SID":                 {"c0 28 04 05 0001 00", nil, "has no SID"},
		"no address":             {strings.Replace(whole, "fc00", "ff02", 1), nil, "multicast"},
		"nothing":                {strings.Replace(whole, "fc00 0000 0001 0004", "0000 0000 0000 0000", 1), nil, "unspecified"},
	} {
		if got, err := readService(attributes(t, tt.attrs), tt.label); !errors.Is(err, errMalformed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, tt.want)
		}
	}
	for name, attrs := range map[string]string{
		"no attribute": "40 01 01 00", "an SR-MPLS one": "c0 28 0a 01 0007 00 0000 00000064",
		"layer 2": "c0 28 1c 06 0019 00 01 0015 00 fc00 0000 0001 0004 0000 0000 0000 0000 00 0014 00",
	} {
		if got, err := readService(attributes(t, attrs), nil); !errors.Is(err, errNoService) {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, errNoService)
		}
	}
}

func TestServiceBytes(t *testing.T) {
	n := nodeOf("1")
	for name, tt := range map[string]struct {
		ipv4   bool
		change func(*overlay.Node)
		want   string
	}{
		"End.DT4":    {true, nil, whole},
		"End.DT6":    {false, nil, strings.NewReplacer("0001 0004", "0001 0006", "0013", "0012").Replace(whole)},
		"End.DT46":   {true, func(n *overlay.Node) { n.IPv6 = n.IPv4 }, strings.Replace(whole, "0013", "0014", 1)},
		"no locator": {true, func(n *overlay.Node) { n.Locator = netip.Prefix{} }, "c0 28 1c 05 0019 00 01 0015 00 fc00 0000 0001 0004 0000 0000 0000 0000 00 0013 00"},
		"another's":  {true, func(n *overlay.Node) { n.Locator = prefix("fc00:0:2::/48") }, "c0 28 1c 05 0019 00 01 0015 00 fc00 0000 0001 0004 0000 0000 0000 0000 00 0013 00"},
		"long locator": {true, func(n *overlay.Node) {
			n.Locator = prefix("fc00:0:1::/64")
			n.IPv4 = []netip.Addr{addr("fc00:0:1::4:0:0:0")}
		}, "c0 28 25 05 0022 00 01 001e 00 fc00 0000 0001 0000 0004 0000 0000 0000 00 0013 00 01 0006 30 10 10 00 00 00"},
	} {
		own := n
		if tt.change != nil {
			tt.change(&own)
		}
		s, err := serviceOf(own, tt.ipv4)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := writeService(s).Serialize()
		if want := unhex(t, tt.want); err != nil || string(got) != string(want) {
			t.Errorf("%s:\n%x, want\n%x (%v)", name, got, want, err)
		}
	}
	n.IPv4 = []netip.Addr{addr("2001:db8::1"), addr("fd11::4")}
	if _, err := serviceOf(n, true); err == nil {
		t.Error("two segments cannot be one SID")
	}
}
