package rules

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/class"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func ptr[T any](v T) *T { return &v }

func compiled(s *session.Session, l *slice.Slice) (datapath.Session, error) {
	in := Input{Session: s, Slice: l, VPN: 9}
	if l != nil {
		in.Index = 3
	}
	return Compile(in)
}

// TestFlows: a rule's flow is of its slice, policy and QFI. Without a QER's QFI that is the only
// one of the PDI.
func TestFlows(t *testing.T) {
	n9 := slice.N9{Transport: slice.SRv6, Mode: slice.Enhanced, UplinkPolicy: "up", DownlinkPolicy: "down"}
	for _, tt := range []struct {
		name     string
		qer      *uint8
		pdi      []uint8
		up, down uint8
	}{
		{"of the QER", ptr(uint8(9)), []uint8{9}, 9, 9},
		{"only the PDI says", nil, []uint8{7}, 7, class.NoQFI},
		{"the QER says another one", ptr(uint8(9)), []uint8{7}, 9, 9},
		{"several in the PDI", nil, []uint8{7, 9}, class.NoQFI, class.NoQFI},
	} {
		s := sample.Session(1)
		s.QERs[0].QFI, s.PDRs[0].PDI.QFIs = tt.qer, tt.pdi
		got, err := compiled(s, &slice.Slice{Name: "a", N9: &n9})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []class.SessionFlow{{Slice: "a", Policy: "up", QFI: tt.up}, {Slice: "a", Policy: "down", QFI: tt.down}} {
			if f := got.Rules[i].Forward; f.Kind != datapath.ForwardPolicy || f.Flow != want {
				t.Errorf("%s: rule %d is %+v, want %+v", tt.name, i, f.Flow, want)
			}
		}
	}
}

