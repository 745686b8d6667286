package buffer

import (
	"slices"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/rules"
	"github.com/culvert-net/culvert/internal/upf/stats"
)

// Frame is a packet that is kept.
type Frame struct {
	Rule    uint16 // that found it
	Ifindex int    // of the interface that it came in on
	Data    []byte
	Link    bool // it came from a link, not in a G-PDU
}

// Buffer holds the packets of one session.
type Buffer struct {
	frames []Frame
	bytes  int
	most   int      // frames
	rules  []uint16 // whose FAR says BUFF
	delay  time.Duration
	report []uint16  // PDRs with NOCP that have packets since the last report
	due    time.Time // when these are reported; zero: there is nothing to report
	// notified: the SMF knows that the UE has packets.
	notified bool
	refused  time.Time // the SMF wants no report until then, as it refused one
	// draining says that rules forward again, but the data path goes on handing
	// up what comes until what was kept is sent.
	draining bool
	leaving  []uint16  // of rules, those that forward since draining began
	backlog  int       // of what was kept when draining began, what is not sent yet
	emptied  time.Time // when the last of it was; zero: it is not
	crowded  bool      // there was no room in what all sessions share
	full     int       // packets that came, and were dropped because there was no room
}

// Rest returns what stays of a Buffer whose session keeps no packets: how many it
// dropped. Without any it returns nil.
func (b *Buffer) Rest() *Buffer {
	if b.full == 0 {
		return nil
	}
	return &Buffer{full: b.full}
}

// Keeps says whether a rule's packets are kept, as Follow noted.
func (b *Buffer) Keeps(rule uint16) bool { return slices.Contains(b.rules, rule) }

// Follow notes a rule of a session whose FAR says BUFF, and what the FAR's BAR says.
// The first rule makes the room that limits gives a session; its BAR may change that.
func (b *Buffer) Follow(s *session.Session, rule uint16, now time.Time, limits Limits) {
	far := rules.FAR(s, rule)
	if len(b.rules) == 0 {
		b.most = limits.Packets
	}
	b.rules = append(b.rules, rule)
	if far.BAR != nil {
		if bar := s.BAR(*far.BAR); bar != nil {
			b.delay = bar.NotificationDelay
			if bar.SuggestedCount > 0 {
				b.most = min(int(bar.SuggestedCount), limits.Most)
			}
		}
	}
	if far.Action&session.Notify != 0 && !b.notified {
		b.report = append(b.report, rules.PDR(s, rule).ID)
		if b.due.IsZero() {
			b.due = now.Add(b.delay)
			if b.refused.After(b.due) {
				b.due = b.refused
			}
		}
	}
}

// Due is when Report has something to report. The zero time means never.
func (b *Buffer) Due() time.Time { return b.due }

// Report returns the PDRs of the Downlink Data Report that is due: one for each
// time that the UE is idle, and one more after the SMF has refused it or had the packets
// dropped. b may be nil.
func (b *Buffer) Report(now time.Time) (pdrs []uint16) {
	if b == nil || b.due.IsZero() || now.Before(b.due) {
		return nil
	}
	pdrs, b.report, b.due, b.notified = b.report, nil, time.Time{}, true
	return pdrs
}

// Retry reports PDRs again at a time.
func (b *Buffer) Retry(pdrs []uint16, at time.Time) { b.report, b.due = pdrs, at }

// Refused notes that the SMF has refused a report: packets that come are reported anew, but not
// before a time.
func (b *Buffer) Refused(until time.Time) {
	b.refused = until
	b.renotify()
}

// renotify has the next packet of each rule reported.
func (b *Buffer) renotify() { b.notified, b.rules, b.report, b.due = false, nil, nil, time.Time{} }

// Size returns how many packets, and octets of them, are kept. b may be nil.
func (b *Buffer) Size() (packets, octets int) {
	if b == nil {
		return 0, 0
	}
	return len(b.frames), b.bytes
}

// Full returns how many packets of the session came, and were dropped because the buffer
// was full. b may be nil.
func (b *Buffer) Full() int {
	if b == nil {
		return 0
	}
	return b.full
}

// HoldBack has rules with kept packets hand up what comes, until these are sent:
// nothing may overtake them. While the buffer is full, the data path itself drops what
// comes for an idle UE: whoever sends it must not keep the daemon busy. b may be nil.
func (b *Buffer) HoldBack(s *datapath.Session) {
	if b == nil || len(b.frames) == 0 && !b.crowded {
		return
	}
	for i := range s.Rules {
		switch r := &s.Rules[i]; {
		case r.Action == datapath.ActionForward && b.has(r.ID):
			r.Action = datapath.ActionHold
		case r.Action == datapath.ActionBuffer && b.Keeps(r.ID) && b.IsFull():
			r.Action = datapath.ActionFull
		}
	}
}

// has says whether packets of a rule are kept.
func (b *Buffer) has(rule uint16) bool {
	return slices.ContainsFunc(b.frames, func(f Frame) bool { return f.Rule == rule })
}

// IsFull says that there is no room for more packets.
func (b *Buffer) IsFull() bool { return b.crowded || len(b.frames) >= b.most }

// Crowded says that there was no room in what all sessions share, until Reopen. b may be nil.
func (b *Buffer) Crowded() bool { return b != nil && b.crowded }

// Reopen notes that there is room again.
func (b *Buffer) Reopen() { b.crowded = false }

// Holds says whether packets are kept, or still being sent. b may be nil.
func (b *Buffer) Holds() bool { return b != nil && (len(b.frames) > 0 || b.draining) }

// Draining says whether Drain has to be called.
func (b *Buffer) Draining() bool { return b != nil && b.draining }

