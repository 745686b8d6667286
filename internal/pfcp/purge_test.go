package pfcp

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// stuckUPF cannot remove sessions while it refuses.
type stuckUPF struct{ *fakeUPF }

func (u *stuckUPF) Drop(seid uint64) error {
	u.mu.Lock()
	err := u.refuse
	u.mu.Unlock()
	if err != nil {
		return err
	}
	return u.fakeUPF.Drop(seid)
}

// Sessions of an association that ended while the user plane could not remove them are
// removed later, with all that they hold.
func TestPurgeFails(t *testing.T) {
	b := newBed(t)
	b.stop()
	addr := b.addr(1)
	upf := &stuckUPF{b.upf}
	s, err := New(Config{Addresses: []netip.Addr{addr}, Allow: anyone, Log: quiet(), Heartbeat: time.Hour, RetryAfter: 10 * time.Millisecond}, upf)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() { s.Close(); <-done })
	m := b.smf(2)
	m.associate()
	for ue := range 40 {
		m.establish(uint64(ue+1), uplinkPDR, toCore)
	}
	fails := func(err error) {
		b.upf.mu.Lock()
		b.upf.refuse = err
		b.upf.mu.Unlock()
	}
	fails(errors.New("the table says no"))
	released := m.ask(message.NewAssociationReleaseRequest(m.next(), m.node())).(*message.AssociationReleaseResponse)
	wantCause(t, released.Cause, ie.CauseRequestAccepted)
	time.Sleep(50 * time.Millisecond)
	if n := len(slices.Collect(b.upf.Sessions())); n != 40 {
		t.Fatalf("%d sessions", n)
	}
	b.upf.consistent(t)
	fails(nil)
	waitFor(t, "that the sessions are removed", func() bool { return len(slices.Collect(b.upf.Sessions())) == 0 })
	waitFor(t, "that nothing is held", func() bool {
		b.upf.mu.Lock()
		defer b.upf.mu.Unlock()
		return len(b.upf.teids) == 0
	})
}
