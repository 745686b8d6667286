package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// variants are sessions of one UE, among which a test changes.
func variants() map[string]Session {
	const teid = 7
	with := func(s Session, change func(*Session)) Session {
		change(&s)
		return s
	}
	ever := func(r *Rule, f func(*Rule)) { f(r) }
	out := map[string]Session{
		"plain": plain(5, teid), "both": both4and6(5, teid), "rich": rich(5, teid),
		"handover": with(plain(5, teid), func(s *Session) { s.Rules[1].Forward = gnb(9, "10.0.0.3") }),
		"handover and QFI": with(plain(5, teid), func(s *Session) {
			s.Rules[1].Forward, s.Rules[1].QFI = gnb(8, "2001:db8::3"), 5
		}),
		"both, handover and QFI": with(both4and6(5, teid), func(s *Session) {
			s.Rules[1].Forward, s.Rules[1].QFI = gnb(8, "10.0.0.4"), 6
		}),
		"idle": with(plain(5, teid), func(s *Session) { s.Rules[1].Action = ActionBuffer }),
		"nowhere yet": with(plain(5, teid), func(s *Session) {
			s.Rules[1].Action, s.Rules[1].Forward = ActionDrop, Forwarding{}
		}),
		"closed": with(plain(5, teid), func(s *Session) { s.Rules[0].Action = ActionGate }),
		"n9 policy": with(plain(5, teid), func(s *Session) {
			s.Rules[0].Forward = Forwarding{Kind: ForwardPolicy, Flow: class.SessionFlow{Policy: "n9"}}
		}),
		"n9 SRv6": with(plain(5, teid), func(s *Session) {
			s.Rules[0].Forward = Forwarding{Kind: ForwardSRv6, Remote: addr("fc00:d::1"), Slice: 3, ToS: 0xb8, ToSMask: 0xfc}
		}),
		"rates": with(plain(5, teid), func(s *Session) { s.Rules[0].Rate, s.Rules[1].Rate = 1e6, 2e6 }),
		"meters": with(plain(5, teid), func(s *Session) {
			s.Meters = []Meter{{Rate: 1e6}, {Packets: 60000, Period: time.Second}}
			s.Rules[0].Meters, s.Rules[1].Meters = []int{0}, []int{0, 1}
		}),
		"limits": with(plain(5, teid), func(s *Session) {
			s.Rules[0].NotifyAt, s.Rules[1].StopAt, s.Rules[1].NotifyAt = 1<<30, 1<<31, 1<<45
		}),
		"another TEID":     plain(5, 1<<24|9),
		"a TEID elsewhere": plain(5, 0xabcdef01),
		"another address": with(plain(5, teid), func(s *Session) {
			other := prefix("10.77.0.1/32")
			s.Rules[0].Sources, s.Rules[1].Destinations = []netip.Prefix{other}, []netip.Prefix{other}
		}),
		"framed": with(both4and6(5, teid), func(s *Session) {
			for _, p := range []netip.Prefix{prefix("192.168.7.0/24"), prefix("2001:db8:7::/48")} {
				s.Rules[0].Sources = append(s.Rules[0].Sources, p)
				s.Rules[1].Destinations = append(s.Rules[1].Destinations, p)
			}
		}),
		"rich, only DNS": with(rich(5, teid), func(s *Session) { s.Rules = s.Rules[2:4] }),
		"rich, turned round": with(rich(5, teid), func(s *Session) {
			for i := range s.Rules {
				ever(&s.Rules[i], func(r *Rule) { r.Precedence = 1000 - r.Precedence })
			}
		}),
		"rich, handover and QFI": with(rich(5, teid), func(s *Session) {
			for i := range s.Rules {
				if r := &s.Rules[i]; r.Direction == Downlink {
					r.Forward, r.QFI = gnb(20+uint32(r.ID), "10.0.0.3"), 7
				}
			}
		}),
		"rich, other filters and QFI": with(rich(5, teid), func(s *Session) {
			for i := range s.Rules {
				r := &s.Rules[i]
				r.Precedence = 1000 - r.Precedence
				if r.Direction == Downlink {
					r.QFI = 7
				} else if r.Action == ActionForward {
					r.Action = ActionGate
				}
			}
		}),
		"other rules": with(plain(5, teid), func(s *Session) { s.Rules[0].ID, s.Rules[1].ID = 11, 12 }),
		"nothing":     {ID: 5},
	}
	addCores(out, 5, teid)
	return out
}

