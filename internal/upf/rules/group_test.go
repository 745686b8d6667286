package rules

import (
	"testing"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// UEs of a slice and a network instance have one group, whatever their rules do at the
// moment; UEs that reach no others have none.
func TestCompileGroup(t *testing.T) {
	plain, route, drop := &slice.Slice{Name: "a"}, &slice.Slice{Name: "a", UEToUE: slice.UEToUERoute}, &slice.Slice{Name: "a", UEToUE: slice.UEToUEDrop}
	byFAR := func(name string) func(*session.Session) {
		return func(s *session.Session) { s.FARs[0].Forwarding.NetworkInstance = name }
	}
	group := func(way datapath.UEToUE, index uint32, instance string) datapath.Group {
		return datapath.GroupOf(way, index, instance)
	}
	for _, tt := range []struct {
		name   string
		slice  *slice.Slice
		way    slice.UEToUE
		change func(*session.Session)
		want   datapath.Group
	}{
		{"the default", nil, "", byFAR("internet"), 0},
		{"drop", nil, slice.UEToUEDrop, byFAR("internet"), 0},
		{"route without a slice", nil, slice.UEToUERoute, byFAR("internet"), group(datapath.UEToUERoute, 0, "internet")},
		{"n6, and case does not matter", nil, slice.UEToUEN6, byFAR("Internet"), group(datapath.UEToUEN6, 0, "internet")},
		{"the slice says nothing", plain, slice.UEToUEN6, byFAR("internet"), group(datapath.UEToUEN6, 3, "internet")},
		{"the slice says otherwise", route, slice.UEToUEN6, byFAR("internet"), group(datapath.UEToUERoute, 3, "internet")},
		{"the slice drops", drop, slice.UEToUERoute, byFAR("internet"), 0},
		{"a PDR names the network instance", route, "", func(s *session.Session) {
			s.FARs[0].Forwarding.NetworkInstance, s.PDRs[1].PDI.NetworkInstance = "", "ims"
		}, group(datapath.UEToUERoute, 3, "ims")},
		{"that of the access is another one", route, "", func(s *session.Session) {
			s.FARs[0].Forwarding.NetworkInstance, s.PDRs[0].PDI.NetworkInstance, s.PDRs[1].PDI.NetworkInstance, s.DNN = "", "access", "", "internet"
		}, group(datapath.UEToUERoute, 3, "internet")},
		{"idle", route, "", func(s *session.Session) {
			s.FARs[0].Forwarding.NetworkInstance, s.FARs[1].Action = "internet", session.Buffer
		}, group(datapath.UEToUERoute, 3, "internet")},
	} {
		s := sample.Session(1)
		tt.change(s)
		in := Input{Session: s, Slice: tt.slice, UEToUE: tt.way}
		if tt.slice != nil {
			in.Index = 3
		}
		got, err := Compile(in)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if up, down := got.Rules[0].Forward.Group, got.Rules[1].Group; up != tt.want || down != tt.want {
			t.Errorf("%s: %#x up, %#x down, want %#x", tt.name, up, down, tt.want)
		}
		if got.Rules[1].Forward.Group != 0 || got.Rules[0].Group != 0 {
			t.Errorf("%s: a group where it has no effect: %+v", tt.name, got.Rules)
		}
	}
	ethernet := sample.Ethernet(1)
	got, err := Compile(Input{Session: ethernet, Slice: &factory, Index: 3, UEToUE: slice.UEToUERoute})
	if err != nil || got.Rules[0].Forward.Group != 0 || got.Rules[1].Group != 0 {
		t.Errorf("an Ethernet session: %+v, %v", got.Rules, err)
	}
}

// Groups differ by each of what they are made of.
func TestGroupsDiffer(t *testing.T) {
	seen := map[datapath.Group]bool{0: true}
	for _, way := range []datapath.UEToUE{datapath.UEToUEDrop, datapath.UEToUERoute, datapath.UEToUEN6} {
		for _, index := range []uint32{0, 1, datapath.MaxSlices - 1} {
			for _, name := range []string{"", "internet", "ims"} {
				g := datapath.GroupOf(way, index, name)
				if seen[g] {
					t.Errorf("%d, slice %d, %q: another group is %#x too", way, index, name, g)
				}
				seen[g] = true
			}
		}
	}
}
