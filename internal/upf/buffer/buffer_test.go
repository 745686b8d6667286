package buffer_test

import (
	"slices"
	"testing"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/buffer"
	"github.com/culvert-net/culvert/internal/upf/stats"
)

// kept is a buffer with packets of the downlink of a session, which buffers and notifies.
type kept struct {
	buffer.Pool
	buffer.Buffer
	now     time.Time
	session *session.Session
}

func newKept(t *testing.T, packets int) *kept {
	t.Helper()
	k := &kept{now: time.Unix(1e9, 0), session: sample.Session(1)}
	k.Pool = buffer.Pool{Stats: &stats.Counters{}, Limits: func() buffer.Limits {
		return buffer.Limits{Packets: 100, Most: 100, Bytes: 1 << 20}
	}}
	k.change(session.Buffer | session.Notify)
	k.comes(packets)
	return k
}

// change gives the downlink another action.
func (k *kept) change(a session.Action) buffer.Next {
	k.session.FARs[1].Action = a
	return k.Update(&k.Buffer, k.session, false, k.now, func() bool { return true })
}

// comes adds packets, of which the first of an idle time begins it.
func (k *kept) comes(packets int) {
	for range packets {
		if !k.Keeps(2) {
			k.Follow(k.session, 2, k.now, k.Limits())
		}
		k.Add(&k.Buffer, buffer.Frame{Rule: 2, Data: make([]byte, 60)})
	}
}

// send sends packets while the session forwards.
func (k *kept) send(most int) int {
	return k.Drain(&k.Buffer, k.session, most, func(buffer.Frame) {})
}

func (k *kept) reports(t *testing.T, when string, want ...uint16) {
	t.Helper()
	if got := k.Report(k.now); !slices.Equal(got, want) {
		t.Errorf("%s: reports of %v, want %v", when, got, want)
	}
}

func TestIdleAgain(t *testing.T) {
	k := newKept(t, 5)
	k.reports(t, "the first time", 2)
	if next := k.change(session.Forward); next != buffer.Start {
		t.Fatalf("the UE is back: %v", next)
	}
	if n := k.send(3); n != 3 {
		t.Fatalf("%d packets sent", n)
	}
	k.change(session.Buffer | session.Notify)
	k.reports(t, "idle again, and two are left", 2)
	k.comes(1)
	k.reports(t, "another one comes")
	if n := k.send(3); n != 0 {
		t.Errorf("%d packets sent to an idle UE", n)
	}
	k.change(session.Forward)
	if n := k.send(9); n != 3 {
		t.Errorf("%d packets sent, want the three that were left", n)
	}
	k.change(session.Buffer | session.Notify)
	k.reports(t, "idle again, and none is left")
	k.comes(1)
	k.reports(t, "one comes", 2)
}

// Nothing overtakes what is kept, whatever the SMF changes before the UE comes back.
func TestHeldBackAfterAnotherChange(t *testing.T) {
	k := newKept(t, 2)
	k.change(session.Buffer | session.Notify)
	s := &datapath.Session{Rules: []datapath.Rule{{ID: 1, Action: datapath.ActionForward}, {ID: 2, Action: datapath.ActionForward}}}
	k.HoldBack(s)
	if s.Rules[0].Action != datapath.ActionForward || s.Rules[1].Action != datapath.ActionHold {
		t.Errorf("the data path does %v and %v", s.Rules[0].Action, s.Rules[1].Action)
	}
}
