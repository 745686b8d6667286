package upf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/session"
)

var (
	sharedRequests = flag.Int("shared-requests", 3000, "requests of TestTheDataPathAnswersAsTheDaemon and TestSharedSessionsSurvive")
	sharedSeed     = flag.Uint64("shared-seed", 1, "where these begin")
)

// What Open5GS's SMF sends of a session of its own, of FAR 1, which is the downlink's.
const (
	toGNB    = "000a0037006c000400000001002c00020200000b0025002a0001000016000908696e7465726e65740054000a0100000000010ac8000200a000010b"
	handover = "000a003c006c000400000001002c00020200000b002a002a0001000016000908696e7465726e65740054000a0100000000010ac80002003100010200a000010b"
	idle     = "000a0013006c000400000001002c00020c000058000101"
	active   = "000a000e006c000400000001002c00020200" // of no known SMF: without a tunnel
	quota    = "000e000d006d0004000000010019000100"   // Update QER, which is the daemon's
)

// phone is a session as its SMF has it.
type phone struct {
	cpSEID     uint64
	ue         netip.Addr
	action     session.Action
	gnb        netip.Addr
	teid       uint32
	precedence uint32 // of the downlink's PDR; 0: the SMF does not repeat it
}

// phones are an SMF with sessions, at one UPF or at two that get the same requests.
type phones struct {
	t        *testing.T
	core     core
	upfs     []*testDaemon
	random   *rand.Rand
	sequence uint32
	list     []*phone
	seids    []map[uint64]uint64 // by UPF, of the CP SEIDs
	// what the core's SMF sends to set up its association, and an IPv4 session
	setup, session []byte
	last           map[uint64][]byte // the last request of each session, for the first UPF
}

// core is what SMFs differ in.
type core struct {
	name string
	far  uint32 // the downlink's
	// established is a session that is new.
	established phone
	// another returns a random request for a phone, after which it is as it says.
	another func(*phones, *phone) []byte
}

var open5gs = core{"open5gs", 1, phone{action: session.Buffer | session.Notify}, (*phones).another}

func newPhones(t *testing.T, of core, sessions int, upfs ...*testDaemon) *phones {
	t.Helper()
	p := &phones{t: t, core: of, upfs: upfs, random: rand.New(rand.NewPCG(*sharedSeed, 0)), sequence: 0xfffff0, last: map[uint64][]byte{}}
	for _, m := range requests(t, of.name) {
		m = bytes.ReplaceAll(m, blank, netip.MustParseAddr(smfN4).AsSlice())
		if m[1] == 5 && p.setup == nil {
			p.setup = m
		}
		if m[1] == 50 && p.session == nil && bytes.Contains(m, []byte{0, 113, 0, 1, 1}) {
			p.session = m
		}
	}
	for range upfs {
		p.seids = append(p.seids, map[uint64]uint64{})
	}
	p.each(p.setup, nil)
	for i := range sessions {
		one := new(of.established)
		one.cpSEID, one.ue = uint64(0x1000+i), netip.AddrFrom4([4]byte{10, 60, byte(i >> 8), byte(i)})
		p.list = append(p.list, one)
		p.establish(one)
	}
	return p
}

func (p *phones) establish(one *phone) {
	p.t.Helper()
	m := bytes.Clone(p.session)
	at := bytes.Index(m, []byte{0, 57, 0, 13, 2}) // F-SEID
	binary.BigEndian.PutUint64(m[at+5:], one.cpSEID)
	if at = bytes.Index(m, []byte{0, 21, 0, 9, 1}); at >= 0 { // an F-TEID that the SMF chooses
		binary.BigEndian.PutUint32(m[at+5:], uint32(one.cpSEID-0x1000+0x100))
		copy(m[at+9:], gtpuN3.AsSlice())
	}
	at = bytes.Index(m, []byte{0, 93, 0, 5}) // UE IP Address
	m = bytes.ReplaceAll(m, bytes.Clone(m[at+5:at+9]), one.ue.AsSlice())
	for u, answer := range p.each(m, nil) {
		at := bytes.Index(answer, []byte{0, 57, 0, 13, 2})
		if at < 0 {
			p.t.Fatalf("session %#x is not established: %x", one.cpSEID, answer)
		}
		p.seids[u][one.cpSEID] = binary.BigEndian.Uint64(answer[at+5:])
	}
}

