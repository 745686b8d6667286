package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/liveness"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Kubernetes hears of round trips seldom, and only if they change.
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
		{"not measured yet", 0, 0, 0, ""},
		{"at once", 5 * time.Second, 1234567 * time.Nanosecond, 0, "1.23ms -"},
		{"a second list", 6 * time.Second, 1234567, 2 * time.Millisecond, "1.23ms 2ms"},
		{"about the same", 90 * time.Second, 1400 * time.Microsecond, 2400 * time.Microsecond, "1.23ms 2ms"},
		{"much longer", 100 * time.Second, 1400 * time.Microsecond, 5 * time.Millisecond, "1.23ms 2ms"},
		{"back", 125 * time.Second, 1400 * time.Microsecond, 2 * time.Millisecond, "1.23ms 2ms"},
		{"longer again", 130 * time.Second, 1400 * time.Microsecond, 5 * time.Millisecond, "1.23ms 2ms"},
		{"not for long", 159 * time.Second, 1400 * time.Microsecond, 5 * time.Millisecond, "1.23ms 2ms"},
		{"for long", 160 * time.Second, 1400 * time.Microsecond, 5 * time.Millisecond, "1.4ms 5ms"},
		{"no probe returns", 161 * time.Second, 1400 * time.Microsecond, 0, "1.4ms 5ms"},
		{"none has for long", 191 * time.Second, 1400 * time.Microsecond, 0, "1.4ms -"},
	} {
		delays := map[string]liveness.Delay{one.Key(): {Mean: step.one}, two.Key(): {Mean: step.two}}
		got := r.tell(policies, delays, begin.Add(step.after))
		if got["p"] != step.want || got["quiet"] != "" {
			t.Errorf("%s: %v, want %q", step.what, got, step.want)
		}
	}
	policies["p"] = srpolicy.Policy{SegmentLists: []srpolicy.SegmentList{two}}
	if got := r.tell(policies, map[string]liveness.Delay{two.Key(): {Mean: 3 * time.Millisecond}}, begin.Add(192*time.Second)); got["p"] != "3ms" {
		t.Errorf("another list: %v", got)
	}
	policies["p"] = srpolicy.Policy{SegmentLists: []srpolicy.SegmentList{one}} // of another path, as many
	if got := r.tell(policies, map[string]liveness.Delay{one.Key(): {Mean: 4 * time.Millisecond}}, begin.Add(192*time.Second)); got["p"] != "4ms" {
		t.Errorf("another path: %v", got)
	}
	if got := r.tell(policies, nil, begin.Add(193*time.Second)); len(got) != 0 || len(r) != 0 {
		t.Errorf("nothing is probed: %v", got)
	}
}
