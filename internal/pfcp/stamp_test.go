package pfcp

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// stampBed is a bed that keeps its Recovery Time Stamp in a file.
func stampBed(t *testing.T) (b *bed, file string) {
	file = filepath.Join(t.TempDir(), "recovery")
	return newBed(t, func(c *Config, _ *fakeUPF) { c.StampFile = file }), file
}

// open opens a server that does not have its sessions yet.
func (b *bed) open(t *testing.T, file string) *Server {
	t.Helper()
	s, err := Open(Config{Addresses: []netip.Addr{b.addr(1)}, Allow: anyone, Log: quiet(), Heartbeat: time.Hour, StampFile: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Listen()
	return s
}

// unsaving is a user plane that saves nothing.
type unsaving struct{ *fakeUPF }

func (unsaving) SaveState(string, []byte) error { return os.ErrPermission }

func (m *smf) sendHeartbeat() {
	m.send(message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Unix(1e9, 0)), nil))
}

// While the sessions are being read heartbeats are answered, with the Recovery Time
// Stamp of the last run. Requests are not: they get their answers afterwards.
func TestHeartbeatBeforeRestore(t *testing.T) {
	b, file := stampBed(t)
	m := b.smf(2)
	before := m.associate().RecoveryTimeStamp.Payload
	seid, _ := m.establish(1, uplinkPDR, toCore)
	b.stop()
	s := b.open(t, file)
	if now := m.heartbeat(1e9).RecoveryTimeStamp.Payload; !bytes.Equal(before, now) {
		t.Errorf("Recovery Time Stamp %x became %x", before, now)
	}
	modify := message.NewSessionModificationRequest(0, 0, seid, m.next(), 0, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	m.send(modify)
	if got := m.receive(100 * time.Millisecond); got != nil {
		t.Errorf("answered before the sessions are there: %v", got)
	}
	if err := s.Restore(b.upf); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	answer, ok := m.receive(5 * time.Second).(*message.SessionModificationResponse)
	if !ok {
		t.Fatal("the request that waited is not answered")
	}
	wantCause(t, answer.Cause, ie.CauseRequestAccepted)
	wantCause(t, m.ask(modify).(*message.SessionModificationResponse).Cause, ie.CauseRequestAccepted)
	if now := m.heartbeat(1e9).RecoveryTimeStamp.Payload; !bytes.Equal(before, now) {
		t.Errorf("afterwards Recovery Time Stamp %x became %x", before, now)
	}
}

// A request that has waited for too long is dropped: its SMF may have given it up. So is
// one that is too long to wait, and one too many.
func TestTooEarly(t *testing.T) {
	b, _ := stampBed(t)
	w, dropped := b.s.workers[0], b.s.counters.overflows.Load
	batch := &batch{packets: make([]packet, 3), early: time.Now().Add(-longestEarly - time.Second)}
	w.receiveAll(batch)
	if n := dropped(); n != 3 {
		t.Errorf("%d requests counted as dropped, want 3", n)
	}
	s := &Server{}
	if s.waits(mostEarlySize+1) || !s.waits(mostEarlySize) {
		t.Error("a long request waits, or one that is not")
	}
	if s.early.Store(mostEarly); s.waits(100) {
		t.Error("one too many waits")
	}
}

// Nobody gets a Recovery Time Stamp that is not that of the sessions: of another boot,
// of a file that is damaged, or of sessions that were lost.
func TestNoStampBeforeRestore(t *testing.T) {
	b, file := stampBed(t)
	m := b.smf(2)
	b.stop()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stamp, _, _ := strings.Cut(string(content), " ")
	for name, bad := range map[string]string{
		"none": "", "another boot": stamp + " 0b1e\n", "torn": stamp, "no number": "x" + string(content), "longer": string(content) + "1",
	} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		s := b.open(t, file)
		m.sendHeartbeat()
		if got := m.receive(50 * time.Millisecond); got != nil {
			t.Errorf("%s: answered with %v", name, got)
		}
		s.Close()
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	b.upf.state = nil
	s := b.open(t, file)
	if err := s.Restore(unsaving{b.upf}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadFile(file); err == nil {
		t.Errorf("the file still has %q", left)
	}
}