// each sends a request to each UPF, with its SEID of a session, and returns the answers.
func (p *phones) each(request []byte, of *phone) (answers [][]byte) {
	p.t.Helper()
	p.sequence = (p.sequence + 1) & 0xffffff
	at := 4
	if forSession(request) {
		at = 12
	}
	binary.BigEndian.PutUint32(request[at:], p.sequence<<8)
	for u, d := range p.upfs {
		if of != nil {
			binary.BigEndian.PutUint64(request[4:], p.seids[u][of.cpSEID])
			if u == 0 {
				p.last[of.cpSEID] = bytes.Clone(request)
			}
		}
		answer := d.ask(request, 100)
		if answer == nil {
			p.t.Fatalf("UPF %d does not answer %x", u, request)
		}
		answers = append(answers, answer)
	}
	return answers
}

// modification is a Session Modification Request.
func modification(ies string) []byte {
	body, err := hex.DecodeString(ies)
	if err != nil {
		panic(err)
	}
	b := append([]byte{0x21, 52}, binary.BigEndian.AppendUint16(nil, uint16(12+len(body)))...)
	return append(append(b, make([]byte, 12)...), body...)
}

// to makes a request lead to a gNB.
func to(m []byte, gnb netip.Addr, teid uint32) []byte {
	at := bytes.Index(m, []byte{0, 84, 0, 10, 1, 0})
	binary.BigEndian.PutUint32(m[at+6:], teid)
	copy(m[at+10:], gnb.AsSlice())
	return m
}

// another returns a request for a phone, after which it is as it says.
func (p *phones) another(one *phone) []byte {
	r := p.random
	gnb, teid := netip.AddrFrom4([4]byte{10, 200, 1, byte(r.IntN(12))}), r.Uint32N(1000)+1
	forward := func(ies string) []byte {
		one.action, one.gnb, one.teid = session.Forward, gnb, teid
		return to(modification(ies), gnb, teid)
	}
	switch n := r.IntN(20); {
	case n < 7 || !one.gnb.IsValid():
		return forward(toGNB)
	case n < 11:
		return forward(handover)
	case n < 15:
		one.action = session.Buffer | session.Notify
		return modification(idle)
	case n < 16:
		one.action = session.Forward
		return modification(active)
	case n < 18:
		return modification(quota)
	default: // the daemon's, because of the QER, with what the data path does by itself
		return forward(toGNB + quota)
	}
}

// check compares what UPFs have with what their SMF has said.
func (p *phones) check() {
	p.t.Helper()
	var all []everything
	for _, d := range p.upfs {
		all = append(all, d.everything())
	}
	for u := range all {
		if len(all[u].Sessions) != len(p.list) {
			p.t.Fatalf("UPF %d has %d sessions, want %d", u, len(all[u].Sessions), len(p.list))
		}
		for _, one := range p.list {
			got := all[u].Sessions[one.cpSEID]
			f := got.FARs[slices.IndexFunc(got.FARs, func(f session.FAR) bool { return f.ID == p.core.far })]
			if f.Action != one.action || one.gnb.IsValid() && (f.Forwarding == nil || f.Forwarding.Outer == nil || f.Forwarding.Outer.Addr != one.gnb || f.Forwarding.Outer.TEID != one.teid) {
				p.t.Fatalf("UPF %d, session %#x: FAR %+v of %+v, want %+v", u, one.cpSEID, f, f.Forwarding, one)
			}
			if one.precedence != 0 && !slices.ContainsFunc(got.PDRs, func(p session.PDR) bool { return p.Precedence == one.precedence }) {
				p.t.Fatalf("UPF %d, session %#x: PDRs %+v, want one with precedence %d", u, one.cpSEID, got.PDRs, one.precedence)
			}
			first := all[0].Sessions[one.cpSEID]
			if !reflect.DeepEqual(got.Rules, first.Rules) || len(all) > 1 && p.core.name == "free5gc" && !reflect.DeepEqual(got.PDRs, first.PDRs) {
				p.t.Fatalf("session %#x: rules %v, PDRs %+v of UPF %d, %v, %+v of UPF 0", one.cpSEID, got.Rules, got.PDRs, u, first.Rules, first.PDRs)
			}
		}
	}
	first := p.upfs[0].gnbs.endMarkers()
	for u, d := range p.upfs {
		if got := d.gnbs.endMarkers(); !maps.Equal(got, first) {
			p.t.Fatalf("End Markers: UPF %d sent %v, UPF 0 %v", u, got, first)
		}
	}
	p.t.Logf("the data path answered %d, and %d again; there are End Markers for %d tunnels", all[0].Here, all[0].Repeated, len(first))
}

