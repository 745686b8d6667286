package srpolicy

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A path whose lists are all above the bound gives way to the next one; what is in use of each path,
// and why, is said.
func TestChooseByDelay(t *testing.T) {
	const a, b, c, dead = "2001:db8:a::", "2001:db8:b::", "2001:db8:c::", "2001:db8:dead::"
	above, aside := Standing{Above: true}, Standing{Aside: "another list has a lower delay"}
	none := Standing{Above: true, Aside: "another list has a lower delay"}
	type standings map[string]map[string]Standing // by path and list
	for name, tt := range map[string]struct {
		own        []string
		others     []Candidate
		standings  standings
		active     string
		valid      bool
		why        string // of the active path
		slow, down []int
	}{
		"all within": {own: []string{a, b}, valid: true, why: "the only one"},
		"one above": {
			own: []string{a, b}, standings: standings{"": {a: above}},
			valid: true, why: "the only one; 1 of 2 segment lists not in use for the delay", slow: []int{0},
		},
		"one aside": {own: []string{a, b}, standings: standings{"": {b: aside}}, valid: true, why: "not in use for the delay", slow: []int{1}},
		"all above, and another path": {
			own: []string{a, b}, others: []Candidate{path("x", 50, c), path("y", 40, c)}, standings: standings{"": {a: above, b: none}},
			active: "x", valid: true, why: "highest preference",
		},
		"all of each path above": {
			own: []string{a, b}, others: []Candidate{path("x", 50, c)}, standings: standings{"": {a: none, b: above}, "x": {c: above}},
			why: "no segment list is within delay_bound 15ms; no path is valid: best effort by the lowest delay", slow: []int{0},
		},
		"above is better than dead": {
			own: []string{dead}, others: []Candidate{path("x", 50, a)}, standings: standings{"x": {a: above}},
			active: "x", why: "no segment list is within delay_bound 15ms; no path is valid",
		},
		"the list within is dead": {
			own: []string{a, dead}, others: []Candidate{path("x", 50, c)}, standings: standings{"": {a: above}},
			active: "x", valid: true, why: "the only valid one",
		},
		"the lowest is dead": {own: []string{dead, a, b}, standings: standings{"": {a: aside, b: above}}, valid: true, why: "1 of 3", slow: []int{2}, down: []int{0}},
		"those that protect": {
			own: []string{a}, others: []Candidate{path("x", 50, b, c)}, standings: standings{"x": {b: above}},
			valid: true, why: "highest preference", slow: []int{1},
		},
		"another path's standing": {own: []string{a}, standings: standings{"gone": {a: above}}, valid: true, why: "the only one"},
	} {
		p := Policy{Name: "p", SegmentLists: lists(tt.own...), DelayConstraint: DelayConstraint{DelayBound: Duration(15 * time.Millisecond)}}
		all := Standings{}
		for path, of := range tt.standings {
			all[PathKey("p", path)] = map[string]Standing{}
			for list, s := range of {
				all[PathKey("p", path)][lists(list)[0].Key()] = s
			}
		}
		got, verdicts := Choose(p, tt.others, "", func(l SegmentList) error {
			if l.Segments[0] == addr(dead) {
				return errors.New("no route")
			}
			return nil
		}, all)
		v := verdicts[0]
		if v.Path != tt.active || v.Valid != tt.valid || !v.Active || !strings.Contains(v.Why, tt.why) {
			t.Errorf("%s: %+v, want %q, valid %v, because of %q", name, v, tt.active, tt.valid, tt.why)
		}
		if late := strings.Contains(v.Why, "no segment list is within"); v.Late != late || v.DelayConstraint != p.DelayConstraint {
			t.Errorf("%s: %+v, late %v", name, v, late)
		}
		var slow, down []int
		for i := range got.Lists() {
			if why := got.SlowAt(i); why != "" {
				slow = append(slow, i)
			}
			if got.DownAt(i) != "" {
				down = append(down, i)
			}
		}
		if !slices.Equal(slow, tt.slow) || !slices.Equal(down, tt.down) {
			t.Errorf("%s: lists %v are slow and %v down, want %v and %v", name, slow, down, tt.slow, tt.down)
		}
		if first, end := got.InUse(); first != 0 || end != len(got.SegmentLists) || len(got.Out(first, end)) > len(slow)+len(down) {
			t.Errorf("%s: lists %d to %d in use, without %v", name, first, end, got.Out(first, end))
		}
	}
}

// Without a constraint nobody asks for a delay, whatever was measured for one before.
func TestStandingsWithoutConstraint(t *testing.T) {
	l := lists("2001:db8:a::", "2001:db8:b::")
	usable := func(SegmentList) error { return nil }
	of := Standings{PathKey("p", ""): {l[0].Key(): {Above: true}, l[1].Key(): {Above: true}}}
	if p, v := Choose(Policy{Name: "p", SegmentLists: l}, nil, "", usable, of); p.Slow != nil || !v[0].Valid {
		t.Errorf("slow %q: %+v", p.Slow, v)
	}
}
