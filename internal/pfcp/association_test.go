package pfcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/session"
)

func (m *smf) heartbeat(stamp int64) *message.HeartbeatResponse {
	m.t.Helper()
	return m.ask(message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Unix(stamp, 0)), nil)).(*message.HeartbeatResponse)
}

func TestAssociation(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) { c.NodeID = "upf.example.org" })
	m := b.smf(2)
	answer := m.associate()
	if id, err := answer.NodeID.NodeID(); err != nil || id != "upf.example.org" {
		t.Errorf("Node ID %q, %v", id, err)
	}
	f := answer.UPFunctionFeatures
	for name, has := range map[string]bool{
		"FTUP": f.HasFTUP(), "PFDM": f.HasPFDM(), "EMPU": f.HasEMPU(), "UEIP": f.HasUEIP(), "FRRT": f.HasFRRT(),
		"MNOP": f.HasMNOP(), "VTIME": f.HasVTIME(), "DDND": f.HasDDND(), "QUOAC": f.HasQUOAC(), "IP6PL": f.Payload[3]&0x20 != 0,
	} {
		if !has {
			t.Errorf("%s is not announced", name)
		}
	}
	if f.HasBUCP() || f.HasPDIU() || f.HasHEEU() || f.HasTREU() || f.HasBUNDL() {
		t.Errorf("features %x announce what is not there", f.Payload)
	}
	ours := m.heartbeat(1e9).RecoveryTimeStamp.Payload
	if !bytes.Equal(ours, answer.RecoveryTimeStamp.Payload) {
		t.Error("two Recovery Time Stamps")
	}
	updated := m.ask(message.NewAssociationUpdateRequest(m.next(), m.node())).(*message.AssociationUpdateResponse)
	wantCause(t, updated.Cause, ie.CauseRequestAccepted)
	m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody)
	list := b.s.Associations()
	if len(list) != 1 || list[0].Node != m.addr.String() || list[0].Sessions != 1 || !list[0].Up || !list[0].Recovery.Equal(time.Unix(1e9, 0)) {
		t.Errorf("associations %+v", list)
	}
	released := m.ask(message.NewAssociationReleaseRequest(m.next(), m.node())).(*message.AssociationReleaseResponse)
	wantCause(t, released.Cause, ie.CauseRequestAccepted)
	b.upf.holdsNothing(t)
	wantCause(t, m.tryEstablish(2, uplinkPDR, toCore).Cause, ie.CauseNoEstablishedPFCPAssociation)
}

