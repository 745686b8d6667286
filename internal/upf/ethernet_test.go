package upf

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

var (
	factory = slice.Slice{Name: "factory", NetworkInstance: "factory", N6: &slice.N6{Interface: "n6", VLAN: 100}}
	vlan100 = ethernet.Link{Interface: "n6", VLAN: 100}
)

// TestFloods: a frame for all goes to each session of its link, as long as that
// is there.
func TestFloods(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{Slices: []slice.Slice{factory}}); err != nil {
		t.Fatal(err)
	}
	w.establish(sample.Ethernet(1))
	w.establish(sample.Ethernet(2))
	w.establish(sample.Session(3))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.links.Run(ctx) }()
	w.Flood(vlan100, 7, []byte{5})
	w.Flood(ethernet.Link{Interface: "n6"}, 7, []byte{6})
	w.await(func() bool { return len(w.path.sent()) == 2 })
	if err := w.Drop(1); err != nil {
		t.Fatal(err)
	}
	w.Flood(vlan100, 7, []byte{8})
	w.await(func() bool { return len(w.path.sent()) == 3 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got := w.path.sent()
	slices.Sort(got[:2])
	if want := []string{"7:5 for 1", "7:5 for 2", "7:8 for 2"}; !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

// TestFrameKept: what was kept for an Ethernet session goes to that session.
func TestFrameKept(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{Slices: []slice.Slice{factory}}); err != nil {
		t.Fatal(err)
	}
	w.establish(sample.Ethernet(1))
	from := w.idle(1, session.Notify, nil)
	frame := make([]byte, 60)
	frame[59] = 9
	w.Buffer(Packet{Session: 1, Rule: 2, Ifindex: 7, L3: 4, Data: frame})
	w.Buffer(Packet{Session: 1, Rule: 2, Ifindex: 7, L3: 4, Data: frame[:17]})
	to := sample.Copy(t, from)
	to.FARs[1].Action = session.Forward
	w.modify(from, to, session.Modification{})
	w.await(func() bool { return len(w.path.sent()) == 1 })
	if got := w.path.sent(); !slices.Equal(got, []string{"7:9 for 1"}) {
		t.Errorf("sent %v", got)
	}
	if n := w.Stats().BufferStale.Load(); n != 1 {
		t.Errorf("%d frames cut short, want 1", n)
	}
}

// TestHosts: hosts that come and go are reported once, over a restart too.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.SetConfig(Config{Slices: []slice.Slice{factory}}))
	s := sample.Ethernet(1)
	s.URRs = []session.URR{{ID: 1, Event: true, Trigger: session.TriggerMACAddresses, EthernetIdle: 10 * time.Second}}
	w.establish(s)
	a, b := [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	observed := func(list ...dataplane.Station) {
		w.path.mu.Lock()
		w.path.stations = list
		w.path.mu.Unlock()
		w.reports.lookForHosts()
	}
	want := func(what string, detected, removed [][6]byte) {
		t.Helper()
		got := w.smf.usage()
		if detected == nil && removed == nil {
			if len(got) != 0 {
				t.Errorf("%s: reports %+v", what, got)
			}
			return
		}
		if len(got) != 1 || got[0].Cause != session.CauseMACAddresses || !slices.Equal(got[0].Detected, detected) || !slices.Equal(got[0].Removed, removed) {
			t.Errorf("%s: reports %+v", what, got)
		}
	}
	observed(dataplane.Station{Session: 7, MAC: a})
	want("another session's", nil, nil)
	observed(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a})
	want("two", [][6]byte{a, b}, nil)
	observed(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a, Idle: 9 * time.Second})
	want("the same", nil, nil)
	w.path.teids = map[uint32]bool{}
	w.open() // again: the configuration comes before the sessions
	must(w.SetConfig(Config{Slices: []slice.Slice{factory}}))
	w.Restore()
	observed(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a, Idle: 9 * time.Second})
	want("after a restart", nil, nil)
	observed(dataplane.Station{Session: 1, MAC: b}, dataplane.Station{Session: 1, MAC: a, Idle: 10 * time.Second})
	want("one is idle", nil, [][6]byte{a})
	observed()
	want("the other one is somebody else's now", nil, [][6]byte{b})
	if _, err := w.remove(1); err != nil {
		t.Fatal(err)
	}
	observed(dataplane.Station{Session: 1, MAC: a})
	want("of a session that is gone", nil, nil)
}