func TestCompile(t *testing.T) {
	srv6 := &slice.Slice{Name: "a", Table: 100, N9: &slice.N9{Transport: slice.SRv6, Uplink: addr("fc00::1"),
		LocalSID: netip.MustParsePrefix("fc00:1::/64")}}
	enhanced := &slice.Slice{Name: "a", N9: &slice.N9{Transport: slice.SRv6, Mode: slice.Enhanced, DownlinkPolicy: "back"}}
	anchor := &slice.Slice{Name: "a", N9: &slice.N9{Transport: slice.GTPU, LocalSID: netip.MustParsePrefix("fc00:1::/64")}}
	args := &slice.Slice{Name: "a", N9: &slice.N9{Transport: slice.SRv6, Uplink: addr("fc00::1"), ArgsOffset: 64}}
	atSID := func(ues ...string) datapath.AtSID { return datapath.AtSID{Slice: 3, UEs: sample.Prefixes(ues...)} }
	up := datapath.Rule{ID: 1, Precedence: 255, TEID: 1<<24 + 1, Sources: sample.Prefixes("10.0.0.1/32"), QFIs: 1 << 9,
		Action: datapath.ActionForward, Rate: 1e6}
	down := datapath.Rule{ID: 2, Precedence: 255, Direction: datapath.Downlink, Destinations: sample.Prefixes("10.0.0.1/32"),
		Action: datapath.ActionForward, Rate: 1e6, QFI: 9, Container: datapath.ContainerDownlink,
		Forward: datapath.Forwarding{Kind: datapath.ForwardGTPU, Remote: addr("192.0.2.3"), TEID: 2}}
	with := func(r datapath.Rule, f func(*datapath.Rule)) datapath.Rule { f(&r); return r }
	nothing := func(r *datapath.Rule) { r.QFI, r.Container, r.Forward = 0, 0, datapath.Forwarding{} }
	for _, tt := range []struct {
		name   string
		slice  *slice.Slice
		change func(*session.Session)
		want   []datapath.Rule
	}{
		{"ordinary", nil, func(*session.Session) {}, []datapath.Rule{up, down}},
		{"free5GC before the gNB is known: no Outer Header Creation", nil, func(s *session.Session) { s.FARs[1].Forwarding.Outer = nil },
			[]datapath.Rule{up, with(down, func(r *datapath.Rule) { nothing(r); r.Action = datapath.ActionDrop })}},
		{"idle", nil, func(s *session.Session) { s.FARs[1].Action = session.Buffer | session.Notify },
			[]datapath.Rule{up, with(down, func(r *datapath.Rule) { nothing(r); r.Action = datapath.ActionBuffer })}},
		{"drop stands before buffer", nil, func(s *session.Session) { s.FARs[1].Action = session.Buffer | session.Drop },
			[]datapath.Rule{up, with(down, func(r *datapath.Rule) { nothing(r); r.Action = datapath.ActionDrop })}},
		{"a gate each way", nil, func(s *session.Session) { s.QERs[0].UplinkClosed = true },
			[]datapath.Rule{with(up, func(r *datapath.Rule) { r.Action = datapath.ActionGate }), down}},
		{"marking", nil, func(s *session.Session) { s.FARs[1].Forwarding.ToS, s.FARs[1].Forwarding.ToSMask = 0xb8, 0xfc },
			[]datapath.Rule{up, with(down, func(r *datapath.Rule) { r.Forward.ToS, r.Forward.ToSMask = 0xb8, 0xfc })}},
		{"reflective QoS", nil, func(s *session.Session) { s.QERs[0].Reflective = true },
			[]datapath.Rule{up, with(down, func(r *datapath.Rule) { r.RQI = true })}},
		{"a VPN whose routes are imported, and never a table", &slice.Slice{Name: "a", VPN: &slice.VPN{Import: []string{"65001:7"}}}, func(*session.Session) {},
			[]datapath.Rule{with(up, func(r *datapath.Rule) {
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardVPN, VPN: 9, Slice: 3, Group: datapath.GroupOf(datapath.UEToUEDrop, 3, "internet")}
			}), with(down, func(r *datapath.Rule) {
				r.Forward.Slice, r.Group = 3, datapath.GroupOf(datapath.UEToUEDrop, 3, "internet")
			})}},
		{"to other UEs (N19)", nil, func(s *session.Session) { s.FARs[0].Forwarding.InterfaceType = ptr(session.TypeN19) },
			[]datapath.Rule{with(up, func(r *datapath.Rule) { r.Forward.Internal = true }), down}},
		{"duplicates", nil, func(s *session.Session) {
			s.FARs[0].Action |= session.Duplicate
			s.FARs[0].Duplicates = []session.Forwarding{{Destination: session.LIFunction}}
		}, []datapath.Rule{with(up, func(r *datapath.Rule) { r.Duplicate = true }), down}},
		{"N9 by GTP-U, with a container of its direction", nil, func(s *session.Session) {
			s.FARs[0].Forwarding.Outer = &session.OuterHeader{Addr: addr("2001:db8::9"), TEID: 77}
		}, []datapath.Rule{with(up, func(r *datapath.Rule) {
			r.QFI, r.Container = 9, datapath.ContainerUplink
			r.Forward = datapath.Forwarding{Kind: datapath.ForwardGTPU, Remote: addr("2001:db8::9"), TEID: 77}
		}), down}},
		{"to the SMF: any source, no container", nil, func(s *session.Session) {
			s.PDRs[0].PDI.UE = nil
			s.FARs[0].Forwarding = &session.Forwarding{Destination: session.CPFunction, Outer: &session.OuterHeader{Addr: addr("192.0.2.50"), TEID: 5}}
		}, []datapath.Rule{with(up, func(r *datapath.Rule) {
			r.Sources = nil
			r.Forward = datapath.Forwarding{Kind: datapath.ForwardGTPU, Remote: addr("192.0.2.50"), TEID: 5, Control: true}
		}), down}},
		{"the UE's addresses from the other PDR, and its networks", nil, func(s *session.Session) {
			s.PDRs[0].PDI.UE = nil
			s.PDRs[1].PDI.FramedRoutes = sample.Prefixes("10.9.0.0/24")
		}, []datapath.Rule{
			with(up, func(r *datapath.Rule) { r.Sources = sample.Prefixes("10.0.0.1/32", "10.9.0.0/24") }),
			with(down, func(r *datapath.Rule) { r.Destinations = sample.Prefixes("10.0.0.1/32", "10.9.0.0/24") })}},
		{"SRv6 instead of what the SMF says of N9, and its table", srv6, func(s *session.Session) {
			s.FARs[0].Forwarding.Outer = &session.OuterHeader{Addr: addr("192.0.2.9"), TEID: 77}
		}, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardSRv6, Remote: addr("fc00::1"), Slice: 3}
			}),
			with(down, func(r *datapath.Rule) { r.Forward.Slice = 3 })}},
		{"an I-UPF: the anchor sends by TEID, or to the SID", srv6, func(s *session.Session) { s.PDRs[1].PDI.TEID = 5 }, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardSRv6, Remote: addr("fc00::1"), Slice: 3}
			}),
			with(down, func(r *datapath.Rule) {
				r.TEID, r.Destinations, r.Forward.Slice, r.AtSID = 5, nil, 3, atSID("10.0.0.1/32")
			})}},
		{"an I-UPF whose SMF does not tell N3 from N9: uplink by TEID only", srv6, func(s *session.Session) {
			s.PDRs[0].PDI.InterfaceType, s.PDRs[1].PDI.TEID = nil, 5
		}, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardSRv6, Remote: addr("fc00::1"), Slice: 3}
				r.AtSID.Slice = 3
			}),
			with(down, func(r *datapath.Rule) {
				r.TEID, r.Destinations, r.Forward.Slice, r.AtSID = 5, nil, 3, atSID("10.0.0.1/32")
			})}},
		{"an UPF between two: both ways", srv6, func(s *session.Session) {
			s.PDRs[0].PDI.InterfaceType, s.PDRs[1].PDI.TEID = ptr(session.TypeN9), 5
		}, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardSRv6, Remote: addr("fc00::1"), Slice: 3}
				r.AtSID = atSID("10.0.0.1/32")
			}),
			with(down, func(r *datapath.Rule) {
				r.TEID, r.Destinations, r.Forward.Slice, r.AtSID = 5, nil, 3, atSID("10.0.0.1/32")
			})}},
		{"the anchor: uplink by TEID or to the SID, whatever the SMF calls it, and no downlink there", anchor, func(s *session.Session) {
			s.PDRs[0].PDI.FramedRoutes = sample.Prefixes("10.9.0.0/24")
		}, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.Sources = sample.Prefixes("10.0.0.1/32", "10.9.0.0/24")
				r.Forward.Slice, r.AtSID = 3, atSID("10.0.0.1/32")
			}),
			with(down, func(r *datapath.Rule) {
				r.Destinations = sample.Prefixes("10.0.0.1/32", "10.9.0.0/24")
				r.Forward.Slice = 3
			})}},
		{"an uplink classifier: N9 by the SID, the breakout by N6", srv6, func(s *session.Session) {
			s.PDRs = append(s.PDRs, s.PDRs[0])
			s.PDRs[2].ID, s.PDRs[2].Precedence, s.PDRs[2].FAR = 3, 100, 3
			s.FARs = append(s.FARs, s.FARs[0])
			s.FARs[2].ID, s.FARs[2].Forwarding = 3, &session.Forwarding{Destination: session.Core}
			s.FARs[0].Forwarding.Outer = &session.OuterHeader{Addr: addr("192.0.2.9"), TEID: 77}
		}, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.Rate, r.Meters = 0, []int{0}
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardSRv6, Remote: addr("fc00::1"), Slice: 3}
			}),
			with(down, func(r *datapath.Rule) { r.Forward.Slice = 3 }),
			with(up, func(r *datapath.Rule) {
				r.ID, r.Precedence, r.Rate, r.Meters = 3, 100, 0, []int{0}
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardTable, Table: 100, Slice: 3}
			})}},
		{"N6 by SRv6: what comes back to the SID meets the rule of N6", srv6, func(*session.Session) {}, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardSRv6, Remote: addr("fc00::1"), Slice: 3}
			}),
			with(down, func(r *datapath.Rule) { r.Forward.Slice, r.AtSID = 3, atSID("10.0.0.1/32") })}},
		{"SRv6 with an argument", args, func(s *session.Session) {
			s.FARs[0].Forwarding.Outer = &session.OuterHeader{Addr: addr("192.0.2.9"), TEID: 77}
		}, []datapath.Rule{
			with(up, func(r *datapath.Rule) {
				r.QFI = 9
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardSRv6, Remote: addr("fc00::1"), TEID: 77, ArgsOffset: 64, Slice: 3}
			}),
			with(down, func(r *datapath.Rule) { r.Forward.Slice = 3 })}},
		{"a policy towards the access", enhanced, func(*session.Session) {}, []datapath.Rule{
			with(up, func(r *datapath.Rule) { r.Forward.Slice = 3 }),
			with(down, func(r *datapath.Rule) {
				nothing(r)
				r.Forward = datapath.Forwarding{Kind: datapath.ForwardPolicy, Flow: class.SessionFlow{Slice: "a", Policy: "back", QFI: 9}, Slice: 3}
			})}},
	} {
		s := sample.Session(1)
		tt.change(s)
		got, err := compiled(s, tt.slice)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, got.Rules, sample.Same); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, d)
		}
	}
}