// Features that a user plane has not are not announced, and refused.
func TestNoFeatures(t *testing.T) {
	b := newBed(t, func(_ *Config, u *fakeUPF) { u.features = session.Features{} })
	m := b.smf(2)
	f := m.associate().UPFunctionFeatures
	if !f.HasFTUP() || !f.HasPFDM() || slices.Max(f.Payload[1:]) != 0 || f.Payload[0] != 0x30 {
		t.Errorf("features %x", f.Payload)
	}
	pdr := func(pdi ...*ie.IE) *ie.IE {
		return ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(1),
			ie.NewPDI(append([]*ie.IE{ie.NewSourceInterface(1)}, pdi...)...), ie.NewFARID(1))
	}
	urr := func(list ...*ie.IE) *ie.IE {
		return ie.NewCreateURR(append([]*ie.IE{ie.NewURRID(1), ie.NewMeasurementMethod(0, 1, 0), ie.NewReportingTriggers(2, 0)}, list...)...)
	}
	for name, list := range map[string][]*ie.IE{
		"framed route":       {pdr(ie.NewFramedRoute("192.0.2.0/24")), toCore},
		"UE address":         {pdr(ie.NewUEIPAddress(0x10, "", "", 0, 0)), toCore},
		"prefix length":      {pdr(ie.NewUEIPAddress(0x41, "", "2001:db8::", 0, 56)), toCore},
		"Ethernet filter":    {pdr(ie.NewEthernetPacketFilter(ie.NewEthertype(0x800))), toCore},
		"Ethernet session":   {pdr(), toCore, ie.NewPDNType(ie.PDNTypeEthernet)},
		"unstructured":       {pdr(), toCore, ie.NewPDNType(ie.PDNTypeNonIP)},
		"traffic endpoint":   {pdr(), toCore, ie.NewCreateTrafficEndpoint(ie.NewTrafficEndpointID(1))},
		"notification delay": {pdr(), toCore, ie.NewCreateBAR(ie.NewBARID(1), ie.NewDownlinkDataNotificationDelay(time.Second))},
		"packet rate":        {pdr(), toCore, ie.NewCreateQER(ie.NewQERID(1), ie.NewGateStatus(0, 0), ie.NewPacketRate(1, 0, 1, 0, 0))},
		"duplication":        {pdr(), ie.NewCreateFAR(ie.NewFARID(1), ie.NewApplyAction(0x11), ie.NewDuplicatingParameters(ie.NewDestinationInterface(4)))},
		"number of packets":  {pdr(), toCore, urr(ie.NewMeasurementInformation(0x10))},
		"quota validity":     {pdr(), toCore, urr(ie.NewQuotaValidityTime(time.Second))},
		"quota action":       {pdr(), toCore, urr(ie.NewFARID(1))},
	} {
		if answer := m.tryEstablish(1, list...); answer.Cause.Payload[0] != ie.CauseServiceNotSupported || answer.OffendingIE == nil {
			t.Errorf("%s: answered %v, offending %v", name, answer.Cause.Payload, answer.OffendingIE)
		}
	}
	b.upf.holdsNothing(t)
}

// An association that is set up again: sessions go, unless they are to be
// retained.
func TestAgain(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	first, _ := m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody)
	retain := ie.New(ie.PFCPSessionRetentionInformation, nil)
	answer := m.associate(retain)
	if answer.PFCPASRspFlags == nil || !answer.PFCPASRspFlags.HasPSREI() {
		t.Error("nothing says that sessions were retained")
	}
	m.mustModify(first, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	if n := b.s.Associations()[0].Sessions; n != 1 {
		t.Errorf("%d sessions are shown", n)
	}
	m.associate()
	b.upf.holdsNothing(t)
	wantCause(t, m.modify(first).Cause, ie.CauseSessionContextNotFound)
	// What has gone makes place for the same again.
	m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody)
	b.upf.consistent(t)
}

// A changed Recovery Time Stamp takes the peer's sessions with it: no one
// else's, and no one else's stamp. The log says how many they were.
func TestPeerRestart(t *testing.T) {
	var log bytes.Buffer // the server writes there while it holds the handler's lock
	b := newBed(t, func(c *Config, _ *fakeUPF) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	m, other, stranger := b.smf(2), b.smf(3), b.smf(4)
	m.associate()
	other.associate()
	mine, _ := m.establish(1, uplinkPDR, toCore)
	theirs, _ := other.establish(1, uplinkPDR, toCore)
	stranger.heartbeat(5)
	stranger.heartbeat(6)
	m.heartbeat(1e9)
	if b.upf.Session(mine) == nil || b.upf.Session(theirs) == nil {
		t.Fatal("a session went without a reason")
	}
	m.stamp++
	m.heartbeat(m.stamp)
	m.liveUntil("the session going", func() bool { return b.upf.Session(mine) == nil })
	if b.upf.Session(theirs) == nil {
		t.Error("another peer's session went too")
	}
	if n := b.s.Stats().Events["peer_restart"]; n != 1 {
		t.Errorf("%d restarts counted", n)
	}
	m.establish(2, uplinkPDR, toCore) // the association is there still
	b.upf.consistent(t)
	b.stop()
	if want := `msg="sessions removed with their PFCP association" event=pfcp.sessions_removed node=` + m.addr.String(); !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "sessions=1 why=\"the SMF has restarted: its Recovery Time Stamp is a later one\"\n") {
		t.Errorf("the log does not say %s sessions=1: %s", want, log.String())
	}
}

