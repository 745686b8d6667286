package agent

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/netdev"
)

// closingOf closes interfaces in generic mode.
func closingOf(f *fakeDataPath) apply.Closing {
	return apply.Closing{
		Put: func(p plan.Port) error {
			return f.do(func() error { f.closed.Store(p.Ifindex, attach.ModeGeneric); return nil }, "close %d", p.Ifindex)
		},
		Delete: func(ifindex int) error {
			return f.do(func() error { f.closed.Delete(ifindex); return nil }, "open %d", ifindex)
		},
		On: func() map[int]attach.Mode {
			out := map[int]attach.Mode{}
			for ifindex, mode := range f.closed.Range {
				out[ifindex.(int)] = mode.(attach.Mode)
			}
			return out
		},
	}
}

// TestLinkOfInterface: status and metrics say whether an interface is up and has a carrier.
func TestLinkOfInterface(t *testing.T) {
	d := start(t)
	for _, row := range []struct {
		turn func(*netdev.Link)
		want netdev.LinkState
		up   int
	}{
		{func(*netdev.Link) {}, netdev.LinkUp, 1},
		{func(l *netdev.Link) { l.Up, l.Carrier = false, false }, netdev.LinkDown, 0},
		{func(l *netdev.Link) { l.Carrier = false }, netdev.LinkNoCarrier, 0},
		{func(*netdev.Link) {}, netdev.LinkUp, 1},
	} {
		s := links("eth0", "eth1")
		row.turn(&s.Links[0])
		d.change(t, s, "eth0 is "+string(row.want), func() bool { return d.core.links == s })
		list, err := d.Interfaces()
		if err != nil || list[0].Link != row.want || list[1].Link != netdev.LinkUp || list[0].Attached != "native" {
			t.Errorf("%s: %+v, %v", row.want, list, err)
		}
		if g := d.Gauges().Up; len(g) != 2 || g["eth0"] != row.up || g["eth1"] != 1 {
			t.Errorf("%s: gauges %v", row.want, g)
		}
	}
	without := links("eth1")
	d.change(t, without, "eth0 is gone", func() bool { return d.core.links == without })
	if list, err := d.Interfaces(); err != nil || list[0].Link != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if g := d.Gauges().Up; len(g) != 1 || g["eth1"] != 1 {
		t.Errorf("gauges %v", g)
	}
}

// TestLinkOfUplink: a member's uplink is looked at, and no interface of a pod.
func TestLinkOfUplink(t *testing.T) {
	d := startMember(t, t.TempDir(), newFake(), 1)
	for i, want := range []string{"uplink eth0 has no carrier", ""} {
		s := podLinks(1)
		s.Links[0].Carrier = want == ""
		s.Links[1].Up, s.Links[1].Carrier = false, false
		d.change(t, s, "the uplink changes", func() bool { return d.core.links == s })
		status, err := d.Status()
		if err != nil || strings.Join(status.Overlay.Problems, "; ") != want {
			t.Errorf("%q, %v, want %q", status.Overlay.Problems, err, want)
		}
		if g := d.Gauges().Up; len(g) != 1 || g["eth0"] != i {
			t.Errorf("gauges %v", g)
		}
	}
}

// TestClosedWhileNotAttached: an interface that cannot be attached is closed, unless it is to
// fail open, and is opened when nobody wants it any more.
func TestClosedWhileNotAttached(t *testing.T) {
	fake := newFake()
	fake.fails("attach 1")
	d := prepare(t, t.TempDir(), "domain: ['2001:db8::/32']\nencapsulation: {source: '2001:db8::1'}\ninterfaces: [{name: eth0, roles: [sr]}, {name: eth1, roles: [sr], fail_open: true}]\n", fake).start(t, links("eth0", "eth1"))
	closed := closingOf(fake).On
	if got := closed(); len(got) != 1 || got[1] != attach.ModeGeneric {
		t.Errorf("closed: %v", got)
	}
	list, err := d.Interfaces()
	if err != nil || list[0].Closed != "generic" || !strings.Contains(list[0].Attached, "is closed") || list[1].Closed != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if g := d.Gauges(); len(g.Closed) != 1 || g.Closed["eth0"] != "generic" {
		t.Errorf("gauges: %v", g.Closed)
	}
	d.change(t, links("eth1"), "eth0 is gone", func() bool { return len(closed()) == 0 })
}
