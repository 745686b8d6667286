package upf

import (
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/session"
)

// Packet is a frame that the data path hands up for a session.
type Packet struct {
	Session uint64
	Rule    uint16 // by which it was found
	Ifindex int    // that it came in on
	L3      int    // offset of its packet (of the T-PDU, where it came in a G-PDU)
	Data    []byte // from the Ethernet header; nobody else keeps it
}

// buffer holds the packets of a session that are to be kept, in the order in
// which they came.
type buffer struct {
	frames []frame
	bytes  int
	most   int      // frames
	rules  []uint16 // whose FAR says BUFF, as was looked up
	delay  time.Duration
	report []uint16  // PDRs, with NOCP, that have packets since the report
	due    time.Time // when these are told; zero: they were told
	told   bool
	// draining: rules forward again, but for the data path, which goes on
	// handing up what comes until what was kept is sent. See drain.
	draining bool
}

type frame struct {
	rule    uint16
	ifindex int
	data    []byte
	link    bool // it came by a link, not in a packet
}

// Buffer keeps a packet, or sends it on where its session went over to
// forwarding meanwhile. It keeps p.Data.
func (u *UPF) Buffer(p Packet) {
	e := u.entry(p.Session)
	if e == nil {
		u.stats.BufferStale.Add(1)
		return
	}
	e.lock()
	u.keep(e, p)
	report := u.downlinkData(e, u.now())
	if !e.gone && e.buffer != nil && !e.buffer.due.IsZero() {
		u.schedule(e, e.session())
	}
	e.unlock()
	u.report(e, report)
}

// keep decides about a packet with e.mu held.
func (u *UPF) keep(e *entry, p Packet) {
	if e.gone || e.tpdu(p) == nil {
		u.stats.BufferStale.Add(1)
		return
	}
	b := e.buffer
	if b == nil || !slices.Contains(b.rules, p.Rule) {
		far := u.farOf(e, p.Rule)
		switch {
		case far == nil:
			u.stats.BufferStale.Add(1)
			return
		case far.Action&session.Buffer == 0 && far.Action&session.Forward != 0:
			u.inject(e, frame{p.Rule, p.Ifindex, p.Data, p.L3 < minFrame}) // it was on its way up when that changed
			return
		case far.Action&session.Buffer == 0:
			u.stats.BufferDropped.Add(1)
			return
		}
		if b == nil {
			b = &buffer{}
			b.most, _ = u.bufferPackets()
			e.buffer = b
		}
		u.begin(e, b, p.Rule, far)
	}
	size := len(p.Data)
	if len(b.frames) >= b.most || u.stats.BufferedBytes.Add(int64(size)) > int64(u.bufferBytes()) {
		if len(b.frames) < b.most {
			u.stats.BufferedBytes.Add(int64(-size))
		}
		u.stats.BufferOverflow.Add(1)
		return
	}
	b.frames = append(b.frames, frame{p.Rule, p.Ifindex, p.Data, p.L3 < minFrame})
	b.bytes += size
	u.stats.Buffered.Add(1)
	u.stats.BufferedNow.Add(1)
}

// farOf is the FAR of the PDR that a rule is of.
func (u *UPF) farOf(e *entry, rule uint16) *session.FAR {
	s := e.session()
	p := pdrOf(s, rule)
	if p == nil {
		return nil
	}
	return byID(s.FARs, p.FAR, farID)
}

// begin notes a rule whose packets are kept, and what its BAR says.
func (u *UPF) begin(e *entry, b *buffer, rule uint16, far *session.FAR) {
	s := e.session()
	b.rules = append(b.rules, rule)
	if far.BAR != nil {
		if bar := byID(s.BARs, *far.BAR, barID); bar != nil {
			b.delay = bar.NotificationDelay
			if bar.SuggestedCount > 0 {
				_, most := u.bufferPackets()
				b.most = min(int(bar.SuggestedCount), most)
			}
		}
	}
	if far.Action&session.Notify != 0 && !b.told {
		b.report = append(b.report, pdrOf(s, rule).ID)
		if b.due.IsZero() {
			b.due = u.now().Add(b.delay)
		}
	}
}

// downlinkData is the Downlink Data Report that is due: one for each time that
// the UE is idle.
func (u *UPF) downlinkData(e *entry, now time.Time) session.Report {
	r := session.Report{SEID: e.seid}
	if b := e.buffer; b != nil && !b.due.IsZero() && !now.Before(b.due) {
		r.DownlinkData, b.report, b.due, b.told = b.report, nil, time.Time{}, true
	}
	return r
}

