package upf

import (
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/buffer"
	"github.com/culvert-net/culvert/internal/upf/rules"
	"github.com/culvert-net/culvert/internal/upf/store"
)

// Packet is a frame that the data path hands up for a session.
type Packet struct {
	Session uint64
	Rule    uint16 // that found it
	Ifindex int    // of the interface that it came in on
	L3      int    // offset of its packet or, where it came in a G-PDU, of its T-PDU
	Entry   uint32 // of the rule in the data path, for Taken; only of packets to be kept
	Data    []byte // from the Ethernet header on; the UPF keeps it
}

// minFrame is the length of an Ethernet header.
const minFrame = 14

func (p Packet) frame() buffer.Frame {
	return buffer.Frame{Rule: p.Rule, Ifindex: p.Ifindex, Data: p.Data, Link: p.L3 < minFrame}
}

// tpdu returns the T-PDU in a packet, without what is behind it, or nil if the
// T-PDU is not complete.
func (p Packet) tpdu(ethernet bool) []byte {
	const addresses = 12
	switch {
	case !ethernet:
		return packetAt(p.Data, p.L3)
	case p.L3 < 0 || len(p.Data) < p.L3+minFrame:
		return nil
	case p.L3 < minFrame: // from a link: what is before its tag stays
		return append(append([]byte(nil), p.Data[:addresses]...), p.Data[p.L3+addresses:]...)
	}
	return p.Data[p.L3:]
}

// packetAt returns the IP packet at an offset of a frame, without what is behind
// it, or nil if it is not complete.
func packetAt(b []byte, at int) []byte {
	if at < 0 || len(b) < at+20 {
		return nil
	}
	b = b[at:]
	length := int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 == 6 {
		length = 40 + int(binary.BigEndian.Uint16(b[4:]))
	}
	if length > len(b) || length < 20 {
		return nil
	}
	return b[:length]
}

// keeper keeps the packets of idle UEs, and sends them when their sessions forward
// again.
type keeper struct {
	install *installer
	reports *reporter
	pool    buffer.Pool
	reads   atomic.Bool // somebody reads what the data path hands up

	mu      sync.Mutex
	crowded map[*store.Entry]bool // those closed because the room of all was full
	log     *slog.Logger
	now     func() time.Time
}

// Buffer keeps a packet, or sends it on if its session forwards by now.
func (u *UPF) Buffer(p Packet) {
	u.kept.reads.Store(true)
	e := u.store.Entry(p.Session)
	if e == nil || !u.install.lock(e) {
		u.stats.BufferStale.Add(1)
		u.o.DataPath.Taken(p.Entry)
		return
	}
	u.kept.keep(e, p)
	u.o.DataPath.Taken(p.Entry)
	if e.Buffer.Sent() {
		u.kept.open(e, applied(e), false)
	}
	report := session.Report{SEID: e.SEID, DownlinkData: e.Buffer.Report(u.o.Now())}
	if e.Buffer != nil && !e.Buffer.Due().IsZero() {
		u.reports.schedule(e, e.Session())
	}
	u.install.unlock(e)
	u.reports.send(e, report)
}

// applied is a session as it applies now; it is locked.
func applied(e *store.Entry) *session.Session { return e.Usage.Applied(e.Session()) }

// keep decides about a packet of a session, which is locked.
func (k *keeper) keep(e *store.Entry, p Packet) {
	if p.tpdu(e.Ethernet) == nil {
		k.pool.Stats.BufferStale.Add(1)
		return
	}
	if e.Buffer == nil || !e.Buffer.Keeps(p.Rule) || e.Buffer.Sent() {
		s := applied(e)
		far := rules.FAR(s, p.Rule)
		switch {
		case far == nil:
			k.pool.Stats.BufferStale.Add(1)
			return
		case far.Action&session.Buffer == 0 && far.Action&session.Forward != 0:
			k.inject(e, p.frame()) // the session changed while the packet was on its way up
			return
		case far.Action&session.Buffer == 0:
			k.pool.Stats.BufferDropped.Add(1)
			return
		}
		if e.Buffer == nil {
			e.Buffer = &buffer.Buffer{}
		}
		if !e.Buffer.Keeps(p.Rule) {
			e.Buffer.Follow(s, p.Rule, k.now(), k.pool.Limits())
		}
		if e.Buffer.IsFull() { // of packets of other rules
			go k.close(e)
		}
	}
	if k.pool.Add(e.Buffer, p.frame()) {
		go k.close(e)
	}
}

// close has the data path drop what no longer has room in a session's buffer.
func (k *keeper) close(e *store.Entry) {
	k.install.changing.RLock()
	defer k.install.changing.RUnlock()
	if !k.install.lock(e) {
		return
	}
	defer k.install.unlock(e)
	if e.Buffer.Crowded() {
		k.mu.Lock()
		k.crowded[e] = true
		k.mu.Unlock()
	}
	if err := k.install.put(e, e.Session()); err != nil {
		k.log.Error("packets for a full buffer still come to the daemon", "event", logevent.SessionBufferFailed, "seid", e.SEID, "error", err)
	}
}

// reopenAtOnce is how many sessions get room again at each tick of the wheel.
const reopenAtOnce = 32

// reopen has the data path hand up packets again of some sessions for which the room of all
// was full, where there is some now.
func (k *keeper) reopen() {
	for range reopenAtOnce {
		e := k.takeCrowded()
		if e == nil {
			return
		}
		k.install.changing.RLock()
		if k.install.lock(e) {
			if e.Buffer.Crowded() {
				e.Buffer.Reopen()
				if err := k.install.put(e, e.Session()); err != nil {
					k.log.Error("a session keeps no packets although there is room", "event", logevent.SessionBufferFailed, "seid", e.SEID, "error", err)
				}
			}
			k.install.unlock(e)
		}
		k.install.changing.RUnlock()
	}
}