// An SMF that comes back under another name is the same PFCP entity: what it had
// under the old one is gone, and its addresses are free when it is answered.
func TestAnotherName(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody)
	name := ie.NewNodeID("", "", "smf.example.org")
	m.stamp = 1e9 + 5
	answer := m.ask(message.NewAssociationSetupRequest(m.next(), name, ie.NewRecoveryTimeStamp(time.Unix(1e9+5, 0)))).(*message.AssociationSetupResponse)
	wantCause(t, answer.Cause, ie.CauseRequestAccepted)
	if a := b.s.Associations(); len(a) != 1 || a[0].Node != "smf.example.org" || a[0].Sessions != 0 {
		t.Errorf("associations %+v", a)
	}
	b.upf.holdsNothing(t)
}

// Whom a session, a Node ID or N4 does not belong to has no effect.
func TestStrangers(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) {
		a := c.Addresses[0].As4()
		c.Allow = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], a[2], 0}), 29)}
	})
	m, other, stranger := b.smf(2), b.smf(3), b.smf(99)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, toCore)
	before := b.upf.only(t)

	stranger.send(message.NewHeartbeatRequest(1, ie.NewRecoveryTimeStamp(time.Now()), nil))
	stranger.send(message.NewAssociationSetupRequest(2, stranger.node(), ie.NewRecoveryTimeStamp(time.Now())))
	if answer := stranger.receive(silence); answer != nil {
		t.Errorf("a stranger was answered: %v", answer)
	}
	// Without an association, then with one.
	wantCause(t, other.delete(seid).Cause, ie.CauseNoEstablishedPFCPAssociation)
	other.associate()
	wantCause(t, other.delete(seid).Cause, ie.CauseSessionContextNotFound)
	wantCause(t, other.modify(seid, ie.NewRemovePDR(ie.NewPDRID(1))).Cause, ie.CauseSessionContextNotFound)
	// The Node ID of somebody else.
	taken := other.ask(message.NewAssociationSetupRequest(other.next(), m.node(), ie.NewRecoveryTimeStamp(time.Now()))).(*message.AssociationSetupResponse)
	wantCause(t, taken.Cause, ie.CauseRequestRejected)
	released := other.ask(message.NewAssociationReleaseRequest(other.next(), m.node())).(*message.AssociationReleaseResponse)
	wantCause(t, released.Cause, ie.CauseNoEstablishedPFCPAssociation)
	posing := message.NewSessionEstablishmentRequest(0, 0, 0, other.next(), 0, m.node(), other.cpFSEID(5), uplinkPDR, toCore)
	wantCause(t, other.ask(posing).(*message.SessionEstablishmentResponse).Cause, ie.CauseNoEstablishedPFCPAssociation)

	if b.upf.only(t) != before || b.s.Associations()[1].Addrs[0] != m.addr && b.s.Associations()[0].Addrs[0] != m.addr {
		t.Error("something has changed")
	}
	if s := b.s.Stats().Events; s["stranger"] != 2 || s["unauthorised"] != 6 {
		t.Errorf("%d strangers and %d unauthorised requests counted", s["stranger"], s["unauthorised"])
	}
}

// Heartbeats that nobody answers: the association is down, its sessions stay,
// and come back with it.
func TestDown(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) {
		c.Heartbeat, c.RetryAfter, c.Retries = 20*time.Millisecond, 10*time.Millisecond, 2
	})
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, toCore)
	waitFor(t, "the association down", func() bool { return !b.s.Associations()[0].Up })
	if b.upf.Session(seid) == nil {
		t.Fatal("the session went")
	}
	if s := b.s.Stats().Events; s["association_lost"] != 1 || s["retransmission"] < 2 || s["unanswered"] < 1 {
		t.Errorf("counted %+v", s)
	}
	for m.receive(silence/10) != nil { // all that it has missed
	}
	for range 3 {
		if hb, ok := m.receive(patience).(*message.HeartbeatRequest); ok {
			m.send(message.NewHeartbeatResponse(hb.Sequence(), ie.NewRecoveryTimeStamp(time.Unix(1e9, 0))))
		}
	}
	waitFor(t, "the association up again", func() bool { return b.s.Associations()[0].Up })
	if b.upf.Session(seid) == nil {
		t.Fatal("the session went")
	}
}

