package dataplane

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Whatever becomes of a policy's lists, what they carried stays theirs and the policy's.
func TestPolicyCountersOnlyGrow(t *testing.T) {
	d := open(t)
	list := func(weight uint32, first string) srpolicy.SegmentList {
		return srpolicy.SegmentList{Weight: weight, Segments: addrs(first, "fc00:f::1")}
	}
	a, b, c := list(1, "fc00:a::1"), list(1, "fc00:b::1"), list(1, "fc00:c::1")
	put := func(down []string, lists ...srpolicy.SegmentList) {
		t.Helper()
		must(t, d.Policies.Put(srpolicy.Policy{Name: "p", SegmentLists: lists, Down: down}))
	}
	carry := func(list int, packets uint64) {
		t.Helper()
		each := make([]abi.Counter, ebpf.MustPossibleCPU())
		index := d.Policies.Get("p").Lists()[list]
		must(t, d.maps[abi.MapListCounter].Lookup(index, &each))
		each[0].Packets += packets
		must(t, d.maps[abi.MapListCounter].Put(index, each))
	}
	want := func(what string, all uint64, lists ...uint64) {
		t.Helper()
		got, sum, err := d.Policies.Counters("p")
		must(t, err)
		if sum.Packets != all || len(got) != len(lists) {
			t.Errorf("%s: %v, in all %d, want %d: %d", what, got, sum.Packets, lists, all)
			return
		}
		for i, n := range lists {
			if got[i].Packets != n {
				t.Errorf("%s: list %d carried %d, want %d", what, i, got[i].Packets, n)
			}
		}
	}
	put(nil, a, b)
	carry(0, 5)
	carry(1, 7)
	want("at first", 12, 5, 7)
	entry := d.Policies.Entries.Get(d.Policies.Get("p").Index())
	put([]string{"unreachable", ""}, a, b)
	want("a is down", 12, 5, 7)
	now := d.Policies.Entries.Get(d.Policies.Get("p").Index())
	if entry.Down = 1; now != entry {
		t.Errorf("a list that is down changes more than a bit: %+v, want %+v", now, entry)
	}
	carry(1, 10)
	put(nil, list(9, "fc00:a::1"), b)
	want("another weight", 22, 5, 17)
	put(nil, c)
	carry(0, 100)
	want("another path", 122, 100)
	put(nil, b, a)
	carry(1, 1)
	want("and back, in another order", 123, 17, 6)
	for range 40 { // entries are used again
		put(nil, c)
		put(nil, a, b)
	}
	carry(0, 1)
	want("many changes", 124, 7, 17)
	put(nil, a, a)
	want("a twice", 124, 7, 0)
	must(t, d.Policies.Delete("p"))
	put(nil, a)
	want("a new policy of the same name", 0, 0)
	if _, none, err := d.Policies.Counters("q"); err != nil || none != (counter.Counter{}) {
		t.Errorf("no policy: %v, %v", none, err)
	}
}

// A list turns in every policy that has it, by its bit alone, and what is down for another reason
// stays so.
func TestListsTurn(t *testing.T) {
	d := open(t)
	a, b := srpolicy.SegmentList{Segments: addrs("fc00:a::1", "fc00:f::1")}, srpolicy.SegmentList{Segments: addrs("fc00:b::1", "fc00:f::1")}
	must(t, d.Policies.Put(srpolicy.Policy{Name: "ab", SegmentLists: []srpolicy.SegmentList{a, b}}))
	must(t, d.Policies.Put(srpolicy.Policy{Name: "ba", SegmentLists: []srpolicy.SegmentList{b, a}}))
	must(t, d.Policies.Put(srpolicy.Policy{Name: "other", SegmentLists: []srpolicy.SegmentList{a, b}, Down: []string{"no route", ""}}))
	must(t, d.Policies.Put(srpolicy.Policy{Name: "alone", SegmentLists: []srpolicy.SegmentList{a}}))
	down := func() (out [4]uint8) {
		for i, name := range []string{"ab", "ba", "other", "alone"} {
			out[i] = d.Policies.Entries.Get(d.Policies.Get(name).Index()).Down
		}
		return out
	}
	before := d.Policies.Entries.Get(d.Policies.Get("ab").Index())
	none := func([]netip.Addr) string { return "" }
	dead := func(segments []netip.Addr) string {
		if segments[0] == a.Segments[0] {
			return "no probe returns"
		}
		return ""
	}
	for _, step := range []struct {
		was, now func([]netip.Addr) string
		want     [4]uint8
	}{
		{none, dead, [4]uint8{1, 2, 1, 0}}, // the only list stays: packets try it
		{dead, dead, [4]uint8{1, 2, 1, 0}},
		{dead, none, [4]uint8{0, 0, 1, 0}},
	} {
		if d.Policies.Turn(step.was, step.now); down() != step.want {
			t.Errorf("down %v, want %v", down(), step.want)
		}
	}
	if now := d.Policies.Entries.Get(d.Policies.Get("ab").Index()); now != before {
		t.Errorf("there and back it is %+v, and was %+v", now, before)
	}
}
