package netdev

import (
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

func TestIsPod(t *testing.T) {
	for name, want := range map[string]bool{
		"culv0123456789a": true, "culvert0": false, "culv0123456789": false, "culv0123456789x": false, "eth0": false, "culvert0123456a": false,
	} {
		if IsPod(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

// A list that was read while pods came does not take these away.
func TestPodLinks(t *testing.T) {
	var p podLinks
	p.put(Link{Index: 1, Name: "culv00000000001"})
	since := p.now()
	p.put(Link{Index: 2, Name: "culv00000000002"})
	p.set([]Link{{Index: 3, Name: "culv00000000003"}}, since)
	for index, want := range map[int]bool{1: false, 2: true, 3: true} {
		if p.has(index) != want {
			t.Errorf("%d: %t", index, !want)
		}
	}
	if l, there := p.named("culv00000000002"); !there || l.Index != 2 {
		t.Errorf("by name: %+v, %t", l, there)
	}
	p.drop(2)
	if _, there := p.named("culv00000000002"); there || p.has(2) {
		t.Error("it is there still")
	}
}

// A pod that comes, with its route and its neighbour, and goes makes no snapshot; its
// interface is found meanwhile.
func TestPodsMakeNoSnapshot(t *testing.T) {
	a, b := pair(t)
	w := watch(t, a, Options{})
	eventually(t, w, "a snapshot", func(s *Snapshot) bool { _, there := s.Link("a0"); return there })
	time.Sleep(3 * settle) // what the pair is followed by
	first := w.Snapshot()
	const name = "culv0123456789a"
	netns.Veth(t, a, name, b, "eth7")
	a.IP(t, "neigh add 10.9.0.7 dev "+name+" lladdr 02:00:00:00:00:07 nud permanent")
	a.IP(t, "route add 10.9.0.7/32 dev "+name+" proto 83")
	eventually(t, w, "it is found", func(s *Snapshot) bool {
		l, there := s.Link(name)
		same, byIndex := s.LinkByIndex(l.Index)
		return there && byIndex && same.Name == name && l.Up
	})
	w.touch(dirtyAll) // as every minute
	time.Sleep(2 * settle)
	a.IP(t, "link del "+name)
	eventually(t, w, "it is gone", func(s *Snapshot) bool { _, there := s.Link(name); return !there })
	if s := w.Snapshot(); !s.same(first) {
		t.Errorf("the snapshot differs:\n%+v\nwant\n%+v", s, first)
	}
	a.IP(t, "link add other type bridge")
	eventually(t, w, "others are noticed", func(s *Snapshot) bool { l, there := s.Link("other"); return there && l.Kind == "bridge" })
}
