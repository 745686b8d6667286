package pfcp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// setup is an Association Setup Request of m's, with a Recovery Time Stamp.
func (m *smf) setup(node *ie.IE, stamp int64, more ...*ie.IE) message.Message {
	return message.NewAssociationSetupRequest(m.next(), append([]*ie.IE{node, ie.NewRecoveryTimeStamp(time.Unix(stamp, 0))}, more...)...)
}

// set sends the request and returns the answer.
func (m *smf) set(node *ie.IE, stamp int64, more ...*ie.IE) *message.AssociationSetupResponse {
	m.t.Helper()
	return m.ask(m.setup(node, stamp, more...)).(*message.AssociationSetupResponse)
}

// drain answers heartbeats of the server's until it is silent.
func (m *smf) drain() {
	m.t.Helper()
	for msg := m.receive(silence); msg != nil; msg = m.receive(silence) {
		if msg.MessageType() == message.MsgTypeHeartbeatRequest {
			m.live(msg)
		}
	}
}

// liveUntil answers heartbeats of the server's until what holds.
func (m *smf) liveUntil(what string, holds func() bool) {
	m.t.Helper()
	waitFor(m.t, what, func() bool {
		if msg := m.receive(silence); msg != nil {
			m.live(msg)
		}
		return holds()
	})
}

func (b *bed) event(name string) uint64 { return b.s.Stats().Events[name] }

// quick makes the server give up a question soon.
func quick(c *Config, _ *fakeUPF) { c.RetryAfter, c.Retries = 20*time.Millisecond, 2 }

// Heartbeat Requests with the SMF's address and another Recovery Time Stamp: the
// SMF says that it has not restarted, and nothing is lost.
func TestForgedHeartbeat(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, toCore)
	for _, stamp := range []int64{1e9 + 1, 2e9, 1e9 - 1} {
		m.heartbeat(stamp) // the SMF goes on to answer with 1e9
	}
	m.drain()
	if n := b.event("unconfirmed"); n != 3 {
		t.Errorf("%d heartbeats counted", n)
	}
	if b.upf.Session(seid) == nil || b.event("peer_restart") != 0 {
		t.Fatal("the session went")
	}
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	// A Heartbeat Response that we did not ask for says nothing.
	m.send(message.NewHeartbeatResponse(77, ie.NewRecoveryTimeStamp(time.Unix(2e9, 0))))
	waitFor(t, "the response counted", func() bool { return b.event("unexpected") == 1 })
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(4)))
	// Nor does an SMF lose its sessions that does not answer.
	m.send(message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Unix(2e9, 0)), nil))
	for msg := m.receive(patience); msg.MessageType() != message.MsgTypeHeartbeatResponse; msg = m.receive(patience) {
	}
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(5)))
}

// An earlier Recovery Time Stamp in an answer to our own heartbeat is stale.
func TestEarlierStamp(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) { c.Heartbeat = 20 * time.Millisecond })
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, toCore)
	m.stamp = 1e9 - 1
	m.liveUntil("an earlier stamp counted", func() bool { return b.event("unconfirmed") > 0 })
	if b.upf.Session(seid) == nil {
		t.Fatal("the session went")
	}
	// Our own heartbeat's answer is enough to see a restart.
	m.stamp = 1e9 + 1
	m.liveUntil("the session going", func() bool { return b.upf.Session(seid) == nil })
}

// Stamps begin again in 2036.
func TestLater(t *testing.T) {
	for _, c := range []struct {
		stamp, than uint32
		want        bool
	}{{5, 4, true}, {4, 4, false}, {4, 5, false}, {3, 1<<32 - 3, true}, {1<<32 - 3, 3, false}} {
		if got := isLater(c.stamp, c.than); got != c.want {
			t.Errorf("%d later than %d: %v", c.stamp, c.than, got)
		}
	}
}

// Association Setup Requests with the SMF's address that the SMF knows nothing
// of: refused, and nothing is lost.
func TestForgedSetup(t *testing.T) {
	b := newBed(t, quick)
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, toCore)
	since := b.s.Associations()[0].Since
	name := ie.NewNodeID("", "", "smf.example.org")
	retain := ie.New(ie.PFCPSessionRetentionInformation, nil)
	for what, request := range map[string]message.Message{
		"later":        m.setup(m.node(), 1e9+1),
		"earlier":      m.setup(m.node(), 1e9-1),
		"retaining":    m.setup(m.node(), 1e9+1, retain),
		"another name": m.setup(name, 1e9+1),
	} {
		if answer := m.ask(request).(*message.AssociationSetupResponse); answer.Cause.Payload[0] != ie.CauseRequestRejected {
			t.Errorf("%s: answered with cause %v", what, answer.Cause.Payload)
		}
	}
	if n := b.event("unconfirmed"); n != 4 {
		t.Errorf("%d requests counted", n)
	}
	// The SMF does not answer at all.
	m.send(m.setup(m.node(), 1e9+1))
	for {
		msg := m.receive(patience)
		if answer, ok := msg.(*message.AssociationSetupResponse); ok {
			wantCause(t, answer.Cause, ie.CauseRequestRejected)
			break
		}
		if msg == nil || msg.MessageType() != message.MsgTypeHeartbeatRequest {
			t.Fatalf("received %v", msg)
		}
	}
	if a := b.s.Associations(); len(a) != 1 || a[0].Since != since || a[0].Sessions != 1 {
		t.Errorf("associations %+v", a)
	}
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	// It has restarted indeed.
	m.stamp = 1e9 + 1
	wantCause(t, m.set(m.node(), m.stamp).Cause, ie.CauseRequestAccepted)
	b.upf.holdsNothing(t)
}