const n4Places = 4096

// TestTheDataPathAnswersAsTheDaemon: with upf.n4_fast on and off the same requests get the
// same answers, octet by octet, and lead to the same sessions and tables.
func TestTheDataPathAnswersAsTheDaemon(t *testing.T) {
	for _, of := range []core{open5gs, free5gc} {
		t.Run(of.name, func(t *testing.T) { answersAsTheDaemon(t, of) })
	}
}

func answersAsTheDaemon(t *testing.T, of core) {
	p := newPhones(t, of, 100, newTestDaemon(t, n4Places), newTestDaemon(t, 0))
	for i := range *sharedRequests {
		one := p.list[p.random.IntN(len(p.list))]
		answers := p.each(p.core.another(p, one), one)
		if !bytes.Equal(answers[0], answers[1]) {
			t.Fatalf("request %d: answer %x, the daemon's %x", i, answers[0], answers[1])
		}
		if i%1000 == 999 {
			p.check()
		}
	}
	all := p.upfs[0].everything()
	if len(p.upfs[0].gnbs.endMarkers()) == 0 {
		t.Error("no End Marker was sent")
	}
	if all.Here < uint64(*sharedRequests)/3 {
		t.Errorf("the data path answered %d of %d requests", all.Here, *sharedRequests)
	}
	if other := p.upfs[1].everything(); other.Here != 0 {
		t.Errorf("switched off it answered %d", other.Here)
	}
}

// await has the only UPF answer all that was asked of a session so far: what is asked last is
// answered last.
func (p *phones) await(one *phone) {
	p.t.Helper()
	p.sequence++
	nothing := make([]byte, 16)
	copy(nothing, []byte{0x21, 52, 0, 12})
	binary.BigEndian.PutUint64(nothing[4:], p.seids[0][one.cpSEID])
	binary.BigEndian.PutUint32(nothing[12:], p.sequence<<8)
	if p.upfs[0].askPatiently(nothing, 30, time.Second) == nil { // again: unread answers may have filled the buffer
		p.t.Fatalf("session %#x: no answer", one.cpSEID)
	}
}

