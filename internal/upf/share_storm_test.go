package upf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/session"
)

var sharedKills = flag.Int("shared-kills", 3, "how often TestSharedSessionsInAStorm kills the daemon, for each SMF")

const (
	stormSessions = 40
	// stormRequests is how many a session gets in a round, without waiting for answers: with
	// those of settle fewer than the data path remembers (N4_ANSWERS).
	stormRequests = 6
	stormPatience = 10 * time.Second // at least N1 times T1 of SMFs
)

// downlink is what the requests of a storm change of a session.
type downlink struct {
	action     session.Action
	gnb        netip.Addr
	teid       uint32
	precedence uint32 // of free5GC's PDR 2
	rate       uint64 // of QER 1
}

// storming is a request of a storm. It does all of what it does, or nothing.
type storming struct {
	octets []byte
	does   func(*downlink)
	answer []byte // nil: none
	early  bool   // it was sent before the daemon was dead
}

// course is what may have become of the requests of a session.
type course struct {
	is   downlink
	done uint8 // a bit for each request
	last int   // the last one done that was sent before the daemon was dead; -1: none
}

// stormed is a session in a storm.
type stormed struct {
	seid       uint64
	one        *phone // as its SMF has it
	precedence uint32 // that the SMF has sent last
	asked      []*storming
	courses    []course
}

// possible are the courses that the answers allow, from a state: a request with an answer is
// done, one without may be, in the order in which they were sent.
func (s *stormed) possible(from downlink) {
	s.courses = []course{{is: from, last: -1}}
	for i, a := range s.asked {
		var next []course
		for _, c := range s.courses {
			if a.answer == nil {
				next = append(next, c)
			}
			a.does(&c.is)
			if c.done |= 1 << i; a.early {
				c.last = i
			}
			next = append(next, c)
		}
		s.courses = next
	}
}

// repeated are the courses after a request was answered that was sent once more. What was done
// is not done again. Only what the daemon did last, before it died without an answer, may be.
func (s *stormed) repeated(i int, hadAnswer bool) {
	var next []course
	for _, c := range s.courses {
		done := c.done&(1<<i) != 0
		if done {
			next = append(next, c)
		}
		if !done || !hadAnswer && i == c.last {
			s.asked[i].does(&c.is)
			c.done |= 1 << i
			next = append(next, c)
		}
	}
	s.courses = next
}

// storm is an SMF that does not wait for answers while its UPF is killed.
type storm struct {
	*phones
	d        *testDaemon
	sessions []*stormed
	was      map[uint64]downlink // by CP SEID

	mu      sync.Mutex
	waiting map[uint32]*storming // by sequence number
	again   map[uint32][]byte    // answers to requests that have one
}

// TestSharedSessionsInAStorm: the daemon is killed at any moment while sessions have several
// requests under way each. Afterwards each session is what its answers allow: what was answered
// is done once, the rest wholly or not at all, in order. A request that is repeated gets the
// same answer, and is not done again.
func TestSharedSessionsInAStorm(t *testing.T) {
	for _, of := range []core{open5gs, free5gc} {
		t.Run(of.name, func(t *testing.T) {
			t.Logf("seed %d", *sharedSeed)
			d := newTestDaemon(t, n4Places)
			s := newStorm(newPhones(t, of, stormSessions, d))
			answered := 0
			for range *sharedKills {
				answered += s.round()
			}
			here := d.everything().Here
			t.Logf("%d of %d requests were answered before they were repeated", answered, *sharedKills*stormSessions*stormRequests)
			d.kill()
			d.config.Places = 0 // what the journal says
			d.start()
			s.look("by the journal")
			if here == 0 {
				t.Error("the data path has answered nothing")
			}
		})
	}
}