// An SMF without an association is answered at once, without a heartbeat.
func TestFirstAssociation(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.send(m.setup(m.node(), 1e9))
	if answer, ok := m.receive(patience).(*message.AssociationSetupResponse); !ok {
		t.Errorf("answered %v", answer)
	}
}

// A Node ID that is an address is the sender's own.
func TestForeignNodeID(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	for _, id := range []*ie.IE{
		ie.NewNodeID(b.addr(3).String(), "", ""), ie.NewNodeID("", "2001:db8::1", ""), ie.NewNodeID("", "", b.addr(3).String()),
	} {
		wantCause(t, m.set(id, 1e9).Cause, ie.CauseRequestRejected)
	}
	if n := len(b.s.Associations()); n != 0 || b.event("unauthorised") != 3 {
		t.Errorf("%d associations, %d refused", n, b.event("unauthorised"))
	}
}

// A name stays with an owner that answers, also if it has missed heartbeats. It
// moves from a silent one, with the sessions if the heir wants them.
func TestNameMoves(t *testing.T) {
	name := ie.NewNodeID("", "", "smf.example.org")
	retain := ie.New(ie.PFCPSessionRetentionInformation, nil)
	for what, kept := range map[string]bool{"retained": true, "removed": false} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, quick)
			owner, heir := b.smf(2), b.smf(3)
			owner.set(name, 1e9)
			seid := mustEstablishAs(t, owner, name)
			heir.stamp = 1e9 + 9
			list := []*ie.IE{}
			if kept {
				list = append(list, retain)
			}
			heir.send(heir.setup(name, heir.stamp, list...))
			owner.drain()
			refused, ok := heir.receive(patience).(*message.AssociationSetupResponse)
			if !ok {
				t.Fatal("no answer")
			}
			wantCause(t, refused.Cause, ie.CauseRequestRejected)
			if b.upf.Session(seid) == nil || b.s.Associations()[0].Addrs[0] != owner.addr || b.event("unauthorised") != 1 {
				t.Fatal("something has moved")
			}
			// The owner is silent from here on.
			wantCause(t, heir.set(name, heir.stamp, list...).Cause, ie.CauseRequestAccepted)
			if a := b.s.Associations(); len(a) != 1 || a[0].Addrs[0] != heir.addr {
				t.Fatalf("associations %+v", a)
			}
			if (b.upf.Session(seid) != nil) != kept {
				t.Errorf("kept: %v", !kept)
			}
		})
	}
}

// mustEstablishAs establishes a session under a name.
func mustEstablishAs(t *testing.T, m *smf, name *ie.IE) uint64 {
	t.Helper()
	request := message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0, name, m.cpFSEID(1), uplinkPDR, toCore)
	wantCause(t, m.ask(request).(*message.SessionEstablishmentResponse).Cause, ie.CauseRequestAccepted)
	return m.bed.upf.only(t).SEID
}

// Alternative SMF IP Addresses are in smfs, and no other association's.
func TestAlternativeAddresses(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) {
		a := c.Addresses[0].As4()
		c.Allow = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], a[2], 0}), 29)}
	})
	m, other := b.smf(2), b.smf(3)
	other.associate()
	at := func(host byte) *ie.IE { return ie.NewAlternativeSMFIPAddress(b.addr(host).AsSlice(), nil) }
	for what, alternative := range map[string]*ie.IE{"another association's": at(3), "not allowed": at(99)} {
		m.send(m.setup(m.node(), 1e9, at(4), alternative))
		want := answered{ie.CauseMandatoryIEIncorrect, ie.AlternativeSMFIPAddress}
		if got := refusal(t, m.receiveRaw(patience)); got != want {
			t.Errorf("%s: answered %+v, want %+v", what, got, want)
		}
	}
	if n := len(b.s.Associations()); n != 1 || b.event("unauthorised") != 2 {
		t.Errorf("%d associations, %d refused", n, b.event("unauthorised"))
	}
	wantCause(t, m.set(m.node(), 1e9, at(4)).Cause, ie.CauseRequestAccepted)
}