// Sent says that the data path still hands up what comes, although all that was kept is
// sent. b may be nil.
func (b *Buffer) Sent() bool { return b.Draining() && len(b.frames) == 0 }

// WaitedFor is for how long only what came since draining began has been left to send.
func (b *Buffer) WaitedFor(now time.Time) time.Duration {
	switch {
	case b.backlog > 0:
		return 0
	case b.emptied.IsZero():
		b.emptied = now
	}
	return now.Sub(b.emptied)
}

// Drained notes that nothing is left to send.
func (b *Buffer) Drained() { b.draining = false }

// Limits bound what is kept.
type Limits struct {
	Packets int // of a session whose BAR does not say how many
	Most    int // packets of a session, whatever its BAR says
	Bytes   int // of all sessions together
}

// Pool bounds and counts what all buffers hold.
type Pool struct {
	Stats  *stats.Counters
	Limits func() Limits
}

// Add keeps a packet, or drops it where there is no room. It says whether the packet has
// filled the buffer, so that HoldBack changes what the data path does.
func (p Pool) Add(b *Buffer, f Frame) (filled bool) {
	size := len(f.Data)
	if b.IsFull() {
		p.drop(b, size)
		return false
	}
	if p.Stats.BufferedBytes.Add(int64(size)) > int64(p.Limits().Bytes) {
		p.Stats.BufferedBytes.Add(int64(-size))
		p.drop(b, size)
		b.crowded = true
		return true
	}
	b.frames = append(b.frames, f)
	b.bytes += size
	p.Stats.Buffered.Add(1)
	p.Stats.BufferedNow.Add(1)
	return b.IsFull()
}

// HasRoom says that an eighth of what all sessions share is free.
func (p Pool) HasRoom() bool {
	most := int64(p.Limits().Bytes)
	return p.Stats.BufferedBytes.Load() <= most-most/8
}

// drop counts a packet for which there is no room.
func (p Pool) drop(b *Buffer, size int) {
	b.full++
	p.Stats.BufferOverflow.Add(1)
	p.Stats.BufferOverflowBytes.Add(uint64(size))
}

func (p Pool) remove(b *Buffer, f Frame) {
	b.bytes -= len(f.Data)
	p.Stats.BufferedNow.Add(-1)
	p.Stats.BufferedBytes.Add(int64(-len(f.Data)))
}

// Next is what is to be done with a Buffer after Update.
type Next int

// What follows Update.
const (
	Keep  Next = iota // nothing
	Start             // call Drain until nothing is left
	Done              // the session keeps no packets: the Buffer is no longer needed
)

// Update follows a change of the session, now: it drops the packets that the session
// drops now, or all of them, and keeps the others. open says whether the data path
// forwards by itself what the session forwards.
func (p Pool) Update(b *Buffer, s *session.Session, dropAll bool, now time.Time, open func() bool) Next {
	var stay []Frame
	leaves := false
	for _, f := range b.frames {
		switch action := actionOf(s, f.Rule); {
		case dropAll || action&session.Drop != 0 || action&(session.Buffer|session.Forward) == 0:
			p.Stats.BufferDropped.Add(1)
			p.remove(b, f)
			continue
		case action&session.Buffer == 0:
			leaves = true
		}
		stay = append(stay, f)
	}
	b.frames = stay
	if !b.draining && (leaves || !open()) {
		b.draining, b.backlog, b.emptied = true, len(b.frames), time.Time{}
		b.leaving = b.forwarding(s)
		return Start
	}
	if b.draining {
		p.again(b, s, now)
		return Keep
	}
	b.rules = nil
	if !Buffers(s) {
		return Done
	}
	if dropAll {
		b.renotify()
	}
	return Keep
}

// again looks for rules that stopped to forward before all was sent that they kept: the UE is
// idle once more, and the SMF is told so at once where packets for it are left.
func (p Pool) again(b *Buffer, s *session.Session, now time.Time) {
	before := b.leaving
	b.leaving = b.forwarding(s)
	for _, rule := range before {
		if slices.Contains(b.leaving, rule) {
			continue
		}
		b.notified = false
		b.rules = slices.DeleteFunc(b.rules, func(r uint16) bool { return r == rule })
		if b.has(rule) {
			b.Follow(s, rule, now, p.Limits())
		}
	}
}

// forwarding are the rules of a Buffer that forward.
func (b *Buffer) forwarding(s *session.Session) (out []uint16) {
	for _, rule := range b.rules {
		if Forwards(s, rule) {
			out = append(out, rule)
		}
	}
	return out
}

// Buffers says whether a FAR of a session keeps packets.
func Buffers(s *session.Session) bool {
	return slices.ContainsFunc(s.FARs, func(f session.FAR) bool { return f.Action&(session.Buffer|session.Drop) == session.Buffer })
}

// Drain sends up to most packets whose rules forward, and returns how many.
func (p Pool) Drain(b *Buffer, s *session.Session, most int, send func(Frame)) (sent int) {
	stay := b.frames[:0]
	for _, f := range b.frames {
		if sent == most || !Forwards(s, f.Rule) {
			stay = append(stay, f)
			continue
		}
		sent++
		send(f)
		p.remove(b, f)
	}
	clear(b.frames[len(stay):])
	b.frames = stay
	b.backlog = min(b.backlog-sent, len(stay))
	return sent
}

// Forwards says whether the FAR of a rule forwards.
func Forwards(s *session.Session, rule uint16) bool {
	return actionOf(s, rule)&(session.Forward|session.Buffer|session.Drop) == session.Forward
}

// actionOf is what a session does with a rule's packets.
func actionOf(s *session.Session, rule uint16) session.Action {
	if far := rules.FAR(s, rule); far != nil {
		return far.Action
	}
	return session.Drop
}