// probes are frames that some of the variants take.
var probes = sync.OnceValue(func() [][]byte {
	four, six := ue4(5).String(), ue6(5).Addr().Next().String()
	var out [][]byte
	for _, port := range []uint16{53, 80} {
		for _, teid := range []uint32{7, 1<<24 | 9, 0xabcdef01} {
			out = append(out, uplinkFrame(teid, four, "192.0.2.1", port))
		}
		out = append(out,
			uplinkFrame(7, six, "2001:db8:ff::1", port), uplinkFrame(7, "10.77.0.1", "192.0.2.1", port),
			uplinkFrame(7, "192.168.7.9", "192.0.2.1", port),
			downlinkFrame("192.0.2.1", four, port), downlinkFrame("2001:db8:ff::1", six, port),
			downlinkFrame("192.0.2.1", "10.77.0.1", port), downlinkFrame("192.0.2.1", "192.168.7.9", port),
			qfiFrame(7, 1, four, "192.0.2.1", port), qfiFrame(7, 2, four, "192.0.2.1", port), qfiFrame(7, 1, six, "2001:db8:ff::1", port),
			qfiFrame(7, 1, "10.45.0.6", "192.0.2.1", port))
	}
	return out
})

// result is what becomes of a frame.
type result struct {
	verdict uint32
	out     []byte
}

func results(t testing.TB, d *DataPlane) []result {
	t.Helper()
	var all []result
	for _, frame := range probes() {
		verdict, out, err := d.Frames.Test(frame, 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, result{verdict, out})
	}
	return all
}

func (r result) is(o result) bool { return r.verdict == o.verdict && bytes.Equal(r.out, o.out) }

// hook calls f after each word that goes into the tables of sessions.
func (d *DataPlane) hook(f func()) {
	d.sessionTables.PDR.Stored, d.sessionTables.Filter.Stored, d.sessionTables.Forwarding.Stored, d.sessionTables.Meter.Stored = f, f, f, f
}

// TestEveryChange changes a session from each variant into each other, twice.
// After every word that is written each frame is handled as before or as
// afterwards, and all that are forwarded are counted.
func TestEveryChange(t *testing.T) {
	d := sessionRig(t, Options{})
	all := variants()
	names := slices.Sorted(maps.Keys(all))
	for _, s := range all { // so that every next hop is ready from the start
		must(t, d.Sessions.Put(s))
	}
	resolve(t, d)
	for _, from := range names {
		for _, to := range names {
			if from >= to {
				continue
			}
			must(t, d.Sessions.Drop(5)) // heads differ by what they were first
			settled(d)
			must(t, d.Sessions.Put(all[from]))
			for range 2 {
				checkChange(t, d, from+" to "+to, all[from], all[to])
				checkChange(t, d, to+" to "+from, all[to], all[from])
			}
			if t.Failed() {
				return
			}
		}
	}
	must(t, d.Sessions.Drop(5))
	checkEmpty(t, d)
}

func checkChange(t *testing.T, d *DataPlane, what string, from, to Session) {
	t.Helper()
	before := results(t, d)
	takeAll(d)
	counted := total(t, d, from)
	forwarded, words := uint64(0), 0
	var halves []string
	var meanwhile [][]result
	d.hook(func() {
		words++
		now := make([]result, len(before))
		for i, frame := range probes() {
			verdict, out, err := d.Frames.Test(frame, 1)
			if err != nil {
				t.Error(err)
			}
			now[i] = result{verdict, out}
			if verdict == xdp.VerdictRedirect {
				forwarded++
			}
		}
		takeAll(d)
		meanwhile = append(meanwhile, now)
	})
	err := d.Sessions.Put(to)
	d.hook(nil)
	must(t, err)
	after := results(t, d)
	takeAll(d)
	for n, now := range meanwhile {
		for i := range now {
			nobody := before[i].verdict != xdp.VerdictRedirect && now[i].verdict == xdp.VerdictDrop // see appendWrites
			if !now[i].is(before[i]) && !now[i].is(after[i]) && !nobody {
				halves = append(halves, fmt.Sprintf("frame %d after word %d of %d: %s", i, n+1, words, xdp.VerdictName(now[i].verdict)))
			}
		}
	}
	if halves != nil {
		t.Errorf("%s: %v", what, halves)
	}
	for _, r := range after {
		if r.verdict == xdp.VerdictRedirect {
			forwarded++
		}
	}
	if got := total(t, d, from, to) - counted; got != forwarded {
		t.Errorf("%s: counted %d packets, forwarded %d", what, got, forwarded)
	}
	d.hook(func() { t.Errorf("%s: putting it again writes", what) })
	err = d.Sessions.Put(to)
	d.hook(nil)
	must(t, err)
}

