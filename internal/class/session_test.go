package class

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// TestOfSessions: flows take the valid policy of their class's color that leads to the same SIDs.
func TestOfSessions(t *testing.T) {
	to := func(name string, color uint32, endpoint string, segments ...string) srpolicy.Policy {
		var list srpolicy.SegmentList
		for _, s := range segments {
			list.Segments = append(list.Segments, netip.MustParseAddr(s))
		}
		return srpolicy.Policy{Name: name, Color: color, Endpoint: netip.MustParseAddr(endpoint), SegmentLists: []srpolicy.SegmentList{list}}
	}
	policies := map[string]srpolicy.Policy{
		"up": to("up", 1, "::9", "::99"), "down": to("down", 1, "::8", "::88"), "alone": {Name: "alone"},
		"fast": to("fast", 2, "::9", "::7", "::99"), "fast-down": to("fast-down", 2, "::8", "::7", "::77"), "broken": to("broken", 3, "::9", "::99"),
	}
	const up, down = "up", "down"
	for name, c := range map[string]struct {
		class Class
		want  SessionWays
	}{
		"a policy of its own, and one that ends elsewhere": {Class{Color: 2, Match: Match{Slices: []string{"a"}, QFIs: []uint16{5}}}, SessionWays{
			{"a", up, 5}: {"fast", "c"}, {"a", down, 5}: {down, "c"}, {"a", "alone", 5}: {"alone", "c"}}},
		"strict": {Class{Color: 2, Strict: true, Match: Match{Slices: []string{"a"}, QFIs: []uint16{5}}}, SessionWays{
			{"a", up, 5}: {"fast", "c"}, {"a", down, 5}: {"", "c"}, {"a", "alone", 5}: {"", "c"}}},
		"not valid": {Class{Color: 3, Match: Match{QFIs: []uint16{63}}}, SessionWays{
			{"a", up, 63}: {up, "c"}, {"a", down, 63}: {down, "c"}, {"a", "alone", 63}: {"alone", "c"}, {"b", up, 63}: {up, "c"}}},
		"of other senders": {Class{Color: 2, Match: Match{DSCP: []uint16{46}}}, SessionWays{}},
	} {
		c.class.Name = "c"
		table, err := Compile([]Class{c.class}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := table.OfSessions(map[string][]string{"a": {up, down, "alone"}, "b": {up}}, policies, func(p string) bool { return p != "broken" })
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	table, err := Compile([]Class{{Name: "low", Color: 2, Match: Match{Slices: []string{"b"}}}, {Name: "high", Color: 2, Priority: 1, Match: Match{QFIs: []uint16{0}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := table.OfSessions(map[string][]string{"b": {up}}, policies, func(string) bool { return true })
	if len(got) != 65 || got.Of(SessionFlow{"b", up, NoQFI}).Class != "low" || got.Of(SessionFlow{"b", up, 0}).Class != "high" || got.Of(SessionFlow{"c", up, 0}) != (Way{Policy: up}) {
		t.Errorf("two classes: %v", got)
	}
}

// TestConflictsOfSessions: classes of sessions have packets in common with each other only.
func TestConflictsOfSessions(t *testing.T) {
	of := func(qfi uint16, slices ...string) Class {
		return Class{Match: Match{Slices: slices, QFIs: []uint16{qfi}}}
	}
	for name, c := range map[string]struct {
		a, b Class
		want string
	}{
		"one slice":       {of(5, "a"), of(5, "b", "a"), "packets of slice a with QFI 5"},
		"any slice":       {of(0), of(0), "packets of any slice with QFI 0"},
		"without QFIs":    {Class{Match: Match{Slices: []string{"a"}}}, Class{Match: Match{Slices: []string{"a"}}}, "packets of slice a"},
		"other slices":    {of(5, "a"), of(5, "b"), ""},
		"other QFIs":      {of(5, "a"), of(6, "a"), ""},
		"anything else":   {of(5, "a"), Class{}, ""},
		"by an interface": {of(5, "a"), Class{Match: Match{Interfaces: []string{"a"}}}, ""},
	} {
		for _, both := range [][]Class{{c.a, c.b}, {c.b, c.a}} {
			var got []string
			for _, conflict := range Conflicts(both) {
				got = append(got, conflict.Example)
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
}