// The QER of the session's AMBR has the QFI of the default flow in free5GC's and SD-Core's
// sessions, and stands beside the QER of a dedicated one, in any order.
func TestFlowBesideAMBR(t *testing.T) {
	for _, qers := range [][]uint32{{2, 1}, {1, 2}} {
		s := sample.Session(1)
		s.PDRs = append(s.PDRs, s.PDRs[1])
		s.PDRs[2].ID, s.PDRs[2].QERs = 3, qers
		s.QERs = append(s.QERs, session.QER{ID: 2, QFI: ptr[uint8](5)})
		got, err := compiled(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ordinary, dedicated := got.Rules[1].QFI, got.Rules[2].QFI; ordinary != 9 || dedicated != 5 {
			t.Errorf("QERs %d: QFI %d of the dedicated flow, %d of the ordinary one; want 5, 9", qers, dedicated, ordinary)
		}
	}
}

func TestCompileRates(t *testing.T) {
	s := sample.Session(1)
	s.PDRs = append(s.PDRs, s.PDRs[1])
	s.PDRs[2].ID, s.PDRs[2].QERs = 3, []uint32{1, 2}
	s.PDRs[0].QERs = []uint32{1, 3}
	s.QERs = append(s.QERs,
		session.QER{ID: 2, MBR: &session.BitRate{Uplink: 1, Downlink: 500}},
		session.QER{ID: 3, MBR: &session.BitRate{Uplink: 2e6}, PacketRate: &session.PacketRates{Uplink: session.PacketRate{Packets: 10, Per: time.Minute}}})
	got, err := compiled(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	type limits struct {
		Rate   uint64
		Meters []int
	}
	want := []limits{{1e6, []int{0}}, {0, []int{1}}, {500, []int{1}}}
	for i, r := range got.Rules {
		if d := cmp.Diff(want[i], limits{r.Rate, r.Meters}); d != "" {
			t.Errorf("rule %d: %s", r.ID, d)
		}
	}
	if d := cmp.Diff([]datapath.Meter{{Packets: 10, Period: time.Minute}, {Rate: 1e6}}, got.Meters); d != "" {
		t.Error(d)
	}
}

func TestCompileRefuses(t *testing.T) {
	ports := make([]session.PortRange, 8)
	for _, tt := range []struct {
		name   string
		change func(*session.Session)
		want   error
		rule   session.RuleError
	}{
		{"65 filters", func(s *session.Session) {
			s.PDRs[0].PDI.Filters = []session.Filter{{RemotePorts: ports, LocalPorts: ports}, {}}
		}, pfcp.ErrNoResources, session.RuleError{Kind: session.RulePDR, ID: 1}},
		{"Ethernet", func(s *session.Session) { s.PDRs[1].PDI.Ethernet = make([]session.EthernetFilter, 1) },
			pfcp.ErrUnsupported, session.RuleError{Kind: session.RulePDR, ID: 2}},
		{"an outer header of UDP alone", func(s *session.Session) { s.FARs[1].Forwarding.Outer.Kind = session.OuterUDP },
			pfcp.ErrUnsupported, session.RuleError{Kind: session.RuleFAR, ID: 2}},
		{"to an LI function", func(s *session.Session) { s.FARs[0].Forwarding.Destination = session.LIFunction },
			pfcp.ErrUnsupported, session.RuleError{Kind: session.RuleFAR, ID: 1}},
	} {
		s := sample.Session(1)
		tt.change(s)
		_, err := compiled(s, nil)
		var rule *session.RuleError
		if !errors.Is(err, tt.want) || !errors.As(err, &rule) || rule.Kind != tt.rule.Kind || rule.ID != tt.rule.ID {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	s := sample.Session(1)
	s.PDRs[0].PDI.Filters = []session.Filter{{RemotePorts: ports, LocalPorts: ports}}
	s.PDRs[1].PDI.Filters = s.PDRs[0].PDI.Filters
	if got, err := compiled(s, nil); err != nil || len(got.Rules[0].Filters) != 64 {
		t.Errorf("64 each way: %v", err)
	}
}

func TestMatchSlice(t *testing.T) {
	list := []slice.Slice{
		{Name: "any"},
		{Name: "sst", SNSSAI: slice.SNSSAI{SST: 1}},
		{Name: "sd", SNSSAI: slice.SNSSAI{SST: 1, SD: "00000a"}},
		{Name: "sd and instance", SNSSAI: slice.SNSSAI{SST: 1, SD: "00000a"}, NetworkInstance: "ims"},
		{Name: "instance", NetworkInstance: "internet"},
	}
	for _, tt := range []struct {
		snssai   session.SNSSAI
		instance string
		want     string
	}{
		{session.SNSSAI{}, "", "any"},
		{session.SNSSAI{SST: 2}, "", "any"},
		{session.SNSSAI{SST: 1}, "", "sst"},
		{session.SNSSAI{SST: 1, SD: 10, HasSD: true}, "", "sd"},
		{session.SNSSAI{SST: 1, SD: 10, HasSD: true}, "IMS", "sd and instance"},
		{session.SNSSAI{SST: 1, HasSD: true}, "", "any"},
		{session.SNSSAI{SST: 2}, "internet", "instance"},
		{session.SNSSAI{}, "ims", "sd and instance"}, // free5GC does not say the S-NSSAI
	} {
		s := &session.Session{SNSSAI: tt.snssai, PDRs: []session.PDR{{PDI: session.PDI{NetworkInstance: tt.instance}}}}
		if m := MatchSlice(list, s); m.Slice.Name != tt.want || m.Reversed || m.Note(list, s) != "" {
			t.Errorf("%+v %q: %+v, want %q", tt.snssai, tt.instance, m, tt.want)
		}
	}
	s := &session.Session{DNN: "Internet"}
	if m := MatchSlice(list[1:2], s); m.Slice != nil || m.Note(list, s) != "no slice takes S-NSSAI none with network instance internet" {
		t.Errorf("no S-NSSAI, none that is of any: %+v, %q", m, m.Note(list, s))
	}
	if m := MatchSlice(nil, s); m.Note(nil, s) != "no slices are configured" {
		t.Errorf("no slices: %q", m.Note(nil, s))
	}
}

// The octets of an SD may arrive in reverse order; who has it as it was received
// comes first.
func TestMatchSliceReversed(t *testing.T) {
	one := slice.Slice{Name: "one", SNSSAI: slice.SNSSAI{SST: 1, SD: "000001"}}
	other := slice.Slice{Name: "other", SNSSAI: slice.SNSSAI{SST: 1, SD: "010000"}}
	inIMS := slice.Slice{Name: "ims", SNSSAI: one.SNSSAI, NetworkInstance: "ims"}
	all := slice.Slice{Name: "all"}
	received := session.SNSSAI{SST: 1, SD: 0x010000, HasSD: true}
	for _, tt := range []struct {
		list     []slice.Slice
		snssai   session.SNSSAI
		want     string
		reversed bool
		other    string
	}{
		{[]slice.Slice{one}, received, "one", true, ""},
		{[]slice.Slice{all, one}, received, "one", true, ""},
		{[]slice.Slice{one, inIMS}, received, "ims", true, ""},
		{[]slice.Slice{one, other}, received, "other", false, "one"},
		{[]slice.Slice{one, other}, session.SNSSAI{SST: 1, SD: 1, HasSD: true}, "one", false, "other"},
		{[]slice.Slice{all, one}, session.SNSSAI{SST: 2, SD: 0x010000, HasSD: true}, "all", false, ""},
		{[]slice.Slice{all, one}, session.SNSSAI{SST: 1, SD: 0x000100, HasSD: true}, "all", false, ""},
		{[]slice.Slice{one}, session.SNSSAI{SST: 1}, "", false, ""},
	} {
		s := &session.Session{SNSSAI: tt.snssai, DNN: "ims"}
		m := MatchSlice(tt.list, s)
		got := ""
		if m.Slice != nil {
			got = m.Slice.Name
		}
		other := ""
		if m.Other != nil {
			other = m.Other.Name
		}
		if got != tt.want || other != tt.other || m.Reversed != tt.reversed || (m.Note(tt.list, s) == "") != (got != "" && !tt.reversed && other == "") {
			t.Errorf("%s of %d: %q, reversed %t, %q; want %q and %q", tt.snssai, len(tt.list), got, m.Reversed, m.Note(tt.list, s), tt.want, tt.other)
		}
	}
}