func newStorm(p *phones) *storm {
	s := &storm{phones: p, d: p.upfs[0], was: map[uint64]downlink{}}
	for _, one := range p.list {
		one.gnb, one.teid = netip.AddrFrom4([4]byte{10, 200, 1, 1}), 1
		s.sessions = append(s.sessions, &stormed{seid: p.seids[0][one.cpSEID], one: one, precedence: one.precedence})
		a := s.move(s.sessions[len(s.sessions)-1])
		p.each(a.octets, one)
	}
	for seid, of := range s.d.everything().Sessions {
		s.was[seid] = s.downlink(&of)
	}
	return s
}

// round is one death of the daemon. It returns how many requests got an answer before they
// were repeated.
func (s *storm) round() (answered int) {
	s.t.Helper()
	for _, one := range s.sessions {
		one.asked = nil
	}
	s.waiting, s.again = map[uint32]*storming{}, map[uint32][]byte{}
	stop := s.listen()
	s.killAmidst()
	s.settle()
	for _, one := range s.sessions {
		one.possible(s.was[one.one.cpSEID])
		for _, a := range one.asked {
			if a.answer != nil {
				answered++
			}
		}
	}
	stop()
	s.look("after the start")
	stop = s.listen()
	s.repeatAll()
	stop()
	s.look("after all was repeated")
	return answered
}

// killAmidst sends all requests of a round. The daemon dies, and starts again, meanwhile.
func (s *storm) killAmidst() {
	s.t.Helper()
	r := s.random
	at, after := r.IntN(stormSessions*stormRequests*2/3), time.Duration(r.IntN(500))*time.Microsecond
	alone := r.IntN(stormSessions * stormRequests / 3) // requests while the daemon is dead
	var dead atomic.Bool
	var death chan struct{}
	started := make(chan struct{})
	left := slices.Repeat(s.sessions, stormRequests)
	r.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for n, one := range left {
		if n == at {
			death = make(chan struct{})
			go func() {
				time.Sleep(after)
				s.d.kill()
				dead.Store(true)
				close(death)
			}()
		}
		if n == at+alone {
			<-death
			go func() { defer close(started); s.d.start() }()
		}
		if n > at+alone { // a start takes as long as some
			time.Sleep(time.Duration(r.IntN(5000)) * time.Microsecond)
		}
		a := s.another(one)
		a.early = !dead.Load()
		one.asked = append(one.asked, a)
		s.mu.Lock()
		s.sequence++
		s.waiting[s.sequence] = a
		s.mu.Unlock()
		s.send(a.octets, one.seid, s.sequence)
	}
	<-started
}

// send sends a request of a session. A write fails, and sends nothing, after the kernel has
// heard that nobody listened to an earlier one.
func (s *storm) send(m []byte, seid uint64, sequence uint32) {
	binary.BigEndian.PutUint64(m[4:], seid)
	binary.BigEndian.PutUint32(m[12:], sequence<<8)
	for range 3 {
		if _, err := s.d.smf.Write(m); err == nil {
			return
		}
	}
}

// listen takes note of answers until it is stopped.
func (s *storm) listen() (stop func()) {
	done := make(chan struct{})
	if err := s.d.smf.SetReadDeadline(time.Time{}); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for {
			n, err := s.d.smf.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if err != nil || n < 16 || b[1] != 53 { // refused while nobody listens
				continue
			}
			sequence := sequenceOf(b[:n])
			s.mu.Lock()
			switch a := s.waiting[sequence]; {
			case a == nil:
			case a.answer == nil:
				a.answer = slices.Clone(b[:n])
			default:
				s.again[sequence] = slices.Clone(b[:n])
			}
			s.mu.Unlock()
		}
	}()
	return func() {
		_ = s.d.smf.SetReadDeadline(time.Now())
		<-done
	}
}

// until sends a request until f says, under the lock, that it has its answer.
func (s *storm) until(what string, m []byte, seid uint64, sequence uint32, f func() bool) {
	s.t.Helper()
	for begun, next := time.Now(), time.Now(); ; time.Sleep(100 * time.Microsecond) {
		s.mu.Lock()
		done := f()
		s.mu.Unlock()
		if done {
			return
		}
		if time.Since(begun) > stormPatience {
			s.t.Fatalf("session %#x: %s is not answered: %x", seid, what, m)
		}
		if time.Now().After(next) {
			s.send(m, seid, sequence)
			next = time.Now().Add(time.Second)
		}
	}
}

