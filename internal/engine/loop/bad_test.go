package loop

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

// What nobody can do is said in a word, best effort is kept, and nothing changes to and fro, however
// many rounds pass.
func TestBadInput(t *testing.T) {
	class := func(c te.Class) func(*te.Network) {
		return func(n *te.Network) { n.Classes = []te.Class{c} }
	}
	for name, tt := range map[string]struct {
		change  func(*te.Network)
		rates   [2]float64
		changes int
		word    string // in the problems of the plan
	}{
		"no list is as quick as the class asks": {class(te.Class{Color: 1, MaxDelay: time.Microsecond}), [2]float64{3e8, 3e8}, 0, "the quickest list takes 2ms, more than max_delay: 1µs"},
		"a class that contradicts itself":       {class(te.Class{Color: 1, Exclude: 1, IncludeAny: 1}), [2]float64{3e8, 3e8}, 0, "affinit"},
		"a class that no link suits":            {class(te.Class{Color: 1, IncludeAny: 1 << 7}), [2]float64{3e8, 3e8}, 0, "affinit"},
		"no path": {func(n *te.Network) {
			n.Topology.Links = slices.DeleteFunc(slices.Clone(n.Topology.Links), func(l te.Link) bool { return l.To == "d" || l.From == "d" })
		}, [2]float64{3e8, 3e8}, 0, "no path"},
		"more than all links carry": {func(*te.Network) {}, [2]float64{2e9, 2e9}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				tt.change(&w.in.Network)
				for i := range w.in.Network.Topology.Links {
					w.in.Network.Topology.Links[i].Delay = time.Millisecond
				}
				e := w.engine()
				var s State
				for range 60 { // ten minutes, ten hold times
					s = w.round(tt.rates[0], tt.rates[1], e)
				}
				if w.a.puts > tt.changes {
					t.Errorf("%d changes, want at most %d", w.a.puts, tt.changes)
				}
				if s.Plan == nil {
					t.Fatalf("there is no plan: %+v", s)
				}
				if words := fmt.Sprint(s.Plan.Problems); tt.word != "" && !strings.Contains(words, tt.word) {
					t.Errorf("problems %s, word %q, want %q", words, s.Word, tt.word)
				}
			})
		})
	}
}

// A topology that changes each second, in rounds of a second, changes nothing: what headends hold
// ready goes once, and comes back when the network has settled.
func TestFlapsEachSecond(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.in.Settings.Every = time.Second
		w.in.Settings.Repair = true
		w.in.Network.Classes = []te.Class{{Color: 1, Standby: te.DisjointByNode}}
		pair(&w.in.Network, te.DisjointByNode)
		w.in.Network.Groups[0].Demands[1].Color = 3 // of which nobody has measured anything
		e := w.engine()
		whole := w.in.Network.Topology
		var s State
		ready, times := "", 0
		for i := range 300 {
			w.in.Network.Topology = te.Topology{Nodes: whole.Nodes, Links: whole.Links}
			if i%2 == 0 {
				w.in.Network.Topology.Links = slices.Clone(whole.Links[:4]) // without c
			}
			time.Sleep(time.Second)
			w.a.send(time.Second, 6e8, 6e8)
			s = e.Round(t.Context(), time.Now())
			if now := w.ready(); now != ready {
				ready, times = now, times+1
			}
		}
		if w.a.puts > 1 || times > 2 || len(w.a.paths) != 0 || !strings.Contains(s.Word, "a link has returned") {
			t.Errorf("%d changes, %d times of what is held ready, %+v", w.a.puts, times, s)
		}
		w.in.Network.Topology = whole
		for range 120 {
			w.round(3e8, 3e8, e)
		}
		if want := "blue own fc00:c::1,fc00:d::d1; red te fc00:d::d1"; w.ready() != want {
			t.Errorf("it has settled, and red goes by c: %q", w.ready())
		}
	})
}

// Counters that jump back and forth are no rates, and move nothing.
func TestCountersThatJumpAgainAndAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		e := w.engine()
		w.round(3e8, 3e8, e)
		w.round(3e8, 3e8, e)
		for i := range 30 {
			w.a.policies[0].Octets = uint64(i%2) * 1e6
			s := w.round(3e8, 3e8, e)
			if w.a.puts != 0 || s.Plan == nil || s.Plan.Now > 0.61 {
				t.Fatalf("round %d: %d changes, %+v", i, w.a.puts, s)
			}
		}
	})
}

// Two demands that want each other's full paths keep their lists, and the state says so, until there
// is room to change them in steps.
func TestNoRoomForSteps(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.in.Network.Classes = []te.Class{{Color: 1, MaxDelay: 3 * time.Millisecond}}
		links := w.in.Network.Topology.Links
		for i := range links {
			if links[i].Delay = time.Millisecond; links[i].From == "c" || links[i].To == "c" {
				links[i].Delay = 5 * time.Millisecond
			}
		}
		end := w.a.policies[0].Lists[0].Segments[0]
		w.a.paths["te:red"] = srpolicy.CandidatePath{Name: "te:red", Policy: "red", Preference: 150,
			SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{netip.MustParseAddr("fc00:c::1"), end}}}}
		e := w.engine()
		w.round(9.9e8, 9.9e8, e)
		var s State
		for range 8 {
			s = w.round(9.9e8, 9.9e8, e)
		}
		if w.a.puts != 0 || len(s.Plan.Left) != 2 || !strings.Contains(s.Word, "no order of steps keeps links from overload: lists of 2 demands stay") {
			t.Fatalf("%d changes, %q, %+v", w.a.puts, s.Word, s.Plan)
		}
		for range 120 { // until the rates of ten minutes ago do not count
			s = w.round(4e8, 4e8, e)
		}
		if w.path("te:red") != end.String() {
			t.Errorf("with room: path %q, %q", w.path("te:red"), s.Word)
		}
	})
}