// Many SMFs that associate, fall silent and return, as behind a link that fails, are not a
// line each in the log.
func TestDownIsLoggedSeldom(t *testing.T) {
	var log bytes.Buffer // the server writes there while it holds the handler's lock
	b := newBed(t, func(c *Config, _ *fakeUPF) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	m := b.smf(2)
	const many = 100
	for i := range many {
		m.send(m.setup(ie.NewNodeID("", "", fmt.Sprintf("smf%d", i)), 1e9))
		if m.receive(patience) == nil {
			t.Fatal("an association was not answered")
		}
	}
	done := make(chan struct{})
	b.s.node.post(func() {
		defer close(done)
		for range 10 {
			for _, a := range b.s.peers.Load().byNode {
				b.s.node.beaten(a, 0, ErrNoAnswer)
				b.s.node.beaten(a, a.recovery, nil)
			}
		}
	})
	<-done
	b.stop()
	if n := b.s.Stats().Events["association_lost"]; n != 10*many {
		t.Errorf("%d lost associations counted", n)
	}
	for _, text := range []string{`"PFCP association" `, "does not answer", "is up again"} {
		if n := strings.Count(log.String(), text); n < 1 || n > 20 {
			t.Errorf("%d lines say %q", n, text)
		}
	}
}

// We set up associations that the configuration names, and ask for the release of any.
func TestOurOwnSetup(t *testing.T) {
	b := &bed{t: t, addr: loopbacks(), upf: newFakeUPF()}
	m := b.smf(2)
	b.start(func(c *Config, _ *fakeUPF) {
		c.Connect = []netip.Addr{m.addr}
		c.Heartbeat = 20 * time.Millisecond
	})
	setup, ok := m.receive(patience).(*message.AssociationSetupRequest)
	if !ok || setup.NodeID == nil || setup.RecoveryTimeStamp == nil || setup.UPFunctionFeatures == nil {
		t.Fatalf("not a setup: %v", setup)
	}
	m.send(message.NewAssociationSetupResponse(setup.Sequence(), ie.NewNodeID("", "", "smf.example.org"),
		ie.NewCause(ie.CauseRequestAccepted), ie.NewRecoveryTimeStamp(time.Unix(7, 0))))
	waitFor(t, "the association", func() bool { return len(b.s.Associations()) == 1 })
	if a := b.s.Associations()[0]; a.Node != "smf.example.org" || a.Addrs[0] != m.addr {
		t.Errorf("association %+v", a)
	}
	if err := b.s.Release("nobody"); err == nil {
		t.Error("released an association that is not there")
	}
	if err := b.s.Release("smf.example.org"); err != nil {
		t.Fatal(err)
	}
	for {
		update, ok := m.receive(patience).(*message.AssociationUpdateRequest)
		if !ok {
			continue // a heartbeat
		}
		if update.PFCPAssociationReleaseRequest == nil || !update.PFCPAssociationReleaseRequest.HasSARR() {
			t.Errorf("an update without a release request: %v", update)
		}
		m.send(message.NewAssociationUpdateResponse(update.Sequence(), m.node(), ie.NewCause(ie.CauseRequestAccepted)))
		return
	}
}

// Nothing is lost over a restart, and peers see the same UPF.
func TestRestart(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	before := m.associate().RecoveryTimeStamp.Payload
	wantCause(t, m.ask(message.NewPFDManagementRequest(m.next(), pfds("web", "permit out 6 from any 80 to assigned"))).(*message.PFDManagementResponse).Cause,
		ie.CauseRequestAccepted)
	seid, _ := m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody)
	b.stop()
	b.start()
	if after := m.heartbeat(1e9).RecoveryTimeStamp.Payload; !bytes.Equal(before, after) {
		t.Errorf("Recovery Time Stamp %x became %x", before, after)
	}
	if a := b.s.Associations(); len(a) != 1 || a[0].Sessions != 1 || !slices.Equal(a[0].Applications, []string{"web"}) {
		t.Errorf("associations %+v", a)
	}
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	// The same CHOOSE ID still means the same F-TEID.
	answer := m.mustModify(seid, ie.NewCreatePDR(ie.NewPDRID(3), ie.NewPrecedence(1),
		ie.NewPDI(ie.NewSourceInterface(0), chooseID(5)), ie.NewFARID(1)))
	if f, err := answer.CreatedPDR[0].FTEID(); err != nil || f.TEID != 1 {
		t.Errorf("F-TEID %+v, %v", f, err)
	}
	other, _ := m.establish(2, ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(1), ie.NewPDI(ie.NewSourceInterface(0), choose()), ie.NewFARID(1)), toCore)
	if other == seid {
		t.Error("a SEID that is in use was given again")
	}
	b.upf.consistent(t)

	// What was lost was lost: another UPF, as far as peers can see.
	b.stop()
	b.upf.state = nil
	time.Sleep(1100 * time.Millisecond) // stamps count seconds
	b.start()
	if after := m.heartbeat(1e9).RecoveryTimeStamp.Payload; bytes.Equal(before, after) {
		t.Error("the Recovery Time Stamp is the old one")
	}
	b.upf.holdsNothing(t)
}

