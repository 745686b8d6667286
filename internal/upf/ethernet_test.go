package upf

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// frames is a session of PDN type Ethernet.
func frames(seid uint64) *session.Session {
	s := ordinary(seid)
	s.PDNType, s.DNN = session.PDNEthernet, "factory"
	for i := range s.PDRs {
		s.PDRs[i].PDI.UE, s.PDRs[i].PDI.FramedRoutes = nil, nil
	}
	return s
}

var (
	factory = slice.Slice{Name: "factory", NetworkInstance: "factory", N6: &slice.N6{Interface: "n6", VLAN: 100}}
	vlan100 = dataplane.Link{Interface: "n6", VLAN: 100}
)

func TestCompileEthernet(t *testing.T) {
	s := frames(1)
	s.PDRs[1].PDI.Ethernet = []session.EthernetFilter{
		{Source: [6]byte{2, 1}, EtherType: 0x0800, CVLAN: ptr(uint16(7)), Filters: []session.Filter{{Protocol: 17}}},
		{Destination: [6]byte{2, 2}, SVLAN: ptr(uint16(8))},
	}
	got, err := compiled(s, &factory)
	if err != nil {
		t.Fatal(err)
	}
	up, down := got.Rules[0], got.Rules[1]
	if !up.Ethernet || up.Forward.Kind != dataplane.ForwardLink || up.Forward.Link != vlan100 || up.Sources != nil || up.Link != (dataplane.Link{}) {
		t.Errorf("uplink: %+v", up)
	}
	if !down.Ethernet || down.Forward.Kind != dataplane.ForwardGTPU || down.Link != vlan100 || down.Destinations != nil {
		t.Errorf("downlink: %+v", down)
	}
	anyPort := [2]uint16{0, 65535}
	want := []dataplane.Filter{
		{Protocol: 17, RemotePorts: anyPort, LocalPorts: anyPort,
			Frame: &dataplane.FrameFilter{Source: [6]byte{2, 1}, EtherType: 0x0800, CTag: ptr(uint16(7)), IP: true}},
		{AnyProtocol: true, RemotePorts: anyPort, LocalPorts: anyPort,
			Frame: &dataplane.FrameFilter{Destination: [6]byte{2, 2}, STag: ptr(uint16(8))}},
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
		s := frames(1)
		tt.change(s)
		var rule *pfcp.RuleError
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
		kind dataplane.ForwardingKind
	}{
		{"one SID", slice.N9{Transport: slice.SRv6, Downlink: addr("fc00::"), ArgsOffset: 64}, dataplane.ForwardSRv6},
		{"a policy", slice.N9{Transport: slice.SRv6, Mode: slice.Enhanced, DownlinkPolicy: "p", ArgsOffset: 72}, dataplane.ForwardPolicy},
	} {
		s := frames(1)
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
		if up := got.Rules[0]; up.Forward.Kind != dataplane.ForwardLink || up.QFI != 0 {
			t.Errorf("%s: uplink, which has no outer header: %+v", tt.name, up)
		}
	}
}

// TestFloods: a frame for all goes to each session of its link, as long as that
// is there.
func TestFloods(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{Slices: []slice.Slice{factory}}); err != nil {
		t.Fatal(err)
	}
	w.establish(frames(1))
	w.establish(frames(2))
	w.establish(ordinary(3))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.floods(ctx) }()
	w.Flood(vlan100, 7, []byte{5})
	w.Flood(dataplane.Link{Interface: "n6"}, 7, []byte{6})
	w.await(func() bool { return len(w.path.sent()) == 2 })
	if err := w.Drop(1); err != nil {
		t.Fatal(err)
	}
	w.Flood(vlan100, 7, []byte{8})
	w.await(func() bool { return len(w.path.sent()) == 3 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got := w.path.sent()
	slices.Sort(got[:2])
	if want := []string{"7:5 for 1", "7:5 for 2", "7:8 for 2"}; !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

// TestFloodsBounded: more copies than the budget are not made, until it has
// grown again.
func TestFloodsBounded(t *testing.T) {
	now := time.Unix(1, 0)
	l := newLinks(func() time.Time { return now })
	n := 0
	for l.may() {
		n++
	}
	if n != floodsBurst {
		t.Errorf("%d copies at once, want %d", n, floodsBurst)
	}
	now = now.Add(time.Second / 10)
	for n = 0; l.may(); n++ {
	}
	if n != floodRate/10 {
		t.Errorf("%d copies after 100 ms, want %d", n, floodRate/10)
	}
}

// TestFrameKept: what was kept for an Ethernet session goes to that session.
func TestFrameKept(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{Slices: []slice.Slice{factory}}); err != nil {
		t.Fatal(err)
	}
	w.establish(frames(1))
	from := w.idle(1, session.Notify, nil)
	frame := make([]byte, 60)
	frame[59] = 9
	w.Buffer(Packet{Session: 1, Rule: 2, Ifindex: 7, L3: 4, Data: frame})
	w.Buffer(Packet{Session: 1, Rule: 2, Ifindex: 7, L3: 4, Data: frame[:17]})
	to := copyOf(t, from)
	to.FARs[1].Action = session.Forward
	w.modify(from, to, pfcp.Modification{})
	w.await(func() bool { return len(w.path.sent()) == 1 })
	if got := w.path.sent(); !slices.Equal(got, []string{"7:9 for 1"}) {
		t.Errorf("sent %v", got)
	}
	if n := w.Stats().BufferStale.Load(); n != 1 {
		t.Errorf("%d frames cut short, want 1", n)
	}
}

// TestHosts: hosts that come and go are told once, over a restart too.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.SetConfig(Config{Slices: []slice.Slice{factory}}))
	s := frames(1)
	s.URRs = []session.URR{{ID: 1, Event: true, Trigger: session.TriggerMACAddresses, EthernetIdle: 10 * time.Second}}
	w.establish(s)
	a, b := [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	heard := func(list ...dataplane.Station) {
		w.path.mu.Lock()
		w.path.stations = list
		w.path.mu.Unlock()
		w.lookForHosts()
	}
	want := func(what string, detected, removed [][6]byte) {
		t.Helper()
		got := w.smf.usage()
		if detected == nil && removed == nil {
			if len(got) != 0 {
				t.Errorf("%s: reports %+v", what, got)
			}
			return
		}
		if len(got) != 1 || got[0].Cause != session.CauseMACAddresses || !slices.Equal(got[0].Detected, detected) || !slices.Equal(got[0].Removed, removed) {
			t.Errorf("%s: reports %+v", what, got)
		}
	}
	heard(dataplane.Station{Session: 7, MAC: a})
	want("another session's", nil, nil)
	heard(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a})
	want("two", [][6]byte{a, b}, nil)
	heard(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a, Idle: 9 * time.Second})
	want("the same", nil, nil)
	w.path.teids = map[uint32]bool{}
	w.open() // again: the configuration comes before the sessions
	must(w.SetConfig(Config{Slices: []slice.Slice{factory}}))
	w.Restore()
	heard(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a, Idle: 9 * time.Second})
	want("after a restart", nil, nil)
	heard(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a, Idle: 10 * time.Second})
	want("one is idle", nil, [][6]byte{a})
	heard()
	want("the other one is somebody else's now", nil, [][6]byte{b})
	if _, err := w.remove(1); err != nil {
		t.Fatal(err)
	}
	heard(dataplane.Station{Session: 1, MAC: a})
	want("of a session that is gone", nil, nil)
}