// takeAll is done with all that was handed up to be kept.
func takeAll(d *DataPlane) {
	refused := d.sessionTables.Refused
	for i := range refused.Len {
		atomic.AndUint32(refused.Half(i, 2, 1), heldOpen)
	}
}

// heldOpen is HELD_OPEN of bpf/def/tables.h.
const heldOpen = 1 << 31

// total is how many packets the rules of some sessions counted.
func total(t *testing.T, d *DataPlane, sessions ...Session) (sum uint64) {
	t.Helper()
	known := map[uint16]bool{}
	for _, s := range sessions {
		for _, r := range s.Rules {
			known[r.ID] = true
		}
	}
	settled(d)
	for id, c := range volumes(t, d, 5) {
		if known[id] {
			sum += c.Packets
		}
	}
	return sum
}

// settled waits for all that waits for packets.
func settled(d *DataPlane) { d.Sessions.Settle() }

// checkEmpty says whether the session tables hold nothing.
func checkEmpty(t *testing.T, d *DataPlane) {
	t.Helper()
	d.mu.Lock()
	must(t, d.Sessions.Reap())
	d.mu.Unlock()
	settled(d)
	for name, u := range d.Usage() {
		switch name {
		case "sessions", abi.MapPdr, abi.MapMeter, abi.MapForwarding, abi.MapFilter, abi.MapPdrByTeid, abi.MapPdrByUe:
			if u.Used != 0 {
				t.Errorf("%s: %d are in use", name, u.Used)
			}
		}
	}
	for i := range d.sessionTables.PDR.Len {
		if d.sessionTables.PDR.Get(i).Action != 0 {
			t.Errorf("entry %d of pdr leads somewhere", i)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := d.Sessions.Leftovers(); len(left) > 0 {
		t.Errorf("without sessions there are %v", left)
	}
}

// TestChangesUnderLoad changes a session while several CPUs send: no packet is
// lost, and none is not counted.
func TestChangesUnderLoad(t *testing.T) {
	d := sessionRig(t, Options{})
	all := variants()
	cycle := []Session{all["plain"], all["handover"], all["handover and QFI"], all["rich"], all["both"],
		all["rich, handover and QFI"], all["rich, turned round"], all["both, handover and QFI"], all["limits"]}
	for _, s := range cycle {
		must(t, d.Sessions.Put(s))
	}
	resolve(t, d)
	must(t, d.Sessions.Drop(5))
	must(t, d.Sessions.Put(cycle[0]))
	four := ue4(5).String()
	frames := [][]byte{uplinkFrame(7, four, "192.0.2.1", 80), downlinkFrame("192.0.2.1", four, 80)}
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	var sent [2]atomic.Uint64
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			for ctx.Err() == nil {
				for i, frame := range frames {
					verdict, _, err := d.Frames.Test(frame, 1)
					if err != nil || verdict != xdp.VerdictRedirect {
						t.Errorf("frame %d: %s, %v%s", i, xdp.VerdictName(verdict), err, dropped(d))
						return
					}
					sent[i].Add(1)
				}
			}
		})
	}
	last, changes := map[uint16]counter.Counter{}, 0
	for ; ctx.Err() == nil; changes++ {
		must(t, d.Sessions.Put(cycle[changes%len(cycle)]))
		now := volumes(t, d, 5)
		for id := uint16(1); id <= 2; id++ {
			if now[id].Packets < last[id].Packets {
				t.Errorf("rule %d counted %v, and then %v", id, last[id], now[id])
			}
		}
		last = now
	}
	running.Wait()
	usage, err := deleteSession(d, 5)
	must(t, err)
	got := byRule(usage)
	for i := range sent {
		if n := sent[i].Load(); got[uint16(i+1)] != (counter.Counter{Packets: n, Bytes: 128 * n}) {
			t.Errorf("rule %d counted %v of %d packets, over %d changes", i+1, got[uint16(i+1)], n, changes)
		}
	}
	t.Logf("%d changes under %d packets", changes, sent[0].Load()+sent[1].Load())
	checkEmpty(t, d)
}

