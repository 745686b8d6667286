package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// A probe goes the list's way, and an End of the last router stands for the segment that would
// decapsulate it.
func TestProbes(t *testing.T) {
	c, err := config.Parse([]byte(`
encapsulation: {source: '2001:db8::1'}
liveness: {enabled: true, sid: 'fc00:1:0:f::', ends: [{locator: 'fc00:e::/48', sid: 'fc00:e:0:1::'}]}
policies:
  - name: p
    segment_lists:
      - {segments: ['fc00:a:0:1::', 'fc00:e:0:6::']}
      - {segments: ['fc00:e:0:6::']}
      - {segments: ['fc00:e:0:1::', 'fc00:e:0:6::']}
      - {segments: ['fc00:a:0:1::', 'fc00:9::6']}
      - {segments: ['fc00:9::6']}
  - {name: node-2, segment_lists: [{segments: ['fc00:0:2:4::']}]}
candidate_paths: [{name: x, policy: p, preference: 140, segment_lists: [{segments: ['fc00:b:0:1::', 'fc00:e:0:6::']}, {segments: ['fc00:e:0:6::']}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	member := overlay.Complete(overlay.Node{Name: "node-2", Address: netip.MustParseAddr("2001:db8::2"), Locator: netip.MustParsePrefix("fc00:0:2::/48"), Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}}, false)
	g := &Goal{Desired: desired.State{}.WithFile(c), Wanted: &overlay.Wanted{Peers: []overlay.Peer{{Node: member}}}}
	var got []string
	for _, p := range g.Probes() {
		got = append(got, fmt.Sprint(p.List.Key(), " ", p.Path))
	}
	slices.Sort(got)
	want := []string{
		"fc00:0:2:4:: [fc00:0:2:1::]",
		"fc00:a:0:1::,fc00:9::6 [fc00:a:0:1::]",
		"fc00:a:0:1::,fc00:e:0:6:: [fc00:a:0:1:: fc00:e:0:1::]",
		"fc00:b:0:1::,fc00:e:0:6:: [fc00:b:0:1:: fc00:e:0:1::]",
		"fc00:e:0:1::,fc00:e:0:6:: [fc00:e:0:1::]",
		"fc00:e:0:6:: [fc00:e:0:1::]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("probes\n%q, want\n%q", got, want)
	}
	l, ok := g.Liveness()
	if !ok || l != (Liveness{netip.MustParseAddr("fc00:1:0:f::"), netip.MustParseAddr("2001:db8::1"), 10, 3}) {
		t.Errorf("%+v, %v", l, ok)
	}
	g.Desired.Process.Liveness.Enabled = false
	if _, ok := g.Liveness(); ok {
		t.Error("it probes, and nobody asked it to")
	}
}

// A candidate path has the constraint of its policy where it has none.
func TestChoices(t *testing.T) {
	c, err := config.Parse([]byte(`
encapsulation: {source: '2001:db8::1'}
liveness: {enabled: true, sid: 'fc00:1:0:f::'}
policies:
  - {name: p, delay_bound: 15ms, segment_lists: [{segments: ['fc00:a::', 'fc00:e::']}, {segments: ['fc00:b::', 'fc00:e::']}]}
  - {name: q, segment_lists: [{segments: ['fc00:a::', 'fc00:e::']}]}
candidate_paths:
  - {name: x, policy: p, lowest_delay: true, segment_lists: [{segments: ['fc00:c::', 'fc00:e::']}]}
  - {name: y, policy: p, delay_bound: 800us, segment_lists: [{segments: ['fc00:c::', 'fc00:e::']}]}
  - {name: z, policy: q, segment_lists: [{segments: ['fc00:c::', 'fc00:e::']}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range (&Goal{Desired: desired.State{}.WithFile(c)}).Choices() {
		got = append(got, fmt.Sprintf("%q %v %s %v", c.Key, c.Lists, c.DelayBound, c.LowestDelay))
	}
	want := []string{
		`"p\x00" [fc00:a::,fc00:e:: fc00:b::,fc00:e::] 15ms false`,
		`"p\x00x" [fc00:c::,fc00:e::] 15ms true`,
		`"p\x00y" [fc00:c::,fc00:e::] 800µs false`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("choices\n%q, want\n%q", got, want)
	}
}

// A list of which no probe returns is down, and a path without any other is not valid.
func TestDeadLists(t *testing.T) {
	segments := func(texts ...string) (l srpolicy.SegmentList) {
		for _, s := range texts {
			l.Segments = append(l.Segments, netip.MustParseAddr(s))
		}
		return l
	}
	a, b := segments("fc00:a::", "fc00:e::"), segments("fc00:b::", "fc00:e::")
	policy := srpolicy.Policy{Name: "p", SegmentLists: []srpolicy.SegmentList{a, b}}
	other := srpolicy.Candidate{CandidatePath: srpolicy.CandidatePath{Name: "x", Preference: 50, SegmentLists: []srpolicy.SegmentList{segments("fc00:c::")}}}
	choose := func(dead map[string]string) (srpolicy.Policy, []srpolicy.Verdict) {
		usable := func(l srpolicy.SegmentList) error {
			if why := dead[l.Key()]; why != "" {
				return fmt.Errorf("%s", why)
			}
			return nil
		}
		return srpolicy.Choose(policy, []srpolicy.Candidate{other}, "", usable, nil)
	}
	if p, _ := choose(map[string]string{a.Key(): "no probe returns"}); p.DownAt(0) != "no probe returns" || p.DownAt(1) != "" {
		t.Errorf("down %q", p.Down)
	}
	p, v := choose(map[string]string{a.Key(): "no probe returns", b.Key(): "no probe returns"})
	if len(p.SegmentLists) != 1 || v[0].Path != "x" || v[1].Valid {
		t.Errorf("with two dead lists: %+v", v)
	}
}
