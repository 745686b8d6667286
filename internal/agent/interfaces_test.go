package agent

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
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
