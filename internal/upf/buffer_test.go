package upf

import (
	"slices"
	"testing"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/store"
)

// idle makes a session buffer downlink packets.
func (w *world) idle(seid uint64, more session.Action, bar *session.BAR) *session.Session {
	w.t.Helper()
	s := w.Session(seid)
	to := sample.Copy(w.t, s)
	to.FARs[1].Action = session.Buffer | more
	if bar != nil {
		to.BARs, to.FARs[1].BAR = []session.BAR{*bar}, &bar.ID
	}
	w.modify(s, to, session.Modification{})
	return to
}

// kept is how many packets are kept for a session.
func kept(e *store.Entry) int {
	e.Lock()
	defer e.Unlock()
	n, _ := e.Buffer.Size()
	return n
}

// toUE is a frame with an IPv4 packet whose last octet is n.
func toUE(seid uint64, n byte) Packet {
	b := make([]byte, 14+20+8)
	b[14], b[17], b[len(b)-1] = 0x45, 28, n
	return Packet{Session: seid, Rule: 2, Ifindex: 7, L3: 14, Entry: entryOf(seid, 2), Data: b}
}

func TestBufferedInOrder(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	from := w.idle(1, session.Notify, nil)
	for n := range byte(5) {
		w.Buffer(toUE(1, n))
	}
	reports := w.smf.take()
	if len(reports) != 1 || !slices.Equal(reports[0].DownlinkData, []uint16{2}) {
		t.Errorf("reports: %+v", reports)
	}
	to := sample.Copy(t, from)
	to.FARs[1].Action = session.Forward
	w.path.comes(1, 2)
	w.modify(from, to, session.Modification{})
	w.await(func() bool { return len(w.path.sent()) == 5 })
	if r := w.path.rule(t, 1, 2); r.Action != datapath.ActionHold || r.Forward.Kind != datapath.ForwardGTPU {
		t.Errorf("while packets are on their way up: %+v", r)
	}
	w.path.comes(1, 2)
	w.Buffer(toUE(1, 5)) // one of them
	if n := len(w.path.sent()); n != 6 {
		t.Errorf("%d packets sent, want the one that came at once", n)
	}
	if r := w.path.rule(t, 1, 2); r.Action != datapath.ActionHold {
		t.Errorf("while one more is on its way up: %+v", r)
	}
	w.Buffer(toUE(1, 6))
	if r := w.path.rule(t, 1, 2); r.Action != datapath.ActionForward {
		t.Errorf("with nothing on its way up: %+v", r)
	}
	e := w.store.Entry(1)
	w.await(func() bool {
		e.Lock()
		defer e.Unlock()
		return e.Buffer == nil
	})
	if want := []string{"7:0", "7:1", "7:2", "7:3", "7:4", "7:5", "7:6"}; !slices.Equal(w.path.sent(), want) {
		t.Errorf("sent %v", w.path.sent())
	}
	if w.stats.BufferedNow.Load() != 0 || w.stats.BufferedBytes.Load() != 0 {
		t.Errorf("left: %d, %d octets", w.stats.BufferedNow.Load(), w.stats.BufferedBytes.Load())
	}
	// Idle again: reported again.
	w.idle(1, session.Notify, nil)
	w.Buffer(toUE(1, 7))
	if reports := w.smf.take(); len(reports) != 1 {
		t.Errorf("the next time: %+v", reports)
	}
}

// await gives what goes on beside the test time to happen.
func (w *world) await(done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("it did not happen")
		}
	}
}

// sent is what was sent so far.
func (f *fakePath) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.injected)
}

// A UE that becomes idle again while what was kept is sent keeps the rest.
func TestIdleWhileDraining(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	from := w.idle(1, session.Notify, nil)
	w.Buffer(toUE(1, 1))
	to := sample.Copy(t, from)
	to.FARs[1].Action = session.Forward
	w.path.comes(1, 2)
	w.modify(from, to, session.Modification{})
	w.await(func() bool { return len(w.path.sent()) == 1 })
	w.idle(1, session.Notify, nil)
	w.Buffer(toUE(1, 2))
	e := w.store.Entry(1)
	w.await(func() bool {
		e.Lock()
		defer e.Unlock()
		return !e.Buffer.Draining()
	})
	if r := w.path.rule(t, 1, 2); r.Action != datapath.ActionBuffer || len(w.path.sent()) != 1 || w.stats.BufferedNow.Load() != 1 {
		t.Errorf("rule %+v, %v sent, %d kept", r, w.path.sent(), w.stats.BufferedNow.Load())
	}
}

