package loop

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func (n *node) RepairName(engine string, p headend.Policy) string {
	return engine + ":repair:" + p.Name
}

func (n *node) Remove(_ context.Context, paths []headend.Path) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range paths {
		if _, there := n.paths[p.Name]; !there || !p.Repair {
			return errors.New("there is no repair path " + p.Name)
		}
		delete(n.paths, p.Name)
	}
	return nil
}

// ready are the repair paths that the headend has, in words.
func (w *world) ready() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(w.a.paths)) {
		if of, is := strings.CutPrefix(name, "te:repair:"); is {
			words = append(words, of+" "+map[uint32]string{99: "own", 149: "te"}[w.a.paths[name].Preference]+" "+w.path(name))
		}
	}
	return strings.Join(words, "; ")
}

// The headend holds a repair list ready behind each path that it would lose with a link: the list
// avoids the link, and it changes with the path.
func TestRepairLists(t *testing.T) {
	const byIGP, byC = "fc00:d::d1", "fc00:c::1,fc00:d::d1"
	in(t, func(t *testing.T, w *world) {
		w.in.Settings.Repair = true
		e := w.engine()
		if w.round(6e8, 6e8, e); w.ready() != "blue own "+byC+"; red own "+byC || w.a.puts != 1 {
			t.Fatalf("behind the policies' own lists: %s, %d changes", w.ready(), w.a.puts)
		}
		s := w.round(6e8, 6e8, e)
		if len(s.Plan.Moves) != 1 || s.Plan.Moves[0].Color != 1 {
			t.Fatalf("%+v", s)
		}
		for range 5 {
			s = w.round(6e8, 6e8, e)
		}
		if want := "blue own " + byC + "; red te " + byIGP; w.ready() != want || w.a.puts != 3 || s.Problem != "" || len(s.Unprotected) > 0 {
			t.Errorf("behind the engine's list: %s, want %s; %d changes, %+v", w.ready(), want, w.a.puts, s)
		}
		again := w.engine()
		for range 3 {
			w.round(6e8, 6e8, again)
		}
		if w.a.puts != 4 { // once, since nobody says what lists a path has that is not active
			t.Errorf("an engine that starts again: %d changes", w.a.puts-3)
		}
		// Somebody else's path is protected by somebody else.
		w.a.paths["mine"] = srpolicy.CandidatePath{Name: "mine", Policy: "blue", Preference: 200, SegmentLists: w.a.policies[1].Lists}
		if w.round(6e8, 6e8, again); w.ready() != "red te "+byIGP {
			t.Errorf("behind another's path: %s", w.ready())
		}
		delete(w.a.paths, "mine")
		whole := w.in.Network.Topology
		w.in.Network.Topology.Links = slices.Clone(whole.Links[4:]) // without b
		s = w.round(6e8, 6e8, again)
		if len(s.Unprotected) != 2 || !strings.Contains(s.Unprotected[0].Why, "without a-c: no other link of a leads to d") || w.ready() != "" {
			t.Errorf("without a second link: %+v, %s", s.Unprotected, w.ready())
		}
		w.in.Network.Topology = whole
		if w.round(6e8, 6e8, again); w.ready() != "" {
			t.Errorf("the link is back a moment ago: %s", w.ready())
		}
		for range 6 {
			w.round(6e8, 6e8, again)
		}
		if w.ready() == "" {
			t.Error("the link is back, and no repair list")
		}
		w.in.Settings.Repair = false
		if w.round(6e8, 6e8, again); w.ready() != "" {
			t.Errorf("repair is off: %s", w.ready())
		}
	})
}

// While packets take the repair list, the engine leaves it alone.
func TestRepairInUse(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.in.Settings.Repair = true
		e := w.engine()
		w.round(1e8, 1e8, e)
		w.a.dead = w.a.policies[0].Lists[0].Key() // the policies' own list
		puts := w.a.puts
		var s State
		for range 12 {
			s = w.round(1e8, 1e8, e)
		}
		if w.a.puts != puts || len(w.a.paths) != 2 || s.Problem != "" {
			t.Errorf("%d changes, %+v", w.a.puts-puts, s)
		}
		if p, _ := w.a.Policies(t.Context()); p[0].Active().Path != "te:repair:red" {
			t.Errorf("packets take %+v", p[0].Active())
		}
		w.a.err = errors.New("its disk is full")
		w.a.dead = ""
		delete(w.a.paths, "te:repair:red")
		if s = w.round(1e8, 1e8, e); !strings.Contains(s.Problem, "repair lists of a: its disk is full") {
			t.Errorf("the headend refuses: %+v", s)
		}
	})
}