// dropped says why frames were.
func dropped(d *DataPlane) string {
	all, err := d.Outcomes()
	if err != nil {
		return ": " + err.Error()
	}
	text := ""
	for r, c := range all {
		if reason.Reason(r).Drop() && c.Packets > 0 {
			text += fmt.Sprintf("; %s: %d", reason.Reason(r), c.Packets)
		}
	}
	return text
}

// restart lets the daemon begin again with the tables as they are.
func restart(t testing.TB, d *DataPlane) {
	t.Helper()
	d.mu.Lock()
	if err := errors.Join(table.Close(&d.tables), table.Close(&d.sessionTables)); err != nil {
		t.Fatal(err)
	}
	err := d.openTables()
	d.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	prepareSessions(t, d)
}

var errCrash = errors.New("crash")

// crashAfter lets the daemon die after so many words of a change; it returns
// whether it got that far.
func crashAfter(t *testing.T, d *DataPlane, words int, s Session) (crashed bool) {
	t.Helper()
	settled(d)
	d.hook(func() {
		if strings.Contains(string(debug.Stack()), "settleLater") {
			return // what nobody waits for is no part of the change
		}
		if words--; words == 0 {
			panic(errCrash)
		}
	})
	defer func() {
		d.hook(nil)
		if r := recover(); r == any(errCrash) {
			d.Sessions.Close()
			d.mu.Unlock()
			crashed = true
		} else if r != nil {
			panic(r)
		}
	}()
	must(t, d.Sessions.Put(s))
	return false
}

// stillLed says whether something leads to a rule that led to it before.
func stillLed(from, to Session, id uint16) bool {
	rule := func(s Session) Rule {
		return s.Rules[slices.IndexFunc(s.Rules, func(r Rule) bool { return r.ID == id })]
	}
	a, b := rule(from), rule(to)
	return a.TEID != 0 && a.TEID == b.TEID ||
		slices.ContainsFunc(a.Destinations, func(p netip.Prefix) bool { return slices.Contains(b.Destinations, p) })
}

// wordsOf is how many words a change writes.
func wordsOf(t *testing.T, d *DataPlane, from, to Session) (words int) {
	t.Helper()
	must(t, d.Sessions.Put(from))
	d.hook(func() { words++ })
	err := d.Sessions.Put(to)
	d.hook(nil)
	must(t, err)
	must(t, d.Sessions.Drop(5))
	return words
}

// TestCrashInAChange lets the daemon die within some changes: after each of the
// last writes, which packets see, and after some earlier ones. The next daemon
// puts the sessions. Then frames are handled as if no daemon had died, no volume
// is lost that a TEID or an address still leads to, and no entry is left over.
func TestCrashInAChange(t *testing.T) {
	d := sessionRig(t, Options{})
	all := variants()
	clean := map[string][]result{}
	for name, s := range all {
		must(t, d.Sessions.Put(s))
		resolve(t, d)
		clean[name] = results(t, d)
		must(t, d.Sessions.Drop(5)) // what an idle one holds up is not the next one's
	}
	for _, c := range [][2]string{
		{"plain", "handover and QFI"}, {"rich", "plain"}, {"both", "rich, handover and QFI"}, {"both, handover and QFI", "both"},
		{"a TEID elsewhere", "framed"}, {"meters", "rich, turned round"}, {"another address", "idle"},
	} {
		from, to := all[c[0]], all[c[1]]
		var step int
		for words, all := 1, wordsOf(t, d, from, to); ; words += step {
			if step = 9; words > all-30 {
				step = 1
			}
			must(t, d.Sessions.Put(from))
			resolve(t, d)
			results(t, d)
			had := volumes(t, d, 5)
			crashed := crashAfter(t, d, words, to)
			restart(t, d)
			must(t, d.Sessions.Put(to))
			must(t, d.Sweep())
			resolve(t, d)
			now := volumes(t, d, 5)
			for _, r := range to.Rules {
				if old, ok := had[r.ID]; ok && now[r.ID] != old && stillLed(from, to, r.ID) {
					t.Errorf("%s to %s, after %d words: rule %d had counted %v, and now %v", c[0], c[1], words, r.ID, old, now[r.ID])
				}
			}
			for i, got := range results(t, d) {
				if !got.is(clean[c[1]][i]) {
					t.Errorf("%s to %s, after %d words: frame %d: %s", c[0], c[1], words, i, xdp.VerdictName(got.verdict))
				}
			}
			must(t, d.Sessions.Drop(5))
			checkEmpty(t, d)
			if t.Failed() || !crashed {
				break
			}
		}
	}
}