// flush does with what was kept what the session says now: keeps it, lets it be
// drained, or drops it.
func (u *UPF) flush(e *entry, s *session.Session, drop bool) {
	b := e.buffer
	if b == nil {
		return
	}
	var stay []frame
	leaves := false
	for _, f := range b.frames {
		switch action := actionOf(s, f.rule); {
		case drop || action&session.Drop != 0 || action&(session.Buffer|session.Forward) == 0:
			u.stats.BufferDropped.Add(1)
			u.letGo(b, f)
			continue
		case action&session.Buffer == 0:
			leaves = true
		}
		stay = append(stay, f)
	}
	b.frames = stay
	switch {
	case leaves && !b.draining:
		b.draining = true
		go u.drain(e)
	case leaves || b.draining:
	default:
		e.forget(s)
	}
}

// forget begins the buffer anew, or ends it.
func (e *entry) forget(s *session.Session) {
	e.buffer.rules = nil
	if !buffers(s) {
		e.buffer = nil
	}
}

// letGo is of a packet that is no longer kept.
func (u *UPF) letGo(b *buffer, f frame) {
	b.bytes -= len(f.data)
	u.stats.BufferedNow.Add(-1)
	u.stats.BufferedBytes.Add(int64(-len(f.data)))
}

// actionOf is what a session does with a rule's packets.
func actionOf(s *session.Session, rule uint16) session.Action {
	if p := pdrOf(s, rule); p != nil {
		if far := byID(s.FARs, p.FAR, farID); far != nil {
			return far.Action
		}
	}
	return session.Drop
}

// holdBack lets rules with kept packets keep what comes, until these are sent:
// nothing is to overtake them.
func (e *entry) holdBack(rules *dataplane.Session) {
	b := e.buffer
	if b == nil || (len(b.frames) == 0 && !b.draining) {
		return
	}
	for i := range rules.Rules {
		if r := &rules.Rules[i]; r.Action == dataplane.ActionForward && slices.Contains(b.rules, r.ID) {
			r.Action = dataplane.ActionHold
		}
	}
}

// drain sends what was kept, in order, and with it what comes meanwhile. When
// nothing is left, nor on its way up, the data path forwards by itself again.
func (u *UPF) drain(e *entry) {
	for u.drainSome(e) {
		time.Sleep(drainPause)
	}
}

const (
	drainAtOnce = 64
	drainPause  = 20 * time.Microsecond // in which packets on their way up get here
)

// drainSome says whether there is more.
func (u *UPF) drainSome(e *entry) bool {
	u.changing.RLock()
	defer u.changing.RUnlock()
	idle := u.dp.PuntsIdle() // before the lock, which those on their way wait for
	e.lock()
	defer e.unlock()
	b := e.buffer
	if e.gone || b == nil || !b.draining {
		return false
	}
	s := e.session()
	if u.sendKept(e, b, s) > 0 || !idle {
		return true
	}
	b.draining = false
	if err := u.put(e, s, e.usage); err != nil {
		u.log.Error("a session goes on keeping packets", "seid", e.seid, "error", err)
		return false
	}
	u.flush(e, s, false)
	return false
}

// sendKept sends some of the packets whose rules forward; how many.
func (u *UPF) sendKept(e *entry, b *buffer, s *session.Session) int {
	sent := 0
	stay := b.frames[:0]
	for _, f := range b.frames {
		if sent == drainAtOnce || actionOf(s, f.rule)&(session.Forward|session.Buffer|session.Drop) != session.Forward {
			stay = append(stay, f)
			continue
		}
		sent++
		u.inject(e, f)
		u.letGo(b, f)
	}
	clear(b.frames[len(stay):])
	b.frames = stay
	return sent
}

// buffers says that a FAR keeps packets.
func buffers(s *session.Session) bool {
	return slices.ContainsFunc(s.FARs, func(f session.FAR) bool { return f.Action&(session.Buffer|session.Drop) == session.Buffer })
}

func (u *UPF) inject(e *entry, f frame) {
	inject := u.dp.InjectKept
	if f.link {
		inject = func(frame []byte, ifindex int) error { return u.dp.InjectFor(e.seid, frame, ifindex, true) }
	}
	if err := inject(f.data, f.ifindex); err != nil {
		u.stats.BufferDropped.Add(1)
		u.log.Debug("cannot send a kept packet", "error", err)
		return
	}
	u.stats.BufferSent.Add(1)
}
