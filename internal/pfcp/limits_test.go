package pfcp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// An SMF that we know loses nothing to others, whose budgets are used up.
func TestBudgets(t *testing.T) {
	addr := func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, host}) }
	l := newLimits()
	for _, shared := range append(l.unknown[:], l.unproven[:]...) {
		shared.SetLimit(0) // however slow the test is
	}
	take := func(host byte, is standing, what topic, times int) (granted int, ask bool) {
		for range times {
			ok, should := l.take(addr(host), is, what)
			if ok {
				granted++
			}
			ask = ask || should
		}
		return granted, ask
	}
	for what, bound := range map[topic]int{heartbeat: 1000, aboutSession: 1000, aboutNode: nodeBurst} {
		if n, _ := take(1, unknown, what, 10*bound); n != bound {
			t.Errorf("topic %d: %d of %d requests of an unknown sender", what, n, 10*bound)
		}
		if n, _ := take(2, unknown, what, 10); n > 0 {
			t.Errorf("topic %d: a second unknown sender has a budget of its own", what)
		}
	}
	if n, ask := take(3, unproven, aboutSession, 5000); n != 5000 || ask {
		t.Errorf("%d of 5000 requests of a new association; asked: %v", n, ask)
	}
	if n, ask := take(3, unproven, aboutSession, 100_000); n != 15_000 || !ask {
		t.Errorf("%d of 100000 requests of a new association; asked: %v", n, ask)
	}
	for _, what := range []topic{heartbeat, aboutSession} {
		if n, _ := take(4, knownAsSMF, what, 200_000); n != 200_000 {
			t.Errorf("topic %d: %d of 200000 requests of an SMF", what, n)
		}
	}
	if n, _ := take(4, knownAsSMF, aboutNode, 10*knownNodeRate); n < knownNodeRate || n > 2*knownNodeRate {
		t.Errorf("%d requests of an SMF about the node", n)
	}
	if n, _ := take(5, knownAsSMF, aboutNode, knownNodeRate); n != knownNodeRate {
		t.Errorf("%d requests of another SMF about the node", n)
	}
	for i := range 10 * maxAssociations {
		l.take(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), knownAsSMF, aboutNode)
	}
	if n := len(l.known); n > 4*maxAssociations {
		t.Errorf("%d limiters kept", n)
	}
}

// What an unknown sender asks for in excess is not answered, and counted.
func TestExcessIsCounted(t *testing.T) {
	st := newStand(t)
	st.s.limits = newLimits()
	st.s.limits.unknown[aboutSession].SetLimit(0) // however slow the test is
	m := &smf{t: t, addr: st.peers[2]}
	const sent = 5000
	answers, octets := 0, 0
	for range sent {
		data := encode(t, message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0, m.node(), m.cpFSEID(7), uplinkPDR, toCore))
		answers += len(st.step(m.addr, data))
		octets = len(data)
	}
	excess := int(st.s.Stats().Events["rate_limited"])
	if answers != 1000 || excess != sent-answers {
		t.Errorf("%d answers, %d counted, of %d", answers, excess, sent)
	}
	if messages, total := st.s.Excess(); int(messages) != excess || int(total) != excess*octets {
		t.Errorf("%d messages with %d octets, want %d with %d", messages, total, excess, excess*octets)
	}
	st.upf.holdsNothing(t)
}

// An association that sends much is asked for its heartbeat, and has no limit then.
func TestProof(t *testing.T) {
	st := newStand(t)
	st.s.limits = newLimits()
	shared := st.s.limits.unproven[aboutSession]
	shared.SetLimit(0)
	peer := st.peers[0]
	for what, want := range map[netip.Addr]standing{peer: unproven, st.peers[2]: unknown} {
		if got := st.s.standingOf(what); got != want {
			t.Errorf("%v has standing %d, want %d", what, got, want)
		}
	}
	m := &smf{t: t, addr: peer}
	for i := range 300 {
		if i == 100 && !shared.AllowN(time.Now(), shared.Burst()/2) {
			t.Fatal("the budget is used up")
		}
		if i == 200 {
			for shared.Allow() { // others use up the rest
			}
		}
		if len(st.step(peer, encode(t, message.NewSessionDeletionRequest(0, 0, 1, m.next(), 0)))) != 1 {
			t.Fatalf("request %d not answered", i)
		}
	}
	if got := st.s.standingOf(peer); got != knownAsSMF {
		t.Errorf("standing %d after an answer", got)
	}
	// Associations that replace it are proven as it is; a named address is without.
	a := st.s.peers.Load().at(peer)[0]
	st.s.node.restarted(a, a.recovery+1)
	st.step(peer, encode(t, message.NewAssociationSetupRequest(m.next(), m.node(), ie.NewRecoveryTimeStamp(time.Unix(1e9+1, 0)))))
	if got := st.s.standingOf(peer); got != knownAsSMF {
		t.Errorf("standing %d after another association", got)
	}
	st.s.smfs.Store(&smfs{allow: append([]netip.Prefix{netip.PrefixFrom(st.peers[2], 32)}, anyone...)})
	if got := st.s.standingOf(st.peers[2]); got != knownAsSMF {
		t.Errorf("standing %d of an address that smfs names", got)
	}
}

// Somebody who makes up Node IDs cannot fill our memory, nor take the place of those
// who come later.
func TestManyAssociations(t *testing.T) {
	st := newStand(t)
	m := &smf{t: t, addr: st.peers[2]}
	set := func(name string) uint8 {
		t.Helper()
		answers := st.step(m.addr, encode(t, m.setup(ie.NewNodeID("", "", name), 1e9)))
		if len(answers) != 1 {
			t.Fatalf("%d answers", len(answers))
		}
		return refusal(t, answers[0]).cause
	}
	for i := range maxAssociations {
		want := ie.CauseRequestAccepted
		if i >= maxAssociations-2 { // the stand has two
			want = ie.CauseNoResourcesAvailable
		}
		if cause := set(fmt.Sprintf("smf%d", i)); cause != want {
			t.Fatalf("association %d answered with cause %d", i, cause)
		}
	}
	// Only what has never answered, and has no sessions, makes room.
	ps := st.s.peers.Load()
	for _, a := range ps.byNode {
		st.s.node.beaten(a, 0, ErrNoAnswer)
		a.proven.Store(a.node != "smf7" && a.node != "smf5")
	}
	ps.byNode["smf5"].sessions.Add(1)
	st.step(m.addr, encode(t, message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Unix(1e9, 0)), nil))) // it may be forged
	if cause := set("new"); cause != ie.CauseRequestAccepted {
		t.Errorf("answered with cause %d", cause)
	}
	if cause := set("newer"); cause != ie.CauseNoResourcesAvailable {
		t.Errorf("answered with cause %d", cause)
	}
	now := st.s.peers.Load()
	if len(now.byNode) != maxAssociations || now.byNode["smf7"] != nil || now.byNode["new"] == nil {
		t.Errorf("%d associations; smf7: %v, new: %v", len(now.byNode), now.byNode["smf7"], now.byNode["new"])
	}
}
