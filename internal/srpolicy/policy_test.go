package srpolicy

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/srv6"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func segments(n int) []netip.Addr { return slices.Repeat([]netip.Addr{addr("2001:db8:2:e000::")}, n) }

func policy() Policy {
	return Policy{Name: "core", Source: addr("2001:db8::1"), BindingSID: addr("2001:db8:1:b000::"),
		SegmentLists: []SegmentList{{Segments: segments(2)}}}
}

func TestValidPolicies(t *testing.T) {
	for name, change := range map[string]func(*Policy){
		"as it is":      func(*Policy) {},
		"name and list": func(p *Policy) { p.Source, p.BindingSID = netip.Addr{}, netip.Addr{} },
		"longest list":  func(p *Policy) { p.SegmentLists[0].Segments = segments(MaxSegments) },
		"most lists":    func(p *Policy) { p.SegmentLists = slices.Repeat(p.SegmentLists, MaxSegmentLists) },
		"L2":            func(p *Policy) { p.Behavior, p.BindingSID = srv6.HEncapsL2Red, netip.Addr{} },
		"IPv4 endpoint": func(p *Policy) { p.Endpoint, p.Color = addr("0.0.0.0"), 100 },
	} {
		p := policy()
		change(&p)
		if errs := p.Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// Each row is one mutation of a valid policy, and the one error it gets.
func TestInvalidPolicies(t *testing.T) {
	for _, tt := range []struct {
		change func(*Policy)
		want   string
	}{
		{func(p *Policy) { p.Name = "a b" }, `name: "a b" cannot have ' '`},
		{func(p *Policy) { p.Behavior = srv6.EndDT4 }, "behavior: End.DT4 is not a policy's"},
		{func(p *Policy) { p.Behavior = srv6.HMGTP4D }, "behavior: H.M.GTP4.D is not a policy's"},
		{func(p *Policy) { p.Source = addr("10.0.0.1") }, "source: 10.0.0.1 is an IPv4"},
		{func(p *Policy) { p.BindingSID = addr("ff02::1") }, "binding_sid: ff02::1 is a multicast"},
		{func(p *Policy) { p.Behavior = srv6.HEncapsL2 }, "binding_sid: a packet cannot be bound to H.Encaps.L2"},
		{func(p *Policy) { p.Endpoint = addr("fe80::1%a") }, "endpoint: fe80::1%a has a zone"},
		{func(p *Policy) { p.SegmentLists = slices.Repeat(p.SegmentLists, 9) }, "segment_lists: has 9 lists"},
		{func(p *Policy) { p.SegmentLists[0].Segments = nil }, "segment_lists[0].segments: is missing"},
		{func(p *Policy) { p.SegmentLists[0].Segments = segments(13) }, "segment_lists[0].segments: has 13 segments"},
		{func(p *Policy) { p.SegmentLists[0].Segments[1] = addr("192.0.2.1") }, "segment_lists[0].segments[1]: 192.0.2.1 is an IPv4"},
		{func(p *Policy) { p.SegmentLists[0].Segments[0] = addr("::") }, "segment_lists[0].segments[0]: :: is the unspecified"},
		{func(p *Policy) { p.SegmentLists[0].Segments[0] = netip.Addr{} }, "segment_lists[0].segments[0]: is missing"},
	} {
		p := policy()
		tt.change(&p)
		errs := p.Validate()
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tt.want) || errs[0].Fix == "" {
			t.Errorf("want %q, got %v", tt.want, errs)
		}
	}
}

func TestBehaviorOfPolicy(t *testing.T) {
	for _, tt := range []struct {
		behavior, effective, binding srv6.Behavior
		reduced, l2                  bool
	}{
		{srv6.BehaviorNone, srv6.HEncapsRed, srv6.EndB6EncapsRed, true, false},
		{srv6.HEncapsRed, srv6.HEncapsRed, srv6.EndB6EncapsRed, true, false},
		{srv6.HEncaps, srv6.HEncaps, srv6.EndB6Encaps, false, false},
		{srv6.HEncapsL2, srv6.HEncapsL2, srv6.EndB6Encaps, false, true},
		{srv6.HEncapsL2Red, srv6.HEncapsL2Red, srv6.EndB6EncapsRed, true, true},
	} {
		p := Policy{Behavior: tt.behavior}
		if p.EffectiveBehavior() != tt.effective || p.BindingBehavior() != tt.binding ||
			p.Reduced() != tt.reduced || p.L2() != tt.l2 {
			t.Errorf("%v: %v, binding %v, reduced %v, L2 %v", tt.behavior, p.EffectiveBehavior(),
				p.BindingBehavior(), p.Reduced(), p.L2())
		}
	}
}

func TestThresholds(t *testing.T) {
	const all = math.MaxUint32
	for _, tt := range []struct {
		weights, want []uint32
	}{
		{nil, []uint32{}},
		{[]uint32{0}, []uint32{all}},
		{[]uint32{7}, []uint32{all}},
		{[]uint32{1, 1}, []uint32{1<<31 - 1, all}},
		{[]uint32{0, 1}, []uint32{1<<31 - 1, all}},
		{[]uint32{3, 1}, []uint32{3<<30 - 1, all}},
		{[]uint32{1, 1, 2}, []uint32{1<<30 - 1, 1<<31 - 1, all}},
		{[]uint32{all, all}, []uint32{1<<31 - 1, all}},
		// A list of a tiny share still has a hash of its own.
		{[]uint32{1, all, all, all, all, all, all, all}, nil},
	} {
		var p Policy
		for _, w := range tt.weights {
			p.SegmentLists = append(p.SegmentLists, SegmentList{Weight: w})
		}
		got := p.Thresholds()
		if tt.want != nil && !slices.Equal(got, tt.want) {
			t.Errorf("weights %v: %v, want %v", tt.weights, got, tt.want)
		}
		if !slices.IsSorted(got) || len(got) > 0 && got[len(got)-1] != all {
			t.Errorf("weights %v: %v does not end at the largest hash", tt.weights, got)
		}
	}
}

// The headroom in the behaviour table counts with the longest list.
func TestHeadroomIsOfTheLongestList(t *testing.T) {
	path := segments(MaxSegments)
	for b, reduced := range map[srv6.Behavior]bool{srv6.HEncaps: false, srv6.HEncapsRed: true} {
		srh, err := srv6.AppendSRH(nil, srv6.NextHeaderIPv6, path, reduced)
		if row, _ := srv6.Lookup(b); err != nil || row.Headroom != 40+len(srh) {
			t.Errorf("%v: headroom %d, want %d (%v)", b, row.Headroom, 40+len(srh), err)
		}
	}
}
