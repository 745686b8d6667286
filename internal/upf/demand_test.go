package upf

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// reserve is a kill and the start after it, up to where SMFs are answered.
func (w *world) reserve() {
	w.t.Helper()
	w.path.mu.Lock()
	w.path.teids = map[uint32]bool{}
	w.path.mu.Unlock()
	w.smf = &smf{}
	w.open()
	w.Reserve()
}

func (w *world) wantRestored(restored, of int) {
	w.t.Helper()
	if a, b := Restored(w.UPF); a != restored || b != of {
		w.t.Errorf("%d of %d sessions are restored, want %d of %d", a, b, restored, of)
	}
}

// forwardTo is a session whose downlink goes to another tunnel.
func forwardTo(s *session.Session, teid uint32) *session.Session {
	to := *s
	to.FARs = append([]session.FAR(nil), s.FARs...)
	for i := range to.FARs {
		if f := to.FARs[i].Forwarding; f != nil && f.Outer != nil {
			forwarding, outer := *f, *f.Outer
			outer.TEID = teid
			forwarding.Outer, to.FARs[i].Forwarding = &outer, &forwarding
		}
	}
	return &to
}

// tunnel is where a session's downlink goes; 0: there is no such session.
func (w *world) tunnel(seid uint64) uint32 {
	if s := w.Session(seid); s != nil {
		for _, f := range s.FARs {
			if f.Forwarding != nil && f.Forwarding.Outer != nil {
				return f.Forwarding.Outer.TEID
			}
		}
	}
	return 0
}

// A session that somebody asks for is restored before the others. The others are not lost,
// whenever the daemon dies, and nobody else gets their TEIDs and addresses.
func TestRestoreOnDemand(t *testing.T) {
	const n = 100
	w := newWorld(t)
	for seid := range uint64(n) {
		w.establish(sample.Session(seid + 1))
	}
	w.reserve()
	w.wantRestored(0, n)
	from := w.Session(n)
	w.modify(from, forwardTo(from, 0x777), session.Modification{})
	if _, err := w.remove(50); err != nil {
		t.Fatal(err)
	}
	w.wantRestored(2, n)
	other := sample.Session(60)
	if err := w.TakeUE(other.UEs()); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("the UE address of a session that is not restored: %v", err)
	}
	if err := w.TakeTEID(other.TEIDs()[0]); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("the TEID of a session that is not restored: %v", err)
	}
	w.establish(sample.Session(n + 1))
	if err := w.store.Renew(); err != nil { // as RenewGrown does meanwhile
		t.Fatal(err)
	}
	for _, whole := range []bool{false, true} { // killed again before the others are restored
		w.reserve()
		w.wantRestored(0, n)
		if whole {
			w.Restore()
			w.wantRestored(n, n)
		}
		if got := w.tunnel(n); got != 0x777 {
			t.Errorf("the session that was modified forwards to %#x", got)
		}
		if w.Session(50) != nil || w.Session(60) == nil || w.Session(n+1) == nil || w.Len() != n {
			t.Errorf("%d sessions are there, or others", w.Len())
		}
	}
}

// What the data path says of sessions that wait to be restored waits, too: it could not say
// whose they are. The reports follow.
func TestReportWhileRestoring(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(100_000)}))
	w.reserve()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for range 150 {
		w.path.packet(1, 1, 1000)
	}
	time.Sleep(50 * time.Millisecond)
	if len(w.path.events) == 0 {
		t.Fatal("an event was read before its session was restored")
	}
	w.Restore()
	var reports []session.UsageReport
	w.await(func() bool {
		reports = append(reports, w.smf.usage()...)
		return len(reports) > 0
	})
	if r := reports[0]; r.Cause != session.CauseVolumeThreshold || r.Volume.Total() != 150_000 {
		t.Errorf("reported %+v, want 150,000 octets", r)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// SMFs modify and delete sessions, and establish others, while the rest is restored.
func TestRequestsWhileRestoring(t *testing.T) {
	const n = 600
	w := newWorld(t)
	for seid := range uint64(n) {
		w.establish(sample.Session(seid + 1))
	}
	w.reserve()
	var smfs sync.WaitGroup
	for part := range uint64(3) {
		smfs.Go(func() {
			for seid := n - part; seid > n/2; seid -= 3 {
				s := w.Session(seid)
				if _, err := w.Modify(s, forwardTo(s, uint32(seid)), session.Modification{}); err != nil {
					t.Error(err)
				}
				if seid%2 == 0 {
					if err := w.Drop(seid); err != nil {
						t.Error(err)
					}
				}
				if err := w.Establish(sample.Session(seid + n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	w.Restore()
	smfs.Wait()
	w.wantRestored(n, n)
	for range 2 {
		for seid := uint64(1); seid <= 2*n; seid++ {
			exists := seid <= n && (seid <= n/2 || seid%2 != 0) || seid > n+n/2
			if got := w.tunnel(seid); (got != 0) != exists || exists && seid > n/2 && seid <= n && got != uint32(seid) {
				t.Errorf("session %d forwards to %#x, exists: %v", seid, got, exists)
			}
		}
		w.restart()
	}
}
