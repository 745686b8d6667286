package pfcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// connected is a bed whose server has set up an association with an SMF, which has one
// session.
func connected(t *testing.T) (b *bed, m *smf, seid uint64) {
	b = &bed{t: t, addr: loopbacks(), upf: newFakeUPF()}
	m = b.smf(2)
	b.start(m.isNamed)
	m.answerSetup(m.awaitSetup(true))
	waitFor(t, "the association", func() bool { return len(b.s.Associations()) == 1 })
	seid, _ = m.establish(1, uplinkPDR, toCore)
	return b, m, seid
}

// isNamed makes the server set up the association with m.
func (m *smf) isNamed(c *Config, _ *fakeUPF) { c.Connect = []netip.Addr{m.addr} }

// awaitSetup returns the server's next Association Setup Request. alive: m answers
// heartbeats meanwhile.
func (m *smf) awaitSetup(alive bool) message.Message {
	m.t.Helper()
	for {
		msg := m.receive(patience)
		if msg == nil {
			m.t.Fatal("no Association Setup Request")
		}
		switch msg.MessageType() {
		case message.MsgTypeAssociationSetupRequest:
			return msg
		case message.MsgTypeHeartbeatRequest:
			if alive {
				m.live(msg)
			}
		}
	}
}

// answerSetup accepts an Association Setup Request.
func (m *smf) answerSetup(request message.Message) {
	m.t.Helper()
	m.send(message.NewAssociationSetupResponse(request.Sequence(), m.node(), ie.NewCause(ie.CauseRequestAccepted), ie.NewRecoveryTimeStamp(time.Unix(m.stamp, 0))))
}

// silent has the server find that m has left all repetitions of a heartbeat unanswered.
func (m *smf) silent() {
	m.bed.s.node.post(func() {
		for _, a := range m.bed.s.peers.Load().at(m.addr) {
			m.bed.s.node.beaten(a, 0, ErrNoAnswer)
		}
	})
}

// recovery is the Recovery Time Stamp of the only association.
func (b *bed) recovery() int64 { return b.s.Associations()[0].Recovery.Unix() }

// An SMF that waits for our setup restarts, and says so: its association is set up again,
// also after a restart of ours.
func TestConnectAgain(t *testing.T) {
	b, m, seid := connected(t)
	m.stamp++
	m.send(message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Unix(m.stamp, 0)), nil))
	m.awaitSetup(true)
	waitFor(t, "the session going", func() bool { return b.upf.Session(seid) == nil })
	b.stop() // before it is answered
	b.start(m.isNamed)
	m.answerSetup(m.awaitSetup(true))
	waitFor(t, "the association", func() bool { return b.s.node.isConnected(m.addr) })
	if n := len(b.s.Associations()); n != 1 || b.recovery() != m.stamp {
		t.Errorf("associations %+v", b.s.Associations())
	}
	m.establish(2, uplinkPDR, toCore)
	b.stop()
	b.start(m.isNamed)
	if msg := m.receive(silence); msg != nil {
		t.Errorf("received %v once the association is set up again", msg)
	}
}

// An SMF restarts, and answers no heartbeat of a UPF that it does not know: the setup tells
// it of us, and its answer and its heartbeat tell us of the restart.
func TestConnectUnknown(t *testing.T) {
	b, m, seid := connected(t)
	m.stamp++
	m.silent()
	setup := m.awaitSetup(false)
	if b.upf.Session(seid) == nil {
		t.Fatal("the session went because the SMF is silent")
	}
	m.answerSetup(setup)
	m.liveUntil("the session going", func() bool { return b.upf.Session(seid) == nil })
	waitFor(t, "the association", func() bool { return b.s.node.isConnected(m.addr) })
	if b.recovery() != m.stamp {
		t.Errorf("associations %+v", b.s.Associations())
	}
	m.establish(2, uplinkPDR, toCore)
	b.upf.consistent(t)
}

// An SMF that was away and answers our setup with the Recovery Time Stamp that we know has
// its sessions still: so have we.
func TestConnectKeeps(t *testing.T) {
	b, m, seid := connected(t)
	m.silent()
	m.answerSetup(m.awaitSetup(false))
	waitFor(t, "the association up again", func() bool { return b.s.node.isConnected(m.addr) })
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	if a := b.s.Associations(); len(a) != 1 || !a[0].Up || a[0].Sessions != 1 {
		t.Errorf("associations %+v", a)
	}
	b.upf.consistent(t)
}

// Whoever answers our setup in the SMF's place removes nothing: the SMF confirms its
// Recovery Time Stamp by a heartbeat.
func TestConnectForged(t *testing.T) {
	b, m, seid := connected(t)
	m.silent()
	setup := m.awaitSetup(false)
	m.stamp++
	m.answerSetup(setup)
	m.stamp--
	m.liveUntil("the answer refused", func() bool { return b.event("unconfirmed") == 1 })
	if b.recovery() != m.stamp {
		t.Errorf("associations %+v", b.s.Associations())
	}
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
}
