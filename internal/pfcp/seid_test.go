package pfcp

import (
	"maps"
	"math/bits"
	"testing"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// Whoever knows a SEID, and sends from the SMF's address, does not get at the SMF's
// other sessions: neither by counting on, nor by changing any bit.
func TestSEIDsAreNotGuessed(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	uplink := func(id uint64) uint64 { seid, _ := m.establish(id, uplinkPDR, toCore); return seid }
	known := uplink(1)
	for id := range uint64(64) {
		if seid := uplink(id + 2); seid >= 1<<53 {
			t.Fatalf("SEID %#x: readers of JSON change it", seid)
		}
	}
	b.upf.mu.Lock()
	before := maps.Clone(b.upf.sessions)
	b.upf.mu.Unlock()
	var guesses []uint64
	for i := range uint64(100) {
		guesses = append(guesses, known+i+1, known-i-1)
	}
	for bit := range 64 {
		guesses = append(guesses, known^1<<bit)
	}
	for _, guess := range guesses {
		wantCause(t, m.delete(guess).Cause, ie.CauseSessionContextNotFound)
		wantCause(t, m.modify(guess, ie.NewUpdateFAR(ie.NewFARID(1), ie.NewApplyAction(1))).Cause, ie.CauseSessionContextNotFound)
	}
	b.upf.mu.Lock()
	if !maps.Equal(before, b.upf.sessions) {
		t.Error("a guess was right")
	}
	b.upf.mu.Unlock()
	wantCause(t, m.delete(known).Cause, ie.CauseRequestAccepted)
}

// The upper bits of SEIDs that follow one another differ in about half of them, after a
// restart too.
func TestSEIDsAreRandom(t *testing.T) {
	w := newWorker(&Server{signalling: alone{}}, 0)
	w.s.workers = []*worker{w}
	seen := map[uint64]bool{}
	differ, last := 0, w.newSEID()
	const n = 2000
	for range n {
		seid := w.newSEID()
		differ += bits.OnesCount64((seid ^ last) / session.Places)
		if seen[seid] {
			t.Fatalf("SEID %#x again", seid)
		}
		seen[seid], last = true, seid
		w.sessions.Put(w.place(seid), &association{})
	}
	if differ < n*14 || differ > n*17 {
		t.Errorf("%d of %d bits differ", differ, n*31)
	}
	again := newWorker(w.s, 0)
	if a, b := again.newSEID(), newWorker(w.s, 0).newSEID(); a == b {
		t.Errorf("two starts begin with SEID %#x", a)
	}
}

// A worker makes SEIDs, each of its own and none twice, although it has no free place.
func TestMoreSessionsThanPlaces(t *testing.T) {
	s := &Server{signalling: alone{}}
	w := newWorker(s, 5)
	s.workers = make([]*worker, session.Places/4)
	for i := range s.workers {
		s.workers[i] = w // to be found by any place
	}
	for n := range 10 {
		seid := w.newSEID()
		if session.PlaceOf(seid)%uint32(len(s.workers)) != 5 || w.seidAt(w.place(seid)) != seid || w.owner(seid) != nil {
			t.Fatalf("SEID %#x", seid)
		}
		w.sessions.Put(w.place(seid), &association{})
		if w.owner(seid) == nil || w.sessions.Len() != n+1 {
			t.Fatalf("SEID %#x is not there; %d are", seid, w.sessions.Len())
		}
	}
}

// Sessions of an earlier build keep their SEIDs, even where two have one place.
func TestSEIDsOfEarlierBuilds(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	old := []uint64{0x6b022c5e00000001, 0x6b022c5f00000001, 0x6b022c5f00000002}
	for i, seid := range old {
		made, _ := m.establish(uint64(i+1), uplinkPDR, toCore)
		b.upf.mu.Lock()
		s := *b.upf.sessions[made]
		s.SEID = seid
		delete(b.upf.sessions, made)
		b.upf.sessions[seid] = &s
		b.upf.mu.Unlock()
	}
	b.stop()
	b.start(func(c *Config, _ *fakeUPF) { c.Workers = 3 })
	for _, seid := range old {
		m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3)))
	}
	wantCause(t, m.delete(old[0]).Cause, ie.CauseRequestAccepted)
	m.associate() // removes the others
	b.upf.holdsNothing(t)
}
