package srpolicy

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func lists(first ...string) (out []SegmentList) {
	for _, s := range first {
		out = append(out, SegmentList{Weight: 1, Segments: []netip.Addr{addr(s), addr("2001:db8:f::")}})
	}
	return out
}

func TestChoose(t *testing.T) {
	const a, b, c, dead = "2001:db8:a::", "2001:db8:b::", "2001:db8:c::", "2001:db8:dead::"
	reachable := func(s netip.Addr) error {
		if s == addr(dead) {
			return errors.New("no route to " + dead)
		}
		return nil
	}
	for name, tt := range map[string]struct {
		own       []SegmentList
		others    []CandidatePath
		installed string
		lists     []SegmentList
		order     []string // of the paths
		why       []string // a part of each
	}{
		"nothing but its own":    {own: lists(a), lists: lists(a), order: []string{""}, why: []string{"the only one"}},
		"its own does not reach": {own: lists(dead), lists: lists(dead), order: []string{""}, why: []string{"no first segment can be reached: no route"}},
		"higher preference": {
			own: lists(a), others: []CandidatePath{{Name: "x", Preference: 200, SegmentLists: lists(b)}, {Name: "y", Preference: 150, SegmentLists: lists(c)}},
			lists: lists(b), order: []string{"x", "y", ""}, why: []string{"highest preference", "stands by", "stands by"},
		},
		"lower preference": {
			own: lists(a), others: []CandidatePath{{Name: "x", Preference: 99, SegmentLists: lists(b)}},
			lists: lists(a), order: []string{"", "x"}, why: []string{"highest preference", "stands by"},
		},
		"valid before preferred": {
			own: lists(a), others: []CandidatePath{{Name: "x", Preference: 200, SegmentLists: lists(dead)}},
			lists: lists(a), order: []string{"", "x"}, why: []string{"the only valid one", "no first segment"},
		},
		"none is valid": {
			own: lists(dead), others: []CandidatePath{{Name: "x", Preference: 200, SegmentLists: lists(dead, dead)}},
			lists: lists(dead, dead), order: []string{"x", ""}, why: []string{"no first segment", "no first segment"},
		},
		"a list less": {
			own: lists(a, dead, b), lists: lists(a, b), order: []string{""}, why: []string{"the only one; 2 of 3 segment lists"},
		},
		"same preference, by name": {
			others: []CandidatePath{{Name: "y", SegmentLists: lists(c)}, {Name: "x", SegmentLists: lists(b)}},
			lists:  lists(b), order: []string{"x", "y"}, why: []string{"lowest name", "stands by"},
		},
		"same preference, installed": {
			others: []CandidatePath{{Name: "y", SegmentLists: lists(c)}, {Name: "x", SegmentLists: lists(b)}}, installed: "y",
			lists: lists(c), order: []string{"y", "x"}, why: []string{"active before", "stands by"},
		},
		"installed, but less preferred": {
			others: []CandidatePath{{Name: "y", SegmentLists: lists(c)}, {Name: "x", Preference: 101, SegmentLists: lists(b)}}, installed: "y",
			lists: lists(b), order: []string{"x", "y"}, why: []string{"highest preference", "stands by"},
		},
		"nothing at all": {},
	} {
		got, verdicts := Choose(Policy{Name: "p", SegmentLists: tt.own}, tt.others, tt.installed, reachable)
		if !slices.EqualFunc(got.SegmentLists, tt.lists, func(x, y SegmentList) bool { return slices.Equal(x.Segments, y.Segments) }) {
			t.Errorf("%s: packets take %v, want %v", name, got.SegmentLists, tt.lists)
		}
		if len(verdicts) != len(tt.order) {
			t.Errorf("%s: %+v, want %q", name, verdicts, tt.order)
			continue
		}
		for i, v := range verdicts {
			if v.Path != tt.order[i] || v.Active != (i == 0) || !strings.Contains(v.Why, tt.why[i]) || v.Valid == strings.HasPrefix(v.Why, "no first") {
				t.Errorf("%s: path %d is %+v, want %q because of %q", name, i, v, tt.order[i], tt.why[i])
			}
		}
	}
}

func TestInvalidCandidatePaths(t *testing.T) {
	for want, change := range map[string]func(*CandidatePath){
		"name: is missing":                     func(c *CandidatePath) { c.Name = "" },
		"policy: is missing":                   func(c *CandidatePath) { c.Policy = "" },
		"segment_lists: is missing":            func(c *CandidatePath) { c.SegmentLists = nil },
		"segment_lists[0].segments: has 13":    func(c *CandidatePath) { c.SegmentLists[0].Segments = segments(13) },
		"segment_lists[0].segments[0]: ff02::": func(c *CandidatePath) { c.SegmentLists[0].Segments[0] = addr("ff02::1") },
	} {
		c := CandidatePath{Name: "x", Policy: "p", SegmentLists: lists("2001:db8:a::")}
		if errs := c.Validate(); len(errs) > 0 {
			t.Fatalf("a sound one: %v", errs)
		}
		change(&c)
		if errs := c.Validate(); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) || errs[0].Fix == "" {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
}