// A repeated request gets its first answer again, and does nothing.
func TestRepeated(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	request := encode(t, message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0, m.node(), m.cpFSEID(1), uplinkPDR, toCore))
	for range 20 {
		m.sendRaw(request)
	}
	first := m.receiveRaw(patience)
	for range 19 {
		if again := m.receiveRaw(patience); !bytes.Equal(first, again) {
			t.Fatalf("answered %x, then %x", first, again)
		}
	}
	s := b.upf.only(t)
	deletion := encode(t, message.NewSessionDeletionRequest(0, 0, s.SEID, m.next(), 0))
	m.sendRaw(deletion)
	m.sendRaw(deletion)
	if a, again := m.receiveRaw(patience), m.receiveRaw(patience); !bytes.Equal(a, again) {
		t.Errorf("answered %x, then %x", a, again)
	}
	// The same sequence number, but another request: an SMF that has started
	// anew counts from the beginning.
	m.seq = 0
	m.stamp++
	m.ask(message.NewAssociationSetupRequest(m.next(), m.node(), ie.NewRecoveryTimeStamp(time.Unix(1e9+1, 0))))
	if n := b.s.Stats().Events["repeated"]; n != 20 {
		t.Errorf("%d repetitions counted", n)
	}
	b.upf.holdsNothing(t)
}

func pfds(app string, flows ...string) *ie.IE {
	var contexts []*ie.IE
	for _, flow := range flows {
		contexts = append(contexts, ie.NewPFDContext(ie.NewPFDContents(flow, "", "", "", "", nil, nil, nil)))
	}
	return ie.NewApplicationIDsPFDs(append([]*ie.IE{ie.NewApplicationID(app)}, contexts...)...)
}

