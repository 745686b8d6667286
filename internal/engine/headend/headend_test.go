package headend

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

func sids(texts ...string) (list []netip.Addr) {
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

func list(weight uint32, segments ...string) srpolicy.SegmentList {
	return srpolicy.SegmentList{Weight: weight, Segments: sids(segments...)}
}

var network = te.Topology{
	Nodes: []te.Node{
		{Name: "a", SID: sids("fc00:a::1")[0], Locator: netip.MustParsePrefix("fc00:a::/32")},
		{Name: "b", SID: sids("fc00:b::1")[0], Locator: netip.MustParsePrefix("fc00:b::/32")},
		{Name: "c", SID: sids("fc00:c::1")[0], Locator: netip.MustParsePrefix("fc00:c::/32")},
		{Name: "x"},
	},
	Links: []te.Link{{From: "a", To: "b"}, {From: "b", To: "c", SID: sids("fc00:b::e")[0]}},
}

func policy(name string, endpoint string, lists ...srpolicy.SegmentList) Policy {
	return Policy{Name: name, Endpoint: sids(endpoint)[0], Color: 7, Octets: 10, Lists: lists}
}

func TestFind(t *testing.T) {
	key := te.Key{Headend: "a", Endpoint: "c", Color: 7}
	in := Find(network, []Reading{{Headend: "a", Policies: []Policy{
		policy("v4", "fc00:c::99", list(3, "fc00:b::1", "fc00:c::4"), list(0, "fc00:c::1", "fc00:c::4")),
		policy("v6", "fc00:c::1", list(3, "fc00:b::1", "fc00:c::6"), list(1, "fc00:c::6")),
		policy("home", "fc00:a::2"), policy("away", "2001:db8::1"), {Name: "bound"},
	}}})
	want := []te.List{{Weight: 3, Waypoints: []te.Waypoint{{Node: "b"}}}, {Weight: 1}}
	lists := in.Routing[key]
	if len(lists) != 2 || lists[0].Weight != 3 || lists[0].Waypoints[0] != want[0].Waypoints[0] || lists[1].Weight != 1 || len(lists[1].Waypoints) != 0 {
		t.Errorf("both families have the same lists: %+v", lists)
	}
	if in.Octets[key] != 20 || len(in.Policies[key]) != 2 || len(in.LeftOut) != 3 || len(in.Odd) != 0 {
		t.Errorf("%+v", in)
	}
	in = Find(network, []Reading{{Headend: "a", Policies: []Policy{
		policy("v4", "fc00:c::1", list(1, "fc00:b::e", "fc00:c::4")), policy("v6", "fc00:c::1", list(1, "fc00:c::6")),
	}}})
	if lists := in.Routing[key]; len(lists) != 2 || lists[0].Waypoints[0] != (te.Waypoint{Node: "b", Link: 2}) {
		t.Errorf("the families have different lists: %+v", lists)
	}
}

// What cannot be changed is said, and still counts.
func TestOdd(t *testing.T) {
	for want, p := range map[string]Policy{
		"it has no segment list":                policy("p", "fc00:c::1"),
		"its list visits 2001:db8::1, which no": policy("p", "fc00:c::1", list(1, "2001:db8::1", "fc00:c::4")),
		"its list ends at fc00:b::1 of b":       policy("p", "fc00:c::1", list(1, "fc00:b::1")),
		"its lists end with different SIDs":     policy("p", "fc00:c::1", list(1, "fc00:c::4"), list(1, "fc00:c::6")),
	} {
		in := Find(network, []Reading{{Headend: "a", Policies: []Policy{p}}})
		key := te.Key{Headend: "a", Endpoint: "c", Color: 7}
		if !strings.Contains(in.Odd[key], "policy p cannot be changed: "+want) || in.Octets[key] != 10 || len(in.Policies) != 0 {
			t.Errorf("%s: %+v", want, in)
		}
	}
}

var bound = srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(15 * time.Millisecond)}

func TestPath(t *testing.T) {
	p := policy("p", "fc00:c::1", list(1, "fc00:c::4"))
	c, err := p.Path(network, srpolicy.CandidatePath{Name: "te:p", Preference: 150}, []te.List{{Weight: 2, Waypoints: []te.Waypoint{{Node: "b"}}}, {Weight: 1, Waypoints: []te.Waypoint{{Node: "b", Link: 2}}}, {Weight: 0}})
	if err != nil || c.Name != "te:p" || c.Policy != "p" || c.Preference != 150 || len(c.Validate()) > 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	then := policy("p", "fc00:c::1", list(2, "fc00:b::1", "fc00:c::4"), list(1, "fc00:b::e", "fc00:c::4"), list(1, "fc00:c::4"))
	if !then.Equal(c.CandidatePath) || p.Equal(c.CandidatePath) {
		t.Errorf("%+v", c)
	}
	c.LowestDelay = true
	if then.Equal(c.CandidatePath) {
		t.Error("a path with another constraint of delays is the same")
	}
	then.Paths = []srpolicy.Verdict{{Path: "te:p", Active: true, DelayConstraint: c.DelayConstraint.Or(bound)}}
	if then.Delays = bound; !then.Equal(c.CandidatePath) {
		t.Error("the policy's own constraint does not count")
	}
	for _, w := range []te.Waypoint{{Node: "x"}, {Node: "gone"}, {Node: "a", Link: 1}} {
		if _, err := p.Path(network, srpolicy.CandidatePath{Name: "te:p"}, []te.List{{Weight: 1, Waypoints: []te.Waypoint{w}}}); err == nil || !strings.Contains(err.Error(), "has no SID") {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

// daemon is a headend that answers, or does not.
type daemon struct {
	Headend
	err error
}

func (d daemon) Policies(context.Context) ([]Policy, error) { return []Policy{{Name: "p"}}, d.err }

func TestRead(t *testing.T) {
	readings := Read(t.Context(), map[string]Headend{"b": daemon{}, "a": daemon{err: errors.New("gone")}})
	if len(readings) != 2 || readings[0].Headend != "a" || readings[0].Err == nil || readings[1].Err != nil || len(readings[1].Policies) != 1 || readings[1].At.IsZero() {
		t.Errorf("%+v", readings)
	}
}
