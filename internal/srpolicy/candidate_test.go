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

func path(name string, preference uint32, first ...string) Candidate {
	return Candidate{CandidatePath: CandidatePath{Name: name, Preference: preference, SegmentLists: lists(first...)}}
}

func byBGP(name string, preference, asn, discriminator uint32, first ...string) Candidate {
	c := path(name, preference, first...)
	c.Origin, c.ASN, c.Node, c.Discriminator = ByBGP, asn, addr("10.0.0.9"), discriminator
	return c
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
		others    []Candidate
		installed string
		lists     []SegmentList
		down      []int    // of lists
		order     []string // of the paths
		why       []string // a part of each
	}{
		"nothing but its own":    {own: lists(a), lists: lists(a), order: []string{""}, why: []string{"the only one"}},
		"its own does not reach": {own: lists(dead), lists: lists(dead), order: []string{""}, why: []string{"no segment list can be used: no route"}},
		"higher preference": {
			own: lists(a), others: []Candidate{path("x", 200, b), path("y", 150, c)},
			lists: lists(b), order: []string{"x", "y", ""}, why: []string{"highest preference", "stands by", "stands by"},
		},
		"lower preference": {
			own: lists(a), others: []Candidate{path("x", 99, b)},
			lists: lists(a), order: []string{"", "x"}, why: []string{"highest preference", "stands by"},
		},
		"valid before preferred": {
			own: lists(a), others: []Candidate{path("x", 200, dead)},
			lists: lists(a), order: []string{"", "x"}, why: []string{"the only valid one", "no segment list"},
		},
		"none is valid": {
			own: lists(dead), others: []Candidate{path("x", 200, dead, dead)},
			lists: lists(dead, dead), order: []string{"x", ""}, why: []string{"no segment list", "no segment list"},
		},
		"a list less": {
			own: lists(a, dead, b), lists: lists(a, dead, b), down: []int{1}, order: []string{""}, why: []string{"the only one; 2 of 3 segment lists"},
		},
		"same preference, by name": {
			others: []Candidate{path("y", 0, c), path("x", 0, b)},
			lists:  lists(b), order: []string{"x", "y"}, why: []string{"name decide", "stands by"},
		},
		"same preference, installed": {
			others: []Candidate{path("y", 0, c), path("x", 0, b)}, installed: "y",
			lists: lists(c), order: []string{"y", "x"}, why: []string{"active before", "stands by"},
		},
		"installed, but less preferred": {
			others: []Candidate{path("y", 0, c), path("x", 101, b)}, installed: "y",
			lists: lists(b), order: []string{"x", "y"}, why: []string{"highest preference", "stands by"},
		},
		"configured here before advertised by BGP": {
			own: lists(a), others: []Candidate{byBGP("x", 100, 65001, 9, b)}, installed: "x",
			lists: lists(a), order: []string{"", "x"}, why: []string{"configured here", "stands by"},
		},
		"BGP with a higher preference": {
			own: lists(a), others: []Candidate{byBGP("x", 101, 65001, 9, b)},
			lists: lists(b), order: []string{"x", ""}, why: []string{"highest preference", "stands by"},
		},
		"the lower originator, the higher discriminator": {
			others: []Candidate{byBGP("w", 100, 65002, 9, c), byBGP("x", 100, 65001, 7, b), byBGP("y", 100, 65001, 8, a)},
			lists:  lists(a), order: []string{"y", "x", "w"}, why: []string{"originator", "stands by", "stands by"},
		},
		"nothing at all": {},
	} {
		got, verdicts := Choose(Policy{Name: "p", SegmentLists: tt.own}, tt.others, tt.installed, func(l SegmentList) error { return reachable(l.Segments[0]) }, nil)
		if !slices.EqualFunc(got.SegmentLists, tt.lists, func(x, y SegmentList) bool { return slices.Equal(x.Segments, y.Segments) }) {
			t.Errorf("%s: packets take %v, want %v", name, got.SegmentLists, tt.lists)
		}
		var down []int
		for i, why := range got.Down {
			if why != "" {
				down = append(down, i)
			}
		}
		if !slices.Equal(down, tt.down) {
			t.Errorf("%s: lists %v are down, want %v: %q", name, down, tt.down, got.Down)
		}
		if len(verdicts) != len(tt.order) {
			t.Errorf("%s: %+v, want %q", name, verdicts, tt.order)
			continue
		}
		for i, v := range verdicts {
			if v.Path != tt.order[i] || v.Active != (i == 0) || !strings.Contains(v.Why, tt.why[i]) || v.Valid == strings.HasPrefix(v.Why, "no segment list") {
				t.Errorf("%s: path %d is %+v, want %q because of %q", name, i, v, tt.order[i], tt.why[i])
			}
		}
	}
}

// The next valid path protects the active one, with the lists that have room beside it, down or
// not, if one of these can be used.
func TestProtection(t *testing.T) {
	const a, b, c, dead = "2001:db8:a::", "2001:db8:b::", "2001:db8:c::", "2001:db8:dead::"
	many := func(n int, first string) []string { return slices.Repeat([]string{first}, n) }
	for name, tt := range map[string]struct {
		own        []string
		others     []Candidate
		protection []string
		down       []int // of all lists
		by         string
	}{
		"nobody":                   {own: []string{a}},
		"the next path":            {own: []string{a}, others: []Candidate{path("x", 50, b), path("y", 60, c)}, protection: []string{c}, by: "y"},
		"one of the same":          {own: []string{a}, others: []Candidate{path("x", 100, b)}, protection: []string{b}, by: "x"},
		"not a dead one":           {own: []string{a}, others: []Candidate{path("x", 50, b), path("y", 60, dead)}, protection: []string{b}, by: "x"},
		"one with a dead list":     {own: []string{a}, others: []Candidate{path("x", 50, dead, b)}, protection: []string{dead, b}, down: []int{1}, by: "x"},
		"beside a dead list":       {own: []string{a, dead}, others: []Candidate{path("x", 50, b)}, protection: []string{b}, down: []int{1}, by: "x"},
		"as many as have room":     {own: many(6, a), others: []Candidate{path("x", 50, b, c, b)}, protection: []string{b, c}, by: "x"},
		"without room":             {own: many(8, a), others: []Candidate{path("x", 50, b)}},
		"no room for a sound list": {own: many(7, a), others: []Candidate{path("x", 50, dead, b)}},
		"nothing is valid":         {own: []string{dead}, others: []Candidate{path("x", 50, dead)}},
	} {
		got, verdicts := Choose(Policy{Name: "p", SegmentLists: lists(tt.own...)}, tt.others, "", func(l SegmentList) error {
			if l.Segments[0] == addr(dead) {
				return errors.New("no route")
			}
			return nil
		}, nil)
		if !slices.EqualFunc(got.Protection, lists(tt.protection...), func(x, y SegmentList) bool { return slices.Equal(x.Segments, y.Segments) }) {
			t.Errorf("%s: protected by %v, want %v", name, got.Protection, tt.protection)
		}
		var down []int
		for i := range got.Lists() {
			if got.DownAt(i) != "" {
				down = append(down, i)
			}
		}
		if !slices.Equal(down, tt.down) {
			t.Errorf("%s: lists %v are down, want %v", name, down, tt.down)
		}
		for _, v := range verdicts {
			if v.Protects != (v.Path == tt.by && tt.by != "") {
				t.Errorf("%s: %+v, want path %q to protect", name, v, tt.by)
			}
		}
		if n := MostLists([]int{len(tt.own), 0, 3}); len(got.Lists()) > n {
			t.Errorf("%s: %d lists, and at most %d are said", name, len(got.Lists()), n)
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
