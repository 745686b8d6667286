package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/liveness"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// What is told of round trips changes seldom, and only if they do.
func TestRoundTripsAreToldSeldom(t *testing.T) {
	list := func(sid string) srpolicy.SegmentList {
		return srpolicy.SegmentList{Segments: []netip.Addr{netip.MustParseAddr(sid)}}
	}
	one, two := list("fc00::1"), list("fc00::2")
	policies := map[string]srpolicy.Policy{"p": {SegmentLists: []srpolicy.SegmentList{one, two}}, "quiet": {SegmentLists: []srpolicy.SegmentList{list("fc00::3")}}}
	r, begin := roundTrips{}, time.Now()
	for _, step := range []struct {
		what     string
		after    time.Duration
		one, two time.Duration
		want     string
	}{
		{"at once", 0, 1234567 * time.Nanosecond, 0, "1.23ms -"},
		{"a second probe, soon", time.Second, 1234567, 2 * time.Millisecond, "1.23ms -"},
		{"later", 30 * time.Second, 1234567, 2 * time.Millisecond, "1.23ms 2ms"},
		{"about the same", 90 * time.Second, 1400 * time.Microsecond, 2400 * time.Microsecond, "1.23ms 2ms"},
		{"much longer", 120 * time.Second, 1400 * time.Microsecond, 5 * time.Millisecond, "1.4ms 5ms"},
		{"soon back", 121 * time.Second, 1400 * time.Microsecond, 2 * time.Millisecond, "1.4ms 5ms"},
	} {
		delays := map[string]liveness.Delay{one.Key(): {Mean: step.one}, two.Key(): {Mean: step.two}}
		got := r.tell(policies, delays, begin.Add(step.after))
		if got["p"] != step.want || got["quiet"] != "" {
			t.Errorf("%s: %v, want %q", step.what, got, step.want)
		}
	}
	policies["p"] = srpolicy.Policy{SegmentLists: []srpolicy.SegmentList{two}}
	if got := r.tell(policies, map[string]liveness.Delay{two.Key(): {Mean: 3 * time.Millisecond}}, begin.Add(122*time.Second)); got["p"] != "3ms" {
		t.Errorf("another list: %v", got)
	}
	if got := r.tell(policies, nil, begin.Add(123*time.Second)); len(got) != 0 || len(r) != 0 {
		t.Errorf("nothing is probed: %v", got)
	}
}