func TestPFDs(t *testing.T) {
	b := newBed(t)
	m, other := b.smf(2), b.smf(3)
	m.associate()
	other.associate()
	manage := func(m *smf, cause uint8, list ...*ie.IE) {
		t.Helper()
		answer := m.ask(message.NewPFDManagementRequest(m.next(), list...)).(*message.PFDManagementResponse)
		wantCause(t, answer.Cause, cause)
	}
	withApp := ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(1),
		ie.NewPDI(ie.NewSourceInterface(0), choose(), ie.NewApplicationID("web")), ie.NewFARID(1))
	wantCause(t, m.tryEstablish(1, withApp, toCore).Cause, request.CauseUnknownApplication)

	manage(m, ie.CauseRequestAccepted, pfds("web", "permit out 6 from any 80 to assigned", "permit out 6 from any 443 to assigned"),
		pfds("dns", "permit out 17 from any 53 to assigned"))
	seid, _ := m.establish(1, withApp, toCore)
	ports := func() (list []uint16) {
		for _, f := range b.upf.Session(seid).PDRs[0].PDI.Filters {
			for _, r := range f.RemotePorts {
				list = append(list, r.From)
			}
		}
		return list
	}
	if got := ports(); !slices.Equal(got, []uint16{80, 443}) {
		t.Errorf("ports %v", got)
	}
	// Another SMF's PFDs are its own.
	wantCause(t, other.tryEstablish(1, withApp, toCore).Cause, request.CauseUnknownApplication)
	manage(other, ie.CauseRequestAccepted, pfds("web", "permit out 6 from any 9 to assigned"))
	// A change reaches sessions that are there.
	manage(m, ie.CauseRequestAccepted, pfds("web", "permit out 6 from any 8080 to assigned"))
	if got := ports(); !slices.Equal(got, []uint16{8080}) {
		t.Errorf("ports %v after the change", got)
	}
	// What cannot be matched is refused, and nothing of the request is done.
	for name, contents := range map[string]*ie.IE{
		"URL":         ie.NewPFDContents("", "http://example.org", "", "", "", nil, nil, nil),
		"domain name": ie.NewPFDContents("", "", "example.org", "", "", nil, nil, nil),
	} {
		answer := m.ask(message.NewPFDManagementRequest(m.next(), pfds("web", "permit out 6 from any 1 to assigned"),
			ie.NewApplicationIDsPFDs(ie.NewApplicationID("x"), ie.NewPFDContext(contents)))).(*message.PFDManagementResponse)
		if answer.Cause.Payload[0] != ie.CauseServiceNotSupported || answer.OffendingIE == nil {
			t.Errorf("%s: cause %d, offending %v", name, answer.Cause.Payload, answer.OffendingIE)
		}
	}
	manage(m, ie.CauseMandatoryIEIncorrect, pfds("web", "permit all of it"))
	manage(m, ie.CauseInvalidLength, ie.NewApplicationIDsPFDs(ie.NewApplicationID("x"), ie.NewPFDContext(ie.New(ie.PFDContents, []byte{1, 0, 0xff, 0xff}))))
	manage(m, ie.CauseMandatoryIEMissing, ie.NewApplicationIDsPFDs(ie.NewPFDContext()))
	if got := ports(); !slices.Equal(got, []uint16{8080}) {
		t.Errorf("ports %v after refused requests", got)
	}
	// More flows in one IE.
	more := []byte{0x21, 0}
	add := func(s string) { more = append(binary.BigEndian.AppendUint16(more, uint16(len(s))), s...) }
	add("permit out 6 from any 1 to assigned")
	second := "permit out 6 from any 2 to assigned"
	more = binary.BigEndian.AppendUint16(more, uint16(len(second)+2))
	add(second)
	manage(m, ie.CauseRequestAccepted, ie.NewApplicationIDsPFDs(ie.NewApplicationID("web"), ie.NewPFDContext(ie.New(ie.PFDContents, more))))
	if got := ports(); !slices.Equal(got, []uint16{1, 2}) {
		t.Errorf("ports %v", got)
	}
	// Without PFDs nothing matches any more: not everything.
	manage(m, ie.CauseRequestAccepted, ie.NewApplicationIDsPFDs(ie.NewApplicationID("web")))
	if f := b.upf.Session(seid).PDRs[0].PDI.Filters; len(f) != 1 || f[0].Remote != session.MatchNothing().Remote {
		t.Errorf("filters %+v", f)
	}
	manage(m, ie.CauseRequestAccepted)
	for _, a := range b.s.Associations() {
		if own := a.Node == m.addr.String(); own != (len(a.Applications) == 0) {
			t.Errorf("%s has applications %v", a.Node, a.Applications)
		}
	}
}

