package upf

import (
	"maps"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// A slice's sessions are counted as they come, move and go, and again after a restart.
func TestSessionsOfSlices(t *testing.T) {
	w := newWorld(t)
	set := func(sds map[string]string) {
		t.Helper()
		c := Config{}
		for _, name := range slices.Sorted(maps.Keys(sds)) {
			c.Slices = append(c.Slices, slice.Slice{Name: name, SNSSAI: slice.SNSSAI{SST: 1, SD: sds[name]}})
		}
		if err := w.SetConfig(c); err != nil {
			t.Fatal(err)
		}
	}
	usual := map[string]string{"a": "000001", "b": "000002"}
	counts := func(when string, want map[string]int) {
		t.Helper()
		all, err := w.Slices()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, s := range all {
			got[s.Name] = s.Sessions
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	with := func(seid uint64, sd uint32) *session.Session {
		s := sample.Session(seid)
		s.SNSSAI = session.SNSSAI{SST: 1, SD: sd, HasSD: true}
		return s
	}
	set(usual)
	for seid := range uint64(6) {
		w.establish(with(seid+1, uint32(seid)/2+1)) // two in a, two in b, two in none
	}
	counts("established", map[string]int{"a": 2, "b": 2})
	w.modify(w.Session(1), with(1, 2), session.Modification{})
	w.modify(w.Session(5), with(5, 2), session.Modification{})
	w.modify(w.Session(3), with(3, 9), session.Modification{})
	counts("modified", map[string]int{"a": 1, "b": 3})
	if _, err := w.remove(5); err != nil {
		t.Fatal(err)
	}
	if err := w.Drop(2); err != nil {
		t.Fatal(err)
	}
	counts("removed", map[string]int{"a": 0, "b": 2})
	w.restart()
	set(usual)
	counts("restarted", map[string]int{"a": 0, "b": 2})
	set(map[string]string{"a": "000002", "b": "000001"})
	counts("slices changed", map[string]int{"a": 2, "b": 0})
	set(map[string]string{"b": "000001"})
	counts("a is gone", map[string]int{"b": 0})
}
