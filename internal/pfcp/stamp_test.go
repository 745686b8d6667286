package pfcp

import (
	"bytes"
	"encoding/binary"
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

// stampIn is the Recovery Time Stamp in an IE.
func stampIn(i *ie.IE) uint32 { return binary.BigEndian.Uint32(i.Payload) }

// getsStamp fails unless a heartbeat of m's is answered with a Recovery Time Stamp.
func (m *smf) getsStamp(what string, want uint32) {
	m.t.Helper()
	if got := stampIn(m.heartbeat(1e9).RecoveryTimeStamp); got != want {
		m.t.Errorf("%s: Recovery Time Stamp %d, want %d", what, got, want)
	}
}

// past puts the association with m so far back that what m does is no answer to it.
func (m *smf) past() {
	done := make(chan struct{})
	m.bed.s.node.post(func() {
		m.bed.s.peers.Load().at(m.addr)[0].since = time.Now().Add(-reactionTime)
		close(done)
	})
	<-done
}

// An SMF that has not restarted sets up its association again, as Open5GS' does after an
// outage of N4. It learns by a later Recovery Time Stamp that its sessions are removed, once
// for each time, also after a restart. Others do not.
func TestRenewedStamp(t *testing.T) {
	b, file := stampBed(t)
	m, other := b.smf(2), b.smf(3)
	own := stampIn(m.associate().RecoveryTimeStamp)
	other.associate()
	if got := stampIn(m.associate().RecoveryTimeStamp); got != own {
		t.Errorf("without a session: Recovery Time Stamp %d became %d", own, got)
	}
	m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody)
	if got := stampIn(m.associate(ie.New(ie.PFCPSessionRetentionInformation, nil)).RecoveryTimeStamp); got != own {
		t.Errorf("with session retention: Recovery Time Stamp %d became %d", own, got)
	}

	m.send(m.setup(m.node(), 1e9))
	asked := m.receive(patience).(*message.HeartbeatRequest)
	m.live(asked)
	told := m.receive(patience).(*message.HeartbeatRequest) // before the answer
	m.live(told)
	later := stampIn(m.receive(patience).(*message.AssociationSetupResponse).RecoveryTimeStamp)
	b.upf.holdsNothing(t)
	if !isLater(later, own) || stampIn(asked.RecoveryTimeStamp) != own || stampIn(told.RecoveryTimeStamp) != later {
		t.Errorf("Recovery Time Stamps %d, then %d in a heartbeat, then %d in the answer", stampIn(asked.RecoveryTimeStamp), stampIn(told.RecoveryTimeStamp), later)
	}
	m.getsStamp("afterwards", later)
	other.getsStamp("another SMF", own)

	// What the SMF does about it makes no other one.
	m.establish(2, uplinkPDR, toCore)
	if got := stampIn(m.associate().RecoveryTimeStamp); got != later {
		t.Errorf("set up again at once: Recovery Time Stamp %d became %d", later, got)
	}
	b.upf.holdsNothing(t)
	m.establish(3, uplinkPDR, toCore)
	m.past()
	if got := stampIn(m.associate().RecoveryTimeStamp); !isLater(got, later) {
		t.Errorf("set up again later: Recovery Time Stamp %d became %d", later, got)
	} else {
		later = got
	}

	b.stop()
	s := b.open(t, file)
	m.getsStamp("before the sessions are read", later)
	other.getsStamp("another SMF, before the sessions are read", own)
	s.Close()
	b.start()
	m.getsStamp("after a restart", later)
	other.getsStamp("another SMF, after a restart", own)

	// Neither a release nor a restart of the SMF takes it back.
	m.ask(message.NewAssociationReleaseRequest(m.next(), m.node()))
	m.getsStamp("after a release", later)
	m.associate()
	m.establish(4, uplinkPDR, toCore)
	m.stamp++
	if got := stampIn(m.set(m.node(), m.stamp).RecoveryTimeStamp); got != later {
		t.Errorf("after a restart of the SMF: Recovery Time Stamp %d became %d", later, got)
	}
}

// A Recovery Time Stamp goes with an association to its other addresses. Those that no
// association has are forgotten when they are too many.
func TestStampsOfAddresses(t *testing.T) {
	st := newStand(t)
	n, first := st.s.node, st.s.peers.Load().at(st.peers[0])[0]
	stamp := func(addr netip.Addr) uint32 { return st.s.stamps.Load().to(addr) }
	first.renewed = true
	n.setStamp(first, nil)
	later := stamp(st.peers[0])
	if !isLater(later, 7) || stamp(st.peers[1]) != 7 {
		t.Errorf("Recovery Time Stamps %d and %d", later, stamp(st.peers[1]))
	}
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}) }
	moved := newAssociation(first.node, 1, at(0), at(1))
	n.setStamp(moved, first)
	if stamp(at(0)) != later || stamp(at(1)) != later {
		t.Errorf("at other addresses %d and %d, want %d", stamp(at(0)), stamp(at(1)), later)
	}
	for i := range 2 * maxAssociations {
		a := newAssociation("smf", 1, at(i))
		a.renewed = true
		n.setStamp(a, nil)
	}
	if got := len(st.s.stamps.Load().Later); got > maxAssociations || stamp(st.peers[0]) != later {
		t.Errorf("%d addresses, and the first SMF gets %d", got, stamp(st.peers[0]))
	}
}
