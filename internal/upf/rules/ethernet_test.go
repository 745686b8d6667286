package rules

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

var (
	factory = slice.Slice{Name: "factory", NetworkInstance: "factory", N6: &slice.N6{Interface: "n6", VLAN: 100}}
	vlan100 = ethernet.Link{Interface: "n6", VLAN: 100}
)

func TestCompileEthernet(t *testing.T) {
	s := sample.Ethernet(1)
	s.PDRs[1].PDI.Ethernet = []session.EthernetFilter{
		{Source: [6]byte{2, 1}, EtherType: 0x0800, CVLAN: ptr(uint16(7)), Filters: []session.Filter{{Protocol: 17}}},
		{Destination: [6]byte{2, 2}, SVLAN: ptr(uint16(8))},
	}
	got, err := compiled(s, &factory)
	if err != nil {
		t.Fatal(err)
	}
	up, down := got.Rules[0], got.Rules[1]
	if !up.Ethernet || up.Forward.Kind != datapath.ForwardLink || up.Forward.Link != vlan100 || up.Sources != nil || up.Link != (ethernet.Link{}) {
		t.Errorf("uplink: %+v", up)
	}
	if !down.Ethernet || down.Forward.Kind != datapath.ForwardGTPU || down.Link != vlan100 || down.Destinations != nil {
		t.Errorf("downlink: %+v", down)
	}
	anyPort := [2]uint16{0, 65535}
	want := []datapath.Filter{
		{Protocol: 17, RemotePorts: anyPort, LocalPorts: anyPort,
			Frame: &datapath.FrameFilter{Source: [6]byte{2, 1}, EtherType: 0x0800, CTag: ptr(uint16(7)), IP: true}},
		{AnyProtocol: true, RemotePorts: anyPort, LocalPorts: anyPort,
			Frame: &datapath.FrameFilter{Destination: [6]byte{2, 2}, STag: ptr(uint16(8))}},
	}
	if diff := cmp.Diff(want, down.Filters, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("filters (-want +got):\n%s", diff)
	}
}

func TestCompileEthernetRefuses(t *testing.T) {
	bySRv6 := slice.Slice{Name: "a", N6: factory.N6, N9: &slice.N9{Transport: slice.SRv6, Downlink: addr("fc00::1")}}
	for _, tt := range []struct {
		name   string
		slice  *slice.Slice
		change func(*session.Session)
	}{
		{"no slice", nil, func(*session.Session) {}},
		{"a slice without n6", &slice.Slice{Name: "a"}, func(*session.Session) {}},
		{"by SRv6, without a place for the argument", &bySRv6, func(*session.Session) {}},
		{"Ethernet filters in an IP session", &factory, func(s *session.Session) {
			s.PDNType, s.PDRs[0].PDI.Ethernet = session.PDNIPv4, []session.EthernetFilter{{EtherType: 1}}
		}},
		{"both sorts of filters", &factory, func(s *session.Session) {
			s.PDRs[0].PDI.Ethernet, s.PDRs[0].PDI.Filters = []session.EthernetFilter{{EtherType: 1}}, []session.Filter{{Protocol: 1}}
		}},
	} {
		s := sample.Ethernet(1)
		tt.change(s)
		var rule *session.RuleError
		if _, err := compiled(s, tt.slice); !errors.Is(err, pfcp.ErrUnsupported) || !errors.As(err, &rule) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Frames by SRv6 say whose they are by the F-TEID's number.
func TestCompileEthernetSRv6(t *testing.T) {
	for _, tt := range []struct {
		name string
		n9   slice.N9
		kind datapath.ForwardingKind
	}{
		{"one SID", slice.N9{Transport: slice.SRv6, Downlink: addr("fc00::"), ArgsOffset: 64}, datapath.ForwardSRv6},
		{"a policy", slice.N9{Transport: slice.SRv6, Mode: slice.Enhanced, DownlinkPolicy: "p", ArgsOffset: 72}, datapath.ForwardPolicy},
	} {
		s := sample.Ethernet(1)
		s.QERs = []session.QER{{ID: 1, QFI: ptr(uint8(9)), Reflective: true}}
		s.PDRs[1].QERs = []uint32{1}
		got, err := compiled(s, &slice.Slice{Name: "a", N6: factory.N6, N9: &tt.n9})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		down := got.Rules[1]
		if f := down.Forward; f.Kind != tt.kind || f.TEID != s.FARs[1].Forwarding.Outer.TEID || f.ArgsOffset != tt.n9.ArgsOffset || down.QFI != 9 || !down.RQI {
			t.Errorf("%s: downlink %+v", tt.name, down)
		}
		if up := got.Rules[0]; up.Forward.Kind != datapath.ForwardLink || up.QFI != 0 {
			t.Errorf("%s: uplink, which has no outer header: %+v", tt.name, up)
		}
	}
}
