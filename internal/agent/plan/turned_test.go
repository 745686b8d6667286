package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

func TestTurned(t *testing.T) {
	list := func(first string) srpolicy.SegmentList {
		return srpolicy.SegmentList{Segments: []netip.Addr{netip.MustParseAddr(first)}}
	}
	tables := func(down []string, lists ...srpolicy.SegmentList) *Tables {
		return &Tables{Policies: map[string]srpolicy.Policy{"p": {Name: "p", SegmentLists: lists, Down: down}}}
	}
	slow := func(down, slow string, lists ...srpolicy.SegmentList) *Tables {
		return &Tables{Policies: map[string]srpolicy.Policy{"p": {Name: "p", SegmentLists: lists, Down: []string{down}, Slow: []string{slow}}}}
	}
	a, b := list("fc00::a"), list("fc00::b")
	for name, tt := range map[string]struct {
		from, to *Tables
		want     []string
	}{
		"nothing":                  {tables(nil, a, b), tables(nil, a, b), nil},
		"one went down":            {tables(nil, a, b), tables([]string{"", "no route"}, a, b), []string{"p 1 no route"}},
		"another reason":           {tables([]string{"", "link"}, a, b), tables([]string{"", "no route"}, a, b), nil},
		"it is up again":           {tables([]string{"", "no route"}, a, b), tables(nil, a, b), []string{"p 1 "}},
		"and has another place":    {tables([]string{"", "no route"}, a, b), tables(nil, b, a), []string{"p 0 "}},
		"it went, and was down":    {tables([]string{"", "no route"}, a, b), tables(nil, a), nil},
		"a new one is down":        {tables(nil, a), tables([]string{"", "no route"}, a, b), []string{"p 1 no route"}},
		"a new policy":             {&Tables{}, tables(nil, a), nil},
		"one is slow":              {tables(nil, a), slow("", "above", a), []string{"p 0 above slow"}},
		"still, for another one":   {slow("", "above", a), slow("", "another", a), nil},
		"a slow one is down":       {slow("", "above", a), slow("no route", "", a), []string{"p 0 no route"}},
		"a down one is slow":       {slow("no route", "", a), slow("", "above", a), []string{"p 0 above slow"}},
		"it is slow no more":       {slow("", "above", a), tables(nil, a), []string{"p 0 "}},
		"a new policy with a down": {&Tables{}, tables([]string{"no route", ""}, a, b), []string{"p 0 no route"}},
	} {
		var got []string
		tt.to.Turned(tt.from, Scope{}, func(turn Turn) {
			line := fmt.Sprintf("%s %d %s", turn.Policy, turn.List, turn.Why)
			if turn.Slow {
				line += " slow"
			}
			got = append(got, line)
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