func TestReports(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) {
		c.RetryAfter, c.Retries, c.MaxReports = 30*time.Millisecond, 2, 2
	})
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(7, uplinkPDR, downlinkPDR, toCore, toNobody,
		ie.NewCreateBAR(ie.NewBARID(1), ie.NewSuggestedBufferingPacketsCount(3)))
	result := make(chan error, 3)
	done := func(err error) { result <- err }
	b.s.Report(session.Report{
		SEID: seid, DownlinkData: []uint16{2}, Inactive: true,
		Usage: []session.UsageReport{{URR: 4, Sequence: 1, Cause: session.CausePeriodic, HasVolume: true,
			Detected: [][6]byte{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}, Removed: [][6]byte{{2, 0, 0, 0, 0, 3}}}},
		ErrorIndications: []session.PeerTEID{{Addr: netip.MustParseAddr("192.0.2.1"), TEID: 0x99}},
	}, done)
	got, ok := m.receive(patience).(*message.SessionReportRequest)
	if !ok || got.SEID() != 7 {
		t.Fatalf("reported %v", got)
	}
	if r := got.ReportType; !r.HasDLDR() || !r.HasUSAR() || !r.HasERIR() || !r.HasUPIR() {
		t.Errorf("report type %x", r.Payload)
	}
	pdr, err1 := got.DownlinkDataReport.PDRID()
	f, err2 := got.ErrorIndicationReport.FTEID()
	urr, err3 := got.UsageReport[0].URRID()
	if err := errors.Join(err1, err2, err3); err != nil || pdr != 2 || f.TEID != 0x99 || urr != 4 {
		t.Errorf("PDR %d, F-TEID %+v, URR %d, %v", pdr, f, urr, err)
	}
	// Sent again until it is answered. The answer may change buffering.
	again, ok := m.receive(patience).(*message.SessionReportRequest)
	if !ok || again.Sequence() != got.Sequence() {
		t.Fatalf("not sent again: %v", again)
	}
	m.send(message.NewSessionReportResponse(0, 0, seid, got.Sequence(), 0, ie.NewCause(ie.CauseRequestAccepted),
		ie.NewUpdateBARWithinSessionReportResponse(ie.NewBARID(1), ie.NewDLBufferingSuggestedPacketCount(9)),
		ie.NewPFCPSRRspFlags(1)))
	if err := <-result; err != nil {
		t.Error(err)
	}
	if n := b.upf.only(t).BARs[0].SuggestedCount; n != 9 || !b.upf.changes[0].DropBuffered {
		t.Errorf("suggested count %d, %+v", n, b.upf.changes)
	}
	// A late one finds nobody waiting.
	m.send(message.NewSessionReportResponse(0, 0, seid, got.Sequence(), 0, ie.NewCause(ie.CauseRequestAccepted)))
	waitFor(t, "a response that nobody waits for", func() bool { return b.s.Stats().Events["unexpected"] == 1 })

	// Bounded, and given up in the end.
	for range 3 {
		b.s.Report(session.Report{SEID: seid, DownlinkData: []uint16{2}}, done)
	}
	if err := <-result; !errors.Is(err, ErrBusy) {
		t.Errorf("the third of two: %v", err)
	}
	for range 2 {
		if err := <-result; !errors.Is(err, ErrNoAnswer) {
			t.Errorf("unanswered: %v", err)
		}
	}
	b.s.Report(session.Report{SEID: seid + 1000}, done)
	if err := <-result; !errors.Is(err, ErrNoSession) {
		t.Errorf("no session: %v", err)
	}
	for m.receive(silence) != nil {
	}
	// An SMF that has no such session: it goes here too.
	b.s.Report(session.Report{SEID: seid, Inactive: true}, done)
	last := m.receive(patience).(*message.SessionReportRequest)
	m.send(message.NewSessionReportResponse(0, 0, 0, last.Sequence(), 0, ie.NewCause(ie.CauseSessionContextNotFound)))
	if err := <-result; !errors.Is(err, ErrRefused) {
		t.Errorf("refused: %v", err)
	}
	b.upf.holdsNothing(t)
	if n := b.s.Stats().ReportsPending; n != 0 {
		t.Errorf("%d reports pending", n)
	}
}