// Once an association ends, no request about its sessions is answered, although
// they are there still. The data path knows by the serial of what follows, and gets none of them back.
func TestDoomedSession(t *testing.T) {
	st, n := newStand(t), &notes{}
	st.s.signalling = n
	serials := func() (list []uint64) {
		st.s.share()
		for _, p := range n.node.Peers {
			list = append(list, p.Serial)
		}
		return list
	}
	peer := st.peers[0]
	m := &smf{t: t, addr: peer}
	establish := func(cpSEID uint64) message.Message {
		return message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0, m.node(), m.cpFSEID(cpSEID), uplinkPDR, toCore)
	}
	st.step(peer, encode(t, establish(1)))
	seid := st.upf.only(t).SEID
	worker := st.s.workerOf(seid)
	ask := func(msg message.Message) uint8 {
		t.Helper()
		worker.receive(&packet{conn: st.conn, from: netip.AddrPortFrom(peer, Port), to: nil, data: encode(t, msg)})
		return refusal(t, worker.scratch).cause
	}
	modification := func() message.Message {
		return message.NewSessionModificationRequest(0, 0, seid, m.next(), 0, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	}
	if cause := ask(modification()); cause != ie.CauseRequestAccepted {
		t.Fatalf("answered with cause %d before", cause)
	}
	a, before := st.s.peers.Load().at(peer)[0], serials()
	if again := serials(); !slices.Equal(before, again) {
		t.Errorf("serials %d, and then %d", before, again)
	}
	st.s.node.restarted(a, a.recovery+1)
	after := serials()
	for i, p := range n.node.Peers {
		if isNew := !slices.Contains(before, after[i]); isNew != (p.Node == a.node) {
			t.Errorf("serials %d before, %d after", before, after)
		}
	}
	n.takes = 0
	if st.upf.Session(seid) == nil {
		t.Fatal("the purge is over: the test shows nothing")
	}
	for _, msg := range []message.Message{modification(), message.NewSessionDeletionRequest(0, 0, seid, m.next(), 0)} {
		if cause := ask(msg); cause != ie.CauseSessionContextNotFound {
			t.Errorf("%s answered with cause %d", msg.MessageTypeName(), cause)
		}
	}
	if n.takes != 0 {
		t.Errorf("%d sessions would be given back to the data path", n.takes)
	}
	for st.settle() {
	}
	st.upf.holdsNothing(t)
}

// Each association is saved once, by itself, before it is answered: many cost no
// more than one each, whether they come together or one after another. So does a
// release.
func TestAssociationsSavedOnce(t *testing.T) {
	b := newBed(t, naming(2))
	m := b.smf(2)
	_ = m.udp.SetReadBuffer(socketBuffer) // for the answers to a burst
	written := func() int {
		b.upf.mu.Lock()
		defer b.upf.mu.Unlock()
		return b.upf.written
	}
	const many, most = 200, 300 // octets each
	name := func(i int) *ie.IE { return ie.NewNodeID("", "", fmt.Sprintf("smf%d", i)) }
	accepted := func() {
		t.Helper()
		answer, ok := m.receive(patience).(*message.AssociationSetupResponse)
		if !ok {
			t.Fatal("an association was not answered")
		}
		wantCause(t, answer.Cause, ie.CauseRequestAccepted)
	}
	before := written()
	holds, held := make(chan struct{}), make(chan struct{})
	b.s.node.post(func() {
		close(holds)
		<-held
	})
	<-holds
	for i := range many {
		m.send(m.setup(name(i), 1e9))
	}
	waitFor(t, "the burst", func() bool { return b.s.Stats().Received["association setup request"] == many })
	if n := written(); n != before {
		t.Errorf("%d octets written before the node had its turn", n-before)
	}
	close(held)
	for range many {
		accepted()
	}
	if n := written() - before; n > many*most || n < many {
		t.Errorf("%d octets for a burst of %d", n, many)
	}
	before = written()
	for i := range many {
		m.send(m.setup(name(many+i), 1e9))
		accepted()
	}
	if n := written() - before; n > many*most || n < many {
		t.Errorf("%d octets for %d, one after another", n, many)
	}
	before = written()
	m.send(message.NewAssociationReleaseRequest(m.next(), name(7)))
	if m.receive(patience) == nil || written()-before > most {
		t.Errorf("%d octets for a release", written()-before)
	}
	b.stop()
	before = written()
	b.start()
	if n := len(b.s.Associations()); n != 2*many-1 || written() != before {
		t.Errorf("%d associations after a start, which wrote %d octets", n, written()-before)
	}
}