// settle has all that was sent handled: what is asked of a session last is answered last.
func (s *storm) settle() {
	s.t.Helper()
	for _, one := range s.sessions {
		a := &storming{octets: modification("")}
		s.mu.Lock()
		s.sequence++
		s.waiting[s.sequence] = a
		s.mu.Unlock()
		s.until("the last request", a.octets, one.seid, s.sequence, func() bool { return a.answer != nil })
	}
	time.Sleep(10 * time.Millisecond) // answers that another CPU carries
}

// repeatAll sends all requests of the round once more, in their order.
func (s *storm) repeatAll() {
	s.t.Helper()
	for _, one := range s.sessions {
		for i, a := range one.asked {
			first, sequence := a.answer, sequenceOf(a.octets)
			var answer []byte
			s.until("a request, repeated,", a.octets, one.seid, sequence, func() bool {
				if answer = s.again[sequence]; first == nil {
					answer = a.answer
				}
				return answer != nil
			})
			if !bytes.HasSuffix(answer, []byte{0, 19, 0, 1, 1}) || first != nil && !bytes.Equal(answer, first) {
				s.t.Fatalf("session %#x: %x is answered with %x, first with %x", one.seid, a.octets, answer, first)
			}
			one.repeated(i, first != nil)
		}
	}
}

// look compares sessions, and what the data path has of them, with what may have become of them.
func (s *storm) look(when string) {
	s.t.Helper()
	all := s.d.everything()
	if len(all.Sessions) != len(s.sessions) {
		s.t.Fatalf("%s: %d sessions, want %d", when, len(all.Sessions), len(s.sessions))
	}
	for _, one := range s.sessions {
		got := all.Sessions[one.one.cpSEID]
		is, courses := s.downlink(&got), one.courses
		one.courses = slices.DeleteFunc(slices.Clone(courses), func(c course) bool { return c.is != is })
		if len(one.courses) == 0 {
			s.t.Errorf("%s: session %#x is %+v; it was %+v", when, one.seid, is, s.was[one.one.cpSEID])
			for i, a := range one.asked {
				var does downlink
				a.does(&does)
				s.t.Errorf("request %d, early: %v, answered: %v: %x, for %+v", i, a.early, a.answer != nil, a.octets[12:15], does)
			}
			s.t.Fatalf("it may be %+v", courses)
		}
		s.was[one.one.cpSEID] = is
		for _, p := range got.PDRs {
			if p.FAR == s.core.far {
				s.inTable(when, one, is, got.Rules[p.ID])
			}
		}
	}
}

// inTable compares a rule in the data path with what the session says.
func (s *storm) inTable(when string, one *stormed, is downlink, r shownRule) {
	s.t.Helper()
	want := shownRule{Action: uint8(abi.PdrActionPDR_BUFFER)}
	if is.action == session.Forward {
		want = shownRule{Action: uint8(abi.PdrActionPDR_FORWARD), GNB: is.gnb, TEID: is.teid}
	}
	if r.Action != want.Action || r.GNB != want.GNB || r.TEID != want.TEID {
		s.t.Fatalf("%s: session %#x is %+v; in the data path %+v", when, one.seid, is, r)
	}
}

// downlink is what a session is.
func (s *storm) downlink(of *shown) (is downlink) {
	for _, f := range of.FARs {
		if f.ID == s.core.far {
			is.action = f.Action
			if f.Forwarding != nil && f.Forwarding.Outer != nil {
				is.gnb, is.teid = f.Forwarding.Outer.Addr, f.Forwarding.Outer.TEID
			}
		}
	}
	for _, p := range of.PDRs {
		if s.core.name == free5gc.name && p.ID == 2 {
			is.precedence = p.Precedence
		}
	}
	for _, q := range of.QERs {
		if q.ID == 1 && q.MBR != nil {
			is.rate = q.MBR.Downlink
		}
	}
	return is
}

