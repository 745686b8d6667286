package catalog

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/smf"
)

// What the report is to hold (docs/reference/semantics.md names them).
var everything = []string{
	"l2_forward", "end", "end_x", "end_t", "end_dt4", "end_dt6", "end_dt46", "end_dx2", "end_dx4", "end_dx6",
	"end_b6_encaps_red", "h_encaps", "h_encaps_red", "h_encaps_l2_red", "gtpu_decap", "gtpu_encap", "gtpu_switch",
	"h_m_gtp4_d", "end_m_gtp4_e", "end_m_gtp6_d", "end_m_gtp6_d_di", "end_m_gtp6_e", "end_map", "usid",
}

func TestEveryFunctionIsThere(t *testing.T) {
	got := Names(Functions(ShortSize))
	want := slices.Clone(everything)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("functions are %v, want %v", got, want)
	}
	for _, name := range got {
		if !regexp.MustCompile(`^[a-z0-9_]+$`).MatchString(name) {
			t.Errorf("%q is no name", name)
		}
	}
}

// Those of real cores are there, by the names that docs/how-to/measure.md has.
func TestEveryShapeOfSessionsIsThere(t *testing.T) {
	want := []string{
		BaselineName, "uplink_destinations_1000", "uplink_destinations_100000", "free5gc_ipv6_uplink_destinations_100000",
		"nat44_uplink_destinations_100000", "uplink_ecmp", "uplink_ecmp_100000", "srv6_uplink", "framed_downlink_100000",
	}
	for _, name := range []string{
		"%s", "%s_plain", "open5gs_%s", "free5gc_%s", "open5gs_flow_%s", "free5gc_flow_%s", "nat44_%s", "framed_%s", "open5gs_ipv6_%s", "free5gc_ipv6_%s", "%s_filters_1", "%s_filters_4", "%s_filters_16", "%s_filters_16_near",
	} {
		want = append(want, fmt.Sprintf(name, "uplink"), fmt.Sprintf(name, "downlink"))
	}
	got := Names(UPFFunctions(ShortSize))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("functions are %v, want %v", got, want)
	}
}

func TestConfigurationIsValid(t *testing.T) {
	for _, entries := range []uint32{1, 1000, 5000} {
		c := Configuration(Variants(Functions(ShortSize)), entries)
		c.SetDefaults()
		if err := c.Validate(); err != nil {
			t.Errorf("with %d entries: %v", entries, err)
		}
	}
}

// Frames are those of the papers: 64 octets with FCS for L2, 100 with GTP-U
// and 104 with SRv6 around the same packet.
func TestFrameLengths(t *testing.T) {
	want := map[string]int{"l2_forward": 64, "gtpu_encap": 64, "gtpu_decap": 100, "h_m_gtp4_d": 100, "end_dt4": 104, "end_m_gtp4_e": 104}
	for _, f := range Functions(ShortSize) {
		if n, ok := want[f.Name]; ok && len(f.Data)+4 != n {
			t.Errorf("%s: frame of %d octets, want %d", f.Name, len(f.Data)+4, n)
		}
	}
}

// What Prepare is given must be the entries' keys, and a right IPv4 header.
func TestFramesOfEntries(t *testing.T) {
	for _, f := range Functions(ShortSize) {
		for _, entries := range []uint32{1, 1000} {
			if entries > f.Most {
				continue
			}
			frame := f.Frame(entries, 1000)
			if binary.BigEndian.Uint16(frame.Data[12:]) == rig.TypeIPv4 && checksum.Of(frame.Data[rig.LenEthernet:][:rig.LenIPv4], 0) != 0 {
				t.Errorf("%s: the IPv4 header checksum is wrong", f.Name)
			}
			if f.Key.Offset == 0 {
				continue
			}
			if frame.Keys != entries {
				t.Errorf("%s: %d keys, want %d", f.Name, frame.Keys, entries)
			}
			if got := binary.BigEndian.Uint32(frame.Data[frame.Key.Offset:]); got != frame.Key.Base {
				t.Errorf("%s: the first key is %#x, want %#x", f.Name, got, frame.Key.Base)
			}
		}
	}
}

// Packets of UEs with IPv6 have a right UDP checksum, whoever's the first is.
func TestChecksumsOfUEs(t *testing.T) {
	for _, f := range UPFFunctions(ShortSize) {
		if f.Sessions == nil || !f.Sessions.UE6 {
			continue
		}
		at := rig.LenEthernet
		if f.gtpuAt() != 0 {
			at = uplinkInner
		}
		ip := f.Frame(1000, 1000).Data[at:]
		udp := ip[rig.LenIPv6:]
		if got := checksum.Of(slices.Concat(ip[8:40], udp), rig.ProtoUDP+uint32(len(udp))); got != 0 {
			t.Errorf("%s: the UDP checksum is wrong by %#x", f.Name, got)
		}
	}
}