// takeCrowded is a session that may get room; nil: none.
func (k *keeper) takeCrowded() *store.Entry {
	if !k.pool.HasRoom() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for e := range k.crowded {
		delete(k.crowded, e)
		return e
	}
	return nil
}

// update follows a change of a session: what was kept is dropped, kept on, or sent. from is
// what it was; nil: nobody knows.
func (k *keeper) update(e *store.Entry, from, to *session.Session, dropAll bool) {
	to = e.Usage.Applied(to)
	if e.Buffer == nil && (from != nil && !buffer.Buffers(from) || k.open(e, to, false)) {
		return
	}
	if e.Buffer == nil {
		e.Buffer = &buffer.Buffer{}
	}
	switch k.pool.Update(e.Buffer, to, dropAll, k.now(), func() bool { return k.open(e, to, false) }) {
	case buffer.Start:
		go func() {
			for k.drainSome(e) {
				time.Sleep(drainPause)
			}
		}()
	case buffer.Done:
		e.Buffer = e.Buffer.Rest()
	case buffer.Keep:
		if !e.Buffer.Due().IsZero() {
			k.reports.schedule(e, to)
		}
	}
}

// What was kept leaves in small bursts, for which queues of devices have room.
const (
	drainAtOnce = 16
	drainPause  = time.Millisecond
)

// drainFor is how long a rule may go on handing up what comes once all is sent that was kept
// when it began to forward: who sends to it may be faster than the daemon. Then it drops what
// comes until what it handed up is sent, for as long at most.
const drainFor = time.Second

// drainSome sends some of what was kept, in order, and with it what comes
// meanwhile. When nothing is left, nor on its way up, the data path forwards by
// itself again. It says whether there is more to send.
func (k *keeper) drainSome(e *store.Entry) bool {
	k.install.changing.RLock()
	defer k.install.changing.RUnlock()
	if !k.install.lock(e) {
		return false
	}
	defer k.install.unlock(e)
	if !e.Buffer.Draining() {
		return false
	}
	s, late := applied(e), time.Duration(0)
	sent := k.pool.Drain(e.Buffer, s, drainAtOnce, func(f buffer.Frame) { k.inject(e, f) })
	if k.reads.Load() { // what an earlier daemon has not read is on its way, too
		late = e.Buffer.WaitedFor(k.now())
	}
	if sent > 0 || !k.open(e, s, late >= 2*drainFor) {
		if late >= drainFor {
			k.shut(e, s)
		}
		return true
	}
	if late >= 2*drainFor {
		k.log.Warn("packets for a UE that was idle may have been overtaken", "event", logevent.SessionReordered, "seid", e.SEID)
	}
	e.Buffer.Drained()
	if err := k.install.put(e, e.Session()); err != nil {
		k.log.Error("a session keeps packets although it forwards", "event", logevent.SessionBufferFailed, "seid", e.SEID, "error", err)
		return false
	}
	k.update(e, s, s, false)
	return false
}

// open has the data path forward by itself what a session forwards, where all that it handed
// up is sent, and says whether it does.
func (k *keeper) open(e *store.Entry, s *session.Session, force bool) bool {
	all := true
	for _, rule := range forwards(s) {
		all = k.install.dp.Open(e.SEID, rule, force) && all
	}
	return all
}

// shut has the data path drop what comes for the rules that are not open yet.
func (k *keeper) shut(e *store.Entry, s *session.Session) {
	for _, rule := range forwards(s) {
		k.install.dp.Shut(e.SEID, rule)
	}
}

// forwards are the rules of a session, as it applies, that forward.
func forwards(s *session.Session) (out []uint16) {
	for i := range s.PDRs {
		if rule := s.PDRs[i].ID; buffer.Forwards(s, rule) {
			out = append(out, rule)
		}
	}
	return out
}

func (k *keeper) inject(e *store.Entry, f buffer.Frame) {
	var err error
	if f.Link {
		err = k.install.dp.InjectFor(e.SEID, f.Data, f.Ifindex, true)
	} else {
		err = k.install.dp.InjectKept(f.Data, f.Ifindex)
	}
	if err != nil {
		k.pool.Stats.BufferDropped.Add(1)
		k.log.Debug("cannot send a kept packet", "error", err)
		return
	}
	k.pool.Stats.BufferSent.Add(1)
}

// Duplicate sends copies of a packet where the Duplicating Parameters of its FAR
// say.
func (u *UPF) Duplicate(p Packet) {
	e := u.store.Entry(p.Session)
	if e == nil {
		return
	}
	tpdu := p.tpdu(e.Ethernet)
	if tpdu == nil {
		return
	}
	if s, _ := e.Current(); s != nil {
		if far := rules.FAR(s, p.Rule); far != nil && far.Action&session.Duplicate != 0 {
			u.paths.Duplicate(far.Duplicates, tpdu)
		}
	}
}

// Send sends a packet of a session to the GTP-U peer that its FAR names, by the kernel.
func Send(u *UPF, p Packet) {
	e := u.store.Entry(p.Session)
	if e == nil {
		return
	}
	s, _ := e.Current()
	tpdu := p.tpdu(e.Ethernet)
	if s == nil || tpdu == nil {
		return
	}
	if far := rules.FAR(s, p.Rule); far != nil && far.Action&session.Forward != 0 && far.Forwarding != nil {
		u.paths.SendTPDU(far.Forwarding.Outer, tpdu)
	}
}

// Flood gives a frame that came in on a link to all sessions there, soon. It keeps
// data.
func (u *UPF) Flood(link ethernet.Link, ifindex int, data []byte) {
	u.links.Flood(link, ifindex, data)
}