// ---- requests ----

// both does one thing and then another.
func both(list ...func(*downlink)) func(*downlink) {
	return func(d *downlink) {
		for _, f := range list {
			f(d)
		}
	}
}

// move leads a session to a gNB, with an F-TEID of its own.
func (s *storm) move(one *stormed) *storming {
	gnb, teid, precedence := s.next(one)
	does := func(d *downlink) { d.action, d.gnb, d.teid = session.Forward, gnb, teid }
	if s.core.name == open5gs.name {
		return &storming{octets: to(modification(handover), gnb, teid), does: does}
	}
	return &storming{octets: s.of5GC(one, pdr5GC+far5GC), does: both(does, func(d *downlink) { d.precedence = precedence })}
}

// next chooses where a session goes.
func (s *storm) next(one *stormed) (gnb netip.Addr, teid, precedence uint32) {
	one.one.gnb, one.one.teid = netip.AddrFrom4([4]byte{10, 200, 1, byte(s.random.IntN(8))}), s.sequence&0xfffff|1<<20
	return one.one.gnb, one.one.teid, one.precedence
}

// of5GC is a request of free5GC's SMF, with the precedence that it gave the PDR last.
func (s *storm) of5GC(one *stormed, ies string) []byte {
	as := *one.one
	as.precedence = one.precedence
	return modification5GC(&as, ies)
}

// rate is an Update QER, which is the daemon's, and what it does.
func (s *storm) rate() (ies string, does func(*downlink)) {
	rate := uint64(100_000 + s.sequence&0xffff)
	b, _ := hex.DecodeString("000e001b006d00040000000100190001" + "00" + "001a000a")
	for range 2 {
		b = append(b, binary.BigEndian.AppendUint64(nil, rate)[3:]...)
	}
	return hex.EncodeToString(b), func(d *downlink) { d.rate = rate }
}

// another is a random request for a session.
func (s *storm) another(one *stormed) *storming {
	if s.core.name == free5gc.name {
		return s.another5GC(one)
	}
	rates, faster := s.rate()
	switch n := s.random.IntN(20); {
	case n < 8:
		return s.move(one)
	case n < 11:
		return &storming{octets: modification(idle), does: func(d *downlink) { d.action = session.Buffer | session.Notify }}
	case n < 13:
		return &storming{octets: modification(active), does: func(d *downlink) { d.action = session.Forward }}
	case n < 16:
		return &storming{octets: modification(rates), does: faster}
	default: // the daemon's, with what the data path does by itself
		gnb, teid, _ := s.next(one)
		return &storming{octets: to(modification(toGNB+rates), gnb, teid), does: both(faster, func(d *downlink) {
			d.action, d.gnb, d.teid = session.Forward, gnb, teid
		})}
	}
}

// another5GC is another for free5GC's SMF.
func (s *storm) another5GC(one *stormed) *storming {
	rates, faster := s.rate()
	forward := func(more string) *storming {
		gnb, teid, precedence := s.next(one)
		return &storming{octets: s.of5GC(one, more+far5GC), does: func(d *downlink) {
			d.action, d.gnb, d.teid, d.precedence = session.Forward, gnb, teid, precedence
		}}
	}
	switch n := s.random.IntN(20); {
	case n < 8:
		return s.move(one)
	case n < 12:
		gnb, teid := one.one.gnb, one.one.teid
		return &storming{octets: s.of5GC(one, idle5GC), does: func(d *downlink) {
			d.action, d.gnb, d.teid = session.Buffer|session.Notify, gnb, teid
		}}
	case n < 15:
		return &storming{octets: s.of5GC(one, rates), does: faster}
	case n < 18: // another PDR
		one.precedence = 100 + s.sequence&0xffff
		return forward(pdr5GC)
	default: // the PDR goes, and comes back as another
		one.precedence = 100 + s.sequence&0xffff
		create := []byte(pdr5GC)
		copy(create, "0001")
		return forward("000f0006003800020002" + string(create))
	}
}