// TestSharedSessionsKeepTheOrder: what the SMF says last is true, also where it does not
// wait for the daemon's answers.
func TestSharedSessionsKeepTheOrder(t *testing.T) {
	p := newPhones(t, open5gs, 20, newTestDaemon(t, n4Places))
	d := p.upfs[0]
	for i := range *sharedRequests / 4 {
		one := p.list[p.random.IntN(len(p.list))]
		if i%8 == 7 { // a slow daemon catches up: else it has all sessions all the time
			p.await(one)
		}
		time.Sleep(time.Duration(p.random.IntN(1000)) * time.Microsecond)
		for range p.random.IntN(8) {
			m := p.core.another(p, one)
			p.sequence++
			binary.BigEndian.PutUint64(m[4:], p.seids[0][one.cpSEID])
			binary.BigEndian.PutUint32(m[12:], p.sequence<<8)
			if _, err := d.smf.Write(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, one := range p.list {
		p.await(one)
	}
	p.check()
	if all := d.everything(); all.Here < uint64(*sharedRequests)/20 {
		t.Errorf("the data path answered %d", all.Here)
	}
}

// TestSharedSessionsSurvive: the daemon is killed again and again. The data path goes on
// answering; what either has answered is true afterwards; a repeated request is answered.
func TestSharedSessionsSurvive(t *testing.T) {
	for _, of := range []core{open5gs, free5gc} {
		t.Run(of.name, func(t *testing.T) { survives(t, of) })
	}
}

func survives(t *testing.T, of core) {
	d := newTestDaemon(t, n4Places)
	p := newPhones(t, of, 50, d)
	alone := 0
	for round := range 6 {
		for range *sharedRequests / 12 {
			one := p.list[p.random.IntN(len(p.list))]
			p.each(p.core.another(p, one), one)
		}
		d.kill()
		unanswered := 0                  // in a row
		for range *sharedRequests / 60 { // nobody but the data path
			if unanswered > 2*len(p.list) {
				break // each of the phones waits for the daemon
			}
			one := p.list[p.random.IntN(len(p.list))]
			was := *one
			m := p.core.another(p, one)
			p.sequence++
			binary.BigEndian.PutUint64(m[4:], p.seids[0][one.cpSEID])
			binary.BigEndian.PutUint32(m[12:], p.sequence<<8)
			answer := d.ask(m, 1)
			if answer == nil {
				*one = was
				unanswered++
				continue
			}
			alone++
			unanswered = 0
			if again := d.ask(m, 1); !bytes.Equal(again, answer) {
				t.Errorf("repeated: %x, first %x", again, answer)
			}
			p.last[one.cpSEID] = m
		}
		d.start()
		for seid, m := range p.last { // whoever answers
			if round%2 == 0 && d.ask(bytes.Clone(m), 20) == nil {
				t.Errorf("session %#x: the last request, repeated, is not answered", seid)
			}
		}
		p.check()
	}
	// Where many come, sooner or later each of the phones waits for the daemon.
	if alone < min(*sharedRequests/60, 500) {
		t.Errorf("the data path alone answered %d", alone)
	}
	for _, places := range []uint32{0, n4Places} { // switched off, and on again
		here := d.everything().Here
		d.kill()
		d.config.Places = places
		d.start()
		for range *sharedRequests / 20 {
			one := p.list[p.random.IntN(len(p.list))]
			p.each(p.core.another(p, one), one)
		}
		p.check()
		if more := d.everything().Here - here; more > 0 != (places > 0) {
			t.Errorf("with %d places the data path answered %d", places, more)
		}
	}
}

// roomForMarkers is how many End Markers wait for the daemon (n4_events in bpf/maps.h). A
// handover that asks for one more waits, too.
const roomForMarkers = 1 << 15

// TestSharedSessionsWhileTheDaemonStarts: handovers are answered while the daemon is dead
// and while it reads its sessions, and none is lost.
func TestSharedSessionsWhileTheDaemonStarts(t *testing.T) {
	d := newTestDaemon(t, n4Places)
	p := newPhones(t, open5gs, 500, d)
	lead := func(one *phone) []byte {
		one.action, one.gnb, one.teid = session.Forward, netip.AddrFrom4([4]byte{10, 200, 1, byte(p.random.IntN(4))}), p.random.Uint32N(1000)+1
		return to(modification(handover), one.gnb, one.teid)
	}
	for _, one := range p.list {
		p.each(lead(one), one)
	}
	for range 3 {
		d.kill()
		started := make(chan struct{})
		go func() { defer close(started); d.start() }()
		asked := 0
		for starting := true; starting; asked++ {
			one := p.list[p.random.IntN(len(p.list))]
			m := lead(one)
			p.sequence++
			binary.BigEndian.PutUint64(m[4:], p.seids[0][one.cpSEID])
			binary.BigEndian.PutUint32(m[12:], p.sequence<<8)
			if d.askPatiently(m, 1, time.Second) == nil {
				<-started
				t.Fatalf("handover %d is not answered", asked)
			}
			if asked > roomForMarkers/2 { // a start that is slow, as under the race detector
				time.Sleep(10 * time.Millisecond)
			}
			select {
			case <-started:
				starting = false
			default:
			}
		}
		p.check()
		t.Logf("%d handovers meanwhile", asked)
	}
}

// TestSharedSessionsKnowAnswersOfTheDead: a request that a daemon accepted before it died is
// answered when the SMF repeats it, not done over what came later.
func TestSharedSessionsKnowAnswersOfTheDead(t *testing.T) {
	p := newPhones(t, open5gs, 1, newTestDaemon(t, n4Places))
	d, one := p.upfs[0], p.list[0]
	first := to(modification(toGNB+quota), netip.MustParseAddr("10.200.1.1"), 1)
	answer := p.each(first, one)[0]
	one.action, one.gnb, one.teid = session.Forward, netip.MustParseAddr("10.200.1.2"), 2
	p.each(to(modification(handover), one.gnb, one.teid), one)
	d.kill()
	d.start()
	if again := d.askPatiently(first, 30, time.Second); !bytes.Equal(again, answer) {
		t.Errorf("repeated: %x, first %x", again, answer)
	}
	p.check()
}