func TestNotificationDelayAndBounds(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{BufferPackets: 3, BufferBytes: 42 * 6}); err != nil {
		t.Fatal(err)
	}
	for seid := range uint64(3) {
		w.establish(sample.Session(seid + 1))
	}
	w.idle(1, session.Notify, &session.BAR{ID: 1, NotificationDelay: 200 * time.Millisecond, SuggestedCount: 5})
	w.idle(2, 0, nil)
	w.idle(3, 0, nil)
	for n := range byte(10) {
		w.Buffer(toUE(1, n))
	}
	if got := kept(w.store.Entry(1)); got != 5 {
		t.Errorf("%d of a BAR's 5", got)
	}
	if r := w.smf.take(); len(r) != 0 {
		t.Errorf("before the delay: %+v", r)
	}
	w.pass(250 * time.Millisecond)
	if r := w.smf.take(); len(r) != 1 {
		t.Errorf("after the delay: %+v", r)
	}
	for n := range byte(10) { // one octet's worth of room is left for each
		w.Buffer(toUE(2, n))
		w.Buffer(toUE(3, n))
	}
	if now := w.stats.BufferedNow.Load(); now != 6 {
		t.Errorf("%d packets in all, there is room for 6", now)
	}
	if r := w.smf.take(); len(r) != 0 {
		t.Errorf("without NOCP: %+v", r)
	}
	if got := [...]int{full(w, 1), full(w, 2) + full(w, 3)}; got != [...]int{5, 19} {
		t.Errorf("dropped in the full buffer: %d of 5 behind a BAR, %d of 19 beyond the octets of all", got[0], got[1])
	}
	if n, octets := w.stats.BufferOverflow.Load(), w.stats.BufferOverflowBytes.Load(); n != 24 || octets != 24*42 {
		t.Errorf("%d packets, %d octets counted of 24 dropped", n, octets)
	}
	before := w.stats.BufferDropped.Load()
	for seid := range uint64(3) {
		if _, err := w.remove(seid + 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.stats.BufferDropped.Load() - before; got != 6 || w.stats.BufferedBytes.Load() != 0 || len(w.path.injected) != 0 {
		t.Errorf("at deletion: %d dropped, %d octets left, %v sent", got, w.stats.BufferedBytes.Load(), w.path.injected)
	}
	w.Buffer(toUE(1, 1))
	if w.stats.BufferStale.Load() != 1 {
		t.Error("a packet of a session that is gone is not counted")
	}
}

func TestBufferDropped(t *testing.T) {
	for name, change := range map[string]func(*session.Session, *session.Modification){
		"DROP":  func(s *session.Session, _ *session.Modification) { s.FARs[1].Action = session.Drop },
		"DROBU": func(s *session.Session, how *session.Modification) { how.DropBuffered = true },
		"PDR removed": func(s *session.Session, _ *session.Modification) {
			s.PDRs = s.PDRs[:1]
		},
	} {
		w := newWorld(t)
		w.establish(sample.Session(1))
		from := w.idle(1, session.Notify, nil)
		w.Buffer(toUE(1, 1))
		to, how := sample.Copy(t, from), session.Modification{}
		change(to, &how)
		w.modify(from, to, how)
		if w.stats.BufferDropped.Load() != 1 || w.stats.BufferedNow.Load() != 0 || len(w.path.injected) != 0 {
			t.Errorf("%s: %d dropped, %d left, %v sent", name, w.stats.BufferDropped.Load(), w.stats.BufferedNow.Load(), w.path.injected)
		}
	}
}

// What the full buffer dropped is still seen when the UE has come back and gone
// again, and its next idle period has all the room.
func TestFullBufferIsRemembered(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	from := w.idle(1, session.Notify, &session.BAR{ID: 1, SuggestedCount: 2})
	for n := range byte(5) {
		w.Buffer(toUE(1, n))
	}
	to := sample.Copy(t, from)
	to.FARs[1].Action = session.Forward
	to.FARs[1].BAR, to.BARs = nil, nil
	w.modify(from, to, session.Modification{})
	w.await(func() bool { return w.path.rule(t, 1, 2).Action == datapath.ActionForward })
	if n := full(w, 1); n != 3 {
		t.Errorf("%d packets dropped in the full buffer, want 3", n)
	}
	w.smf.take()
	w.idle(1, session.Notify, nil)
	for n := range byte(5) {
		w.Buffer(toUE(1, n))
	}
	if n, reports := kept(w.store.Entry(1)), w.smf.take(); n != 5 || full(w, 1) != 3 || len(reports) != 1 {
		t.Errorf("the next time: %d kept, %d dropped in the full buffer, reports %+v", n, full(w, 1), reports)
	}
}

// A UE that is idle again before all is sent that was kept for it is paged again.
func TestIdleAgainBeforeAllIsSent(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	from := w.idle(1, session.Notify, nil)
	const many = 8 * drainAtOnce // which takes 8 pauses
	for n := range many {
		w.Buffer(toUE(1, byte(n)))
	}
	if reports := w.smf.take(); len(reports) != 1 {
		t.Errorf("reports of the first time: %+v", reports)
	}
	to := sample.Copy(t, from)
	to.FARs[1].Action = session.Forward
	w.modify(from, to, session.Modification{})
	w.idle(1, session.Notify, nil)
	w.pass(100 * time.Millisecond)
	if reports := w.smf.take(); len(reports) != 1 || !slices.Equal(reports[0].DownlinkData, []uint16{2}) {
		t.Errorf("reports of the second time: %+v", reports)
	}
	if n := kept(w.store.Entry(1)); n == 0 || n+len(w.path.sent()) != many {
		t.Errorf("%d packets left, %d sent", n, len(w.path.sent()))
	}
}

// While a buffer is full, the data path drops what comes: a flood at one idle UE does not
// reach the daemon. It buffers again when there is room, and what was kept leaves in order.
func TestFullBufferIsClosed(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{BufferPackets: 3, BufferBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	w.establish(sample.Session(1))
	action := func(want datapath.Action) func() bool {
		return func() bool { return w.path.rule(t, 1, 2).Action == want }
	}
	idle := w.idle(1, 0, nil)
	w.Buffer(toUE(1, 0))
	w.Buffer(toUE(1, 1))
	if !action(datapath.ActionBuffer)() {
		t.Errorf("with room for one more: %+v", w.path.rule(t, 1, 2))
	}
	w.Buffer(toUE(1, 2))
	w.await(action(datapath.ActionFull))
	w.Buffer(toUE(1, 3)) // was on its way up
	if got := [...]int{kept(w.store.Entry(1)), full(w, 1)}; got != [...]int{3, 1} {
		t.Errorf("%d kept, %d came later", got[0], got[1])
	}
	dropped := sample.Copy(t, idle)
	w.modify(idle, dropped, session.Modification{DropBuffered: true})
	if !action(datapath.ActionBuffer)() || kept(w.store.Entry(1)) != 0 {
		t.Errorf("after DROBU: %+v, %d kept", w.path.rule(t, 1, 2), kept(w.store.Entry(1)))
	}
	for n := range byte(3) {
		w.Buffer(toUE(1, n))
	}
	w.await(action(datapath.ActionFull))
	active := sample.Copy(t, dropped)
	active.FARs[1].Action = session.Forward
	w.modify(dropped, active, session.Modification{})
	w.await(action(datapath.ActionForward))
	if want := []string{"7:0", "7:1", "7:2"}; !slices.Equal(w.path.sent(), want) {
		t.Errorf("sent %v", w.path.sent())
	}
}

// Who sends faster than the daemon keeps a rule from opening for a second: then the data path
// drops what comes, and for another second at most.
func TestDrainingEnds(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	from := w.idle(1, 0, nil)
	w.Buffer(toUE(1, 0))
	to := sample.Copy(t, from)
	to.FARs[1].Action = session.Forward
	w.path.comes(1, 2)
	w.path.comes(1, 2)
	w.modify(from, to, session.Modification{})
	e := w.store.Entry(1)
	w.await(func() bool {
		e.Lock()
		defer e.Unlock()
		return e.Buffer.Sent()
	})
	action := func(want datapath.Action) func() bool {
		return func() bool { return w.path.rule(t, 1, 2).Action == want }
	}
	w.kept.drainSome(e) // so that the time is noted
	w.pass(drainFor / 2)
	w.kept.drainSome(e)
	if !action(datapath.ActionHold)() {
		t.Errorf("after half of the time: %+v", w.path.rule(t, 1, 2))
	}
	w.pass(drainFor / 2)
	w.await(action(datapath.ActionFull))
	w.Buffer(toUE(1, 1))
	if got := w.path.sent(); !action(datapath.ActionFull)() || !slices.Equal(got, []string{"7:0", "7:1"}) {
		t.Errorf("with one more on its way: %+v, sent %v", w.path.rule(t, 1, 2), got)
	}
	w.pass(drainFor) // the last one was lost
	w.await(action(datapath.ActionForward))
}

// While the room of all sessions is full, the data path drops what comes for each of them once
// it was reported, and buffers again when there is room.
func TestFullRoomIsClosed(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{BufferPackets: 100, BufferBytes: 42 * 3}); err != nil {
		t.Fatal(err)
	}
	action := func(seid uint64, want datapath.Action) func() bool {
		return func() bool { return w.path.rule(t, seid, 2).Action == want }
	}
	activate := func(seid uint64) {
		s := w.Session(seid)
		to := sample.Copy(t, s)
		to.FARs[1].Action = session.Forward
		w.modify(s, to, session.Modification{})
		w.await(action(seid, datapath.ActionForward))
	}
	for seid := uint64(1); seid <= 2; seid++ {
		w.establish(sample.Session(seid))
		w.idle(seid, session.Notify, nil)
	}
	for n := range byte(4) {
		w.Buffer(toUE(1, n))
	}
	w.await(action(1, datapath.ActionFull))
	w.smf.take()
	if !action(2, datapath.ActionBuffer)() {
		t.Errorf("a UE without packets: %+v", w.path.rule(t, 2, 2))
	}
	w.Buffer(toUE(2, 1))
	if reports := w.smf.take(); len(reports) != 1 || !slices.Equal(reports[0].DownlinkData, []uint16{2}) {
		t.Errorf("the first packet without room: reports %+v", reports)
	}
	w.await(action(2, datapath.ActionFull))
	w.Buffer(toUE(2, 2)) // was on its way up
	if got := [...]int{full(w, 1), full(w, 2), kept(w.store.Entry(2))}; got != [...]int{1, 2, 0} {
		t.Errorf("%d and %d dropped, %d kept", got[0], got[1], got[2])
	}
	w.kept.reopen()
	if !action(1, datapath.ActionFull)() || !action(2, datapath.ActionFull)() {
		t.Error("open without room")
	}
	activate(1)
	w.await(func() bool { return len(w.path.sent()) == 3 })
	w.kept.reopen()
	if !action(2, datapath.ActionBuffer)() {
		t.Errorf("with room: %+v", w.path.rule(t, 2, 2))
	}
	w.Buffer(toUE(2, 3))
	if n, reports := kept(w.store.Entry(2)), w.smf.take(); n != 1 || len(reports) != 0 {
		t.Errorf("%d kept, reports %+v", n, reports)
	}
	for n := range byte(3) {
		w.Buffer(toUE(2, n))
	}
	w.await(action(2, datapath.ActionFull))
	activate(2)
}

// A rule whose first packet finds the buffer full of another rule's is closed as well.
func TestFullBufferIsClosedForEachRule(t *testing.T) {
	w := newWorld(t)
	if err := w.SetConfig(Config{BufferPackets: 2, BufferBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	s := sample.Session(1)
	second := s.PDRs[1]
	second.ID, second.Precedence = 3, second.Precedence+1
	s.PDRs = append(s.PDRs, second)
	w.establish(s)
	w.idle(1, 0, nil)
	w.Buffer(toUE(1, 0))
	w.Buffer(toUE(1, 1))
	w.await(func() bool { return w.path.rule(t, 1, 2).Action == datapath.ActionFull })
	late := toUE(1, 2)
	late.Rule = 3
	if r := w.path.rule(t, 1, 3); r.Action != datapath.ActionBuffer {
		t.Errorf("before its first packet: %+v", r)
	}
	w.Buffer(late)
	w.await(func() bool { return w.path.rule(t, 1, 3).Action == datapath.ActionFull })
}

// full is how many packets of a session the view says were dropped in a full buffer.
func full(w *world, seid uint64) int {
	w.t.Helper()
	v, exists, err := w.View(seid)
	if err != nil || !exists {
		w.t.Fatal(err, exists)
	}
	return v.BufferFull
}

// A Downlink Data Report that the SMF did not take is sent again.
func TestDownlinkDataReportAgain(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	w.idle(1, session.Notify, nil)
	w.smf.answer = pfcp.ErrBusy
	w.Buffer(toUE(1, 1))
	w.smf.answer = nil
	w.pass(2 * time.Second)
	if r := w.smf.take(); len(r) != 2 {
		t.Errorf("%+v", r)
	}
}

// What bounds the packets that are kept, and how often peers are asked, changes
// while sessions are up.
func TestBoundsChange(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	w.establish(sample.Session(2))
	if err := w.SetConfig(Config{BufferPackets: 2, EchoInterval: 90 * time.Second}); err != nil {
		t.Fatal(err)
	}
	w.idle(1, 0, nil)
	for n := range byte(5) {
		w.Buffer(toUE(1, n))
	}
	if n := w.stats.BufferedNow.Load(); n != 2 {
		t.Errorf("%d packets are kept, want 2", n)
	}
	if err := w.SetConfig(Config{BufferBytes: 42 * 3}); err != nil {
		t.Fatal(err)
	}
	w.idle(2, 0, nil)
	for n := range byte(5) {
		w.Buffer(toUE(2, n))
	}
	if n := w.stats.BufferedNow.Load(); n != 3 {
		t.Errorf("%d packets are kept, want 3 by their octets", n)
	}
	if d := w.install.config.Load().EchoInterval; d != time.Minute {
		t.Errorf("peers are asked every %v, want the default again", d)
	}
}

// reported is how many Downlink Data Reports the SMF got since the last time.
func (w *world) reported() (n int) {
	for _, r := range w.smf.take() {
		n += min(1, len(r.DownlinkData))
	}
	return n
}

// What comes after the SMF had everything dropped is reported anew.
func TestReportsAfterDrop(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	from := w.idle(1, session.Notify, nil)
	w.Buffer(toUE(1, 1))
	w.Buffer(toUE(1, 2))
	if n := w.reported(); n != 1 {
		t.Fatalf("%d reports of the first two packets, want one", n)
	}
	w.modify(from, sample.Copy(t, from), session.Modification{DropBuffered: true})
	w.Buffer(toUE(1, 3))
	w.Buffer(toUE(1, 4))
	if n := w.reported(); n != 1 {
		t.Errorf("%d reports of what came after DROBU, want one", n)
	}
}

// An SMF that refuses a report, as SD-Core's does while the AMF cannot page, gets another one of
// what comes a pause later, and none before.
func TestReportsAfterRefusal(t *testing.T) {
	w := newWorld(t)
	w.smf.silent = true
	w.establish(sample.Session(1))
	from := w.idle(1, session.Notify, nil)
	w.Buffer(toUE(1, 1))
	if n := w.reported(); n != 1 {
		t.Fatalf("%d reports, want one", n)
	}
	w.modify(from, sample.Copy(t, from), session.Modification{DropBuffered: true}) // SD-Core's answer has DROBU
	w.smf.waiting[0](pfcp.ErrRefused)
	w.smf.silent = false
	for n := range byte(10) {
		w.Buffer(toUE(1, n))
	}
	if n := w.reported(); n != 0 {
		t.Errorf("%d reports at once, want none", n)
	}
	w.pass(refusedPause + time.Second)
	if n := w.reported(); n != 1 {
		t.Errorf("%d reports after the pause, want one", n)
	}
	w.Buffer(toUE(1, 11))
	w.pass(time.Minute)
	if n := w.reported(); n != 0 {
		t.Errorf("%d more reports, want none: the SMF has taken one", n)
	}
}