// TestAddressAndRestUnderLoad changes the UE's address together with what its
// rules do, a thousand times, while packets come from and to both addresses: each
// is handled by its own form of the session, or dropped, never by the rest of the
// other.
func TestAddressAndRestUnderLoad(t *testing.T) {
	const sessions, flips = 50, 20
	d := sessionRig(t, Options{})
	forms := func(n uint32) (out [2]Session) {
		out[0], out[1] = plain(n, n), plain(n, n)
		other := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}), 32)
		out[1].Rules[0].Sources, out[1].Rules[1].Destinations = []netip.Prefix{other}, []netip.Prefix{other}
		out[1].Rules[0].Forward, out[1].Rules[1].Forward = gnb(8, "10.0.0.4"), gnb(9, "10.0.0.3")
		out[1].Rules[1].QFI = 5
		return out
	}
	var frames [sessions + 1][4][]byte // of a session: up and down in form 0, then in form 1
	var pure [sessions + 1][4][]byte
	for form := range 2 {
		for n := uint32(1); n <= sessions; n++ {
			must(t, d.Sessions.Put(forms(n)[form]))
		}
		resolve(t, d)
		for n := uint32(1); n <= sessions; n++ {
			ue := forms(n)[form].Rules[0].Sources[0].Addr().String()
			for i, frame := range [][]byte{uplinkFrame(n, ue, "192.0.2.1", 80), downlinkFrame("192.0.2.1", ue, 80)} {
				verdict, out, err := d.Frames.Test(frame, 1)
				if err != nil || verdict != xdp.VerdictRedirect {
					t.Fatalf("session %d, form %d: %s, %v", n, form, xdp.VerdictName(verdict), err)
				}
				frames[n][2*form+i], pure[n][2*form+i] = frame, out
			}
		}
	}
	d.hook(func() { time.Sleep(time.Microsecond) }) // so that packets meet what is there between two words
	var sent, forwarded atomic.Uint64
	ctx, stop := context.WithCancel(context.Background())
	var senders, changers sync.WaitGroup
	senders.Go(func() {
		for ctx.Err() == nil {
			for n := uint32(1); n <= sessions; n++ {
				for i, frame := range frames[n] {
					verdict, out, err := d.Frames.Test(frame, 1)
					if err != nil || verdict == xdp.VerdictRedirect && !bytes.Equal(out, pure[n][i]) {
						t.Errorf("session %d, packet %d: %s, %x, %v; want %x", n, i, xdp.VerdictName(verdict), out, err, pure[n][i])
						return
					}
					if sent.Add(1); verdict == xdp.VerdictRedirect {
						forwarded.Add(1)
					}
				}
			}
		}
	})
	for n := uint32(1); n <= sessions; n++ {
		changers.Go(func() {
			for flip := range flips {
				must(t, d.Sessions.Put(forms(n)[flip%2]))
			}
		})
	}
	changers.Wait()
	stop()
	senders.Wait()
	settled(d)
	d.hook(nil)
	t.Logf("%d changes under %d packets, of which %d were forwarded", sessions*flips, sent.Load(), forwarded.Load())
	if 4*forwarded.Load() < sent.Load() {
		t.Errorf("%d of %d packets were forwarded, want near half", forwarded.Load(), sent.Load())
	}
}