func TestWantFindsFaults(t *testing.T) {
	good := packet4(Inner4, Dst4, ShortSize, true).frame()
	w := rig.WantIPv4(Dst4, rig.ProtoUDP, 26)
	if err := w.Check(good, len(good)); err != nil {
		t.Fatalf("a good frame: %v", err)
	}
	kind := uint16(rig.TypeIPv6)
	other := packet4(Inner4, Dst4, ShortSize, true).in(packet.Ethernet{Type: &kind})
	for name, bad := range map[string]struct {
		frame  []byte
		length int
		says   string
	}{
		"another type":        {packet.Frame(other...), len(good), "type"},
		"longer":              {good, len(good) + 4, "octets"},
		"cut short":           {good[:20], 20, "too few"},
		"another protocol":    {stack{ipv4(Inner4, Dst4), packet.Payload{Data: make(packet.Hex, 26), Proto: rig.ProtoIPv6}}.frame(), len(good), "protocol"},
		"another destination": {packet4(Inner4, GNB, ShortSize, true).frame(), len(good), "goes to"},
	} {
		if err := w.Check(bad.frame, bad.length); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v, want one about %q", name, err, bad.says)
		}
	}
	for _, f := range Functions(ShortSize) {
		if err := rig.WantLike(f.Data).Check(f.Data, len(f.Data)); err != nil {
			t.Errorf("%s: its frame is not like itself: %v", f.Name, err)
		}
	}
}

// Sessions of one place are the same.
func TestAPlaceIsOneGroups(t *testing.T) {
	groups := map[[2]uint32]*Sessions{}
	for _, f := range Variants(UPFFunctions(ShortSize))[1:] {
		s := f.Sessions
		before := groups[s.ID()]
		if before == nil {
			groups[s.ID()] = s
			continue
		}
		var specs [2]smf.Spec
		var rest [2]Sessions
		for i, one := range []*Sessions{before, s} {
			one.Spec(&specs[i])
			rest[i] = *one
			rest[i].Spec = nil
		}
		if !reflect.DeepEqual(specs[0], specs[1]) || !reflect.DeepEqual(rest[0], rest[1]) {
			t.Errorf("%s: another group has place %d too", f.Name, s.Place)
		}
	}
}

// Groups of sessions, of few and of many, never have a session in common.
func TestGroupsAreApart(t *testing.T) {
	for _, tables := range []uint32{1, 500, 1000, 5000, 1_000_000} {
		type span struct{ from, to uint32 }
		var spans []span
		seen := map[[2]uint32]bool{}
		for _, f := range Variants(UPFFunctions(ShortSize))[1:] {
			if s := f.Sessions; !seen[s.ID()] {
				seen[s.ID()] = true
				first := s.First(tables)
				spans = append(spans, span{first, first + min(s.Entries(), tables)})
			}
		}
		slices.SortFunc(spans, func(a, b span) int { return int(a.from) - int(b.from) })
		for i := 1; i < len(spans); i++ {
			if spans[i].from < spans[i-1].to {
				t.Errorf("%d of each: %v and %v overlap", tables, spans[i-1], spans[i])
			}
		}
	}
}

// TestChosenTEIDs: an uplink's frames have the TEIDs that the UPF chose, each with the address of its UE.
func TestChosenTEIDs(t *testing.T) {
	teids := []uint32{0x8100_0203, 0x2200_0201, 0x0f00_0204}
	functions := UPFFunctions(ShortSize)
	frame := func(name string, teids []uint32) progrun.Frame {
		f := functions[slices.Index(Names(functions), name)]
		return f.WithTEIDs(f.Frame(2, 3), teids)
	}
	got, counted := frame("open5gs_uplink", teids), frame("open5gs_uplink", nil)
	want := []progrun.Pair{{Key: teids[0]}, {Key: teids[1], Twin: 1}}
	if !slices.Equal(got.Pairs, want) || got.Key.Base != 0 || got.Twin != counted.Twin {
		t.Errorf("%+v", got)
	}
	if first := binary.BigEndian.Uint32(got.Data[got.Key.Offset:]); first != teids[0] {
		t.Errorf("the first TEID is %#x", first)
	}
	if counted.Pairs != nil || counted.Key.Base == 0 {
		t.Errorf("without TEIDs that the UPF chose: %+v", counted)
	}
	many := frame("nat44_uplink_destinations_100000", teids)
	if first := binary.BigEndian.Uint32(many.Data[uplinkTEID:]); first != teids[0] || many.Pairs != nil || many.Keys != manyDestinations {
		t.Errorf("one session's frames have TEID %#x: %+v", first, many)
	}
	if down := frame("open5gs_downlink", teids); down.Pairs != nil {
		t.Errorf("a downlink's frames have TEIDs: %+v", down)
	}
}
