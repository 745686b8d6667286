package pfcp

import (
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// attack sends what somebody who may not would send. Nothing must come of it but one
// event for each datagram.
func (m *smf) attack(event string) {
	m.t.Helper()
	before, known := m.bed.s.Stats().Events[event], len(m.bed.s.Associations())
	list := []message.Message{
		message.NewAssociationSetupRequest(m.next(), m.node(), ie.NewRecoveryTimeStamp(time.Now())),
		message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Now()), nil),
		message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0, m.node(), m.cpFSEID(7), uplinkPDR, toCore),
		message.NewSessionDeletionRequest(0, 0, 1, m.next(), 0),
	}
	for _, msg := range list {
		m.send(msg)
	}
	if answer := m.receive(silence); answer != nil {
		m.t.Errorf("answered: %s", answer.MessageTypeName())
	}
	if got := m.bed.s.Stats().Events[event] - before; got != uint64(len(list)) {
		m.t.Errorf("%d %s events for %d datagrams", got, event, len(list))
	}
	if now := len(m.bed.s.Associations()); now != known {
		m.t.Errorf("%d associations, %d before", now, known)
	}
}

// Without a list of SMFs nobody is heard.
func TestNobodyIsAllowed(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) { c.Allow = nil })
	b.smf(2).attack("stranger")
	b.upf.holdsNothing(t)
}

// An SMF that is taken off the list has no more effect, and loses nothing: it goes on
// when it is listed again.
func TestNoLongerAllowed(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, toCore)
	before := b.upf.only(t)
	b.s.SetSMFs(nil, nil)
	m.attack("stranger")
	if b.upf.only(t) != before {
		t.Error("the session has changed")
	}
	b.s.SetSMFs(anyone, nil)
	wantCause(t, m.delete(seid).Cause, ie.CauseRequestAccepted)
	b.upf.holdsNothing(t)
}
