package loop

import (
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

func within(d time.Duration, lowest bool) srpolicy.DelayConstraint {
	return srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(d), LowestDelay: lowest}
}

// delays has both classes ask for some.
func (w *world) delays(c srpolicy.DelayConstraint) {
	w.in.Network.Classes = []te.Class{{Color: 1, DelayConstraint: c}, {Color: 2, DelayConstraint: c}}
}

// moved is the name of the only path that the engine has written.
func (w *world) moved(e *Engine) string {
	w.t.Helper()
	w.round(6e8, 6e8, e)
	s := w.round(6e8, 6e8, e)
	if len(s.Plan.Moves) != 1 || len(w.a.paths) != 1 || s.Problem != "" {
		w.t.Fatalf("%+v", s)
	}
	for name := range w.a.paths {
		return name
	}
	return ""
}

// Candidate paths have the delays of their class. When these change, the paths get them, and keep
// their lists.
func TestPathsHaveTheDelaysOfTheirClass(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		for i := range w.a.policies {
			w.a.policies[i].Delays = within(40*time.Millisecond, false) // configured at the headend
		}
		w.delays(within(15*time.Millisecond, true))
		e := w.engine()
		name := w.moved(e)
		lists := w.path(name)
		if got := w.a.paths[name].DelayConstraint; got != within(15*time.Millisecond, true) {
			t.Errorf("path %s has %+v", name, got)
		}
		again := w.engine() // one that has written nothing
		w.delays(within(20*time.Millisecond, false))
		w.in.Settings.Apply = false
		if w.round(6e8, 6e8, again); w.a.puts != 1 {
			t.Errorf("%d changes without apply", w.a.puts)
		}
		w.in.Settings.Apply = true
		for range 3 {
			w.round(6e8, 6e8, again)
		}
		if got := w.a.paths[name].DelayConstraint; w.a.puts != 2 || got != within(20*time.Millisecond, false) || w.path(name) != lists {
			t.Errorf("%d changes; path %s has %+v, %s", w.a.puts, name, got, w.path(name))
		}
		w.delays(srpolicy.DelayConstraint{})
		var s State
		for range 12 {
			s = w.round(6e8, 6e8, again)
		}
		if got := w.a.paths[name].DelayConstraint; w.a.puts != 3 || got.IsSet() || s.Problem != "" {
			t.Errorf("%d changes; path %s has %+v; %s", w.a.puts, name, got, s.Problem)
		}
	})
}

// A path that no packet takes for its delay alone is not written again and again: the demand keeps
// what it has, and the state says why, until its class asks for less.
func TestLatePath(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.delays(within(time.Millisecond, false))
		e := w.engine()
		name := w.moved(e)
		w.a.late = name
		var s State
		for range 20 {
			s = w.round(6e8, 6e8, e)
		}
		if len(s.Held) == 0 || !strings.Contains(s.Held[0].Why, "candidate path "+name+" is not in use: no segment list is within delay_bound 1ms") {
			t.Fatalf("%+v", s.Held)
		}
		if s.Plan.Now > 0.61 {
			t.Errorf("the other demand does not make room: %v", s.Plan.Now)
		}
		before := w.a.puts
		w.delays(within(time.Second, false))
		w.a.late = ""
		w.round(6e8, 6e8, e)
		// The demands share the link by c, until one of them makes room.
		if s = w.round(6e8, 6e8, e); w.a.puts != before+2 || w.a.paths[name].DelayConstraint != within(time.Second, false) || s.Plan.Now > 0.61 {
			t.Errorf("%d changes, path %+v, %+v", w.a.puts-before, w.a.paths[name], s)
		}
	})
}
