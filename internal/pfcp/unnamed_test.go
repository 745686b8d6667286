package pfcp

import (
	"bytes"
	"testing"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// An SMF that got no answer before the UPF was killed repeats its establishment and
// gets that answer, whatever worker handles it: no second session, no Cause 73.
func TestKilledBeforeTheAnswer(t *testing.T) {
	chosenUE := ie.NewCreatePDR(ie.NewPDRID(2), ie.NewPrecedence(100), ie.NewPDI(
		ie.NewSourceInterface(ie.SrcInterfaceCore), ie.NewUEIPAddress(0x30, "", "", 0, 0)), ie.NewFARID(2))
	ours := func(m *smf) []byte {
		return encode(t, message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0,
			m.node(), m.cpFSEID(7), uplinkPDR, chosenUE, toCore, toNobody))
	}
	requests := map[string]func(m *smf) []byte{"chosen UE addresses": ours}
	for _, dialect := range []string{"open5gs", "free5gc"} {
		requests[dialect] = func(m *smf) []byte {
			smfOfCapture := conversation(t, dialect)[0].From
			request := captured(t, dialect)[message.MsgTypeSessionEstablishmentRequest]
			return bytes.ReplaceAll(request, smfOfCapture.AsSlice(), m.addr.AsSlice())
		}
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(c *Config, _ *fakeUPF) { c.Workers = 2 })
			m := b.smf(2)
			m.associate()
			data := request(m)
			m.sendRaw(data)
			first := m.receiveRaw(patience)
			seid := b.upf.only(t).SEID
			for _, workers := range []int{2, 1, 3, 5} {
				b.stop()
				b.start(func(c *Config, _ *fakeUPF) { c.Workers = workers })
				m.sendRaw(data)
				if again := m.receiveRaw(patience); !bytes.Equal(first, again) {
					t.Fatalf("%d workers: answered %x, then %x", workers, first, again)
				}
				b.upf.only(t)
				b.upf.consistent(t)
				if n := b.s.Stats().Events["repeated"]; n != 1 {
					t.Errorf("%d repetitions counted", n)
				}
			}
			wantCause(t, m.delete(seid).Cause, ie.CauseRequestAccepted)
			b.upf.holdsNothing(t)
		})
	}
}

// What is not the same request of the same SMF gets no answer of another session, and
// changes nothing.
func TestNotTheSameEstablishment(t *testing.T) {
	b := newBed(t)
	m, other := b.smf(2), b.smf(3)
	m.associate()
	other.associate()
	rules := []*ie.IE{uplinkPDR, downlinkPDR, toCore, toNobody}
	seid, _ := m.establish(7, rules...)
	b.stop()
	b.start()
	before := b.upf.only(t)

	taken := func(who string, answer *message.SessionEstablishmentResponse) {
		t.Helper()
		wantCause(t, answer.Cause, ie.CauseRuleCreationModificationFailure)
		if answer.UPFSEID != nil || b.upf.only(t) != before {
			t.Fatalf("%s: %v, and the session is %+v", who, answer.UPFSEID, b.upf.only(t))
		}
		b.upf.consistent(t)
	}
	list := append([]*ie.IE{other.node(), m.cpFSEID(7)}, rules...)
	taken("another SMF, with the CP F-SEID of the first", other.ask(
		message.NewSessionEstablishmentRequest(0, 0, 0, other.next(), 0, list...)).(*message.SessionEstablishmentResponse))
	taken("another CP F-SEID", m.tryEstablish(8, rules...))
	taken("other rules", m.tryEstablish(7, uplinkPDR, downlinkPDR, toCore, ie.NewCreateFAR(ie.NewFARID(2), ie.NewApplyAction(1))))
	list[0] = m.node()
	forged := other.ask(message.NewSessionEstablishmentRequest(0, 0, 0, other.next(), 0, list...)).(*message.SessionEstablishmentResponse)
	wantCause(t, forged.Cause, ie.CauseNoEstablishedPFCPAssociation)

	// The SMF knows the session that it changes. An establishment that is replayed later
	// does not take back the change.
	m.mustModify(seid, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewApplyAction(1)))
	m.mustModify(seid, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewApplyAction(12)))
	before = b.upf.only(t)
	taken("a replay", m.tryEstablish(7, rules...))

	// Another UE is another session, with whatever CP F-SEID.
	separate, _ := m.establish(7, ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(1),
		ie.NewPDI(ie.NewSourceInterface(1), givenUE("10.45.0.2")), ie.NewFARID(1)), toCore)
	if separate == seid {
		t.Error("two UEs, one session")
	}
	wantCause(t, m.delete(separate).Cause, ie.CauseRequestAccepted)
}

// An association that ends takes its sessions along: the same establishment makes a new
// one. With one that stays it stays.
func TestSameEstablishmentAfterwards(t *testing.T) {
	for _, retain := range []bool{false, true} {
		b := newBed(t)
		m := b.smf(2)
		m.associate()
		rules := []*ie.IE{uplinkPDR, downlinkPDR, toCore, toNobody}
		seid, _ := m.establish(7, rules...)
		var again []*ie.IE
		if retain {
			again = append(again, ie.New(ie.PFCPSessionRetentionInformation, nil))
		}
		m.associate(again...)
		after, _ := m.establish(7, rules...)
		if (seid == after) != retain {
			t.Errorf("retained: %v, SEID %#x became %#x", retain, seid, after)
		}
		b.upf.only(t)
		b.upf.consistent(t)
	}
}
