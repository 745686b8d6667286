package signalling

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/smf"
)

// heartbeatResponse is a message type.
const heartbeatResponse = 2

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// echo accepts whatever it is asked, until the test ends.
func echo(t *testing.T) netip.AddrPort {
	t.Helper()
	r, err := smf.ListenResponder(netip.MustParseAddrPort("127.0.0.2:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r.Addr()
}

// dial makes SMFs with sessions.
func dial(t *testing.T, upf netip.AddrPort, smfs, sessions int) *Load {
	t.Helper()
	o := Options{UPF: upf, Spec: smf.Spec{
		Count: sessions, QFI: 9, UE4: netip.MustParsePrefix("10.0.0.1/8"), Access: &smf.Tunnel{Address: addr("192.0.2.1"), TEID: 0x1000},
	}}
	for i := range smfs {
		o.SMFs = append(o.SMFs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(10 + i)}), 0))
	}
	l, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *Load) must(t *testing.T, s Settings) Result {
	t.Helper()
	s.On = -1
	r, err := l.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each request is answered once, whatever the loop, by several SMFs.
func TestLoops(t *testing.T) {
	l := dial(t, echo(t), 3, 300)
	for name, s := range map[string]Settings{
		"closed": {Window: 64}, "one at a time": {Window: 1}, "all sessions": {Window: 300}, "open": {Rate: 2000}, "open, with idle UEs": {Rate: 2000, Idle: 0.4},
	} {
		s.Duration = 200 * time.Millisecond
		r := l.must(t, s)
		if r.Err() != nil || r.Sent == 0 || r.Accepted != r.Sent || r.Strange != 0 {
			t.Errorf("%s: %+v, %v", name, r, r.Err())
		}
		if r.P50 <= 0 || r.P99 < r.P50 || r.Max < r.P99 || r.LongestGap <= 0 || r.CPU <= 0 || r.Elapsed < s.Duration {
			t.Errorf("%s: %+v", name, r)
		}
		if most := int(s.Rate*s.Duration.Seconds()) + 1; s.Rate > 0 && r.Sent+r.Skipped > most {
			t.Errorf("%s: %d sent and %d skipped of at most %d", name, r.Sent, r.Skipped, most)
		}
	}
}

// TestOwnLimit says how many requests a second the load itself can make: an echo takes
// their place that a UPF would have.
func TestOwnLimit(t *testing.T) {
	l := dial(t, echo(t), 4, 4096)
	r := l.must(t, Settings{Window: 1024, Duration: time.Second})
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	each := r.CPU / time.Duration(r.Sent)
	t.Logf("%.0f requests/s, each %s of the thread's CPU time: at most %.0f/s on a core", r.PerSecond, each, float64(time.Second)/float64(each))
	if each > 20*time.Microsecond {
		t.Errorf("a request takes %s", each)
	}
}

// faulty is a UPF that sets up sessions as it should. A request to change one gets what
// answer returns, for the n-th such message: as many datagrams. An answer to its own requests is
// number -1.
func faulty(t *testing.T, answer func(n int, right []byte) [][]byte) netip.AddrPort {
	t.Helper()
	behind := echo(t)
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.3:0")))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		asks, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(behind))
		if err != nil {
			t.Error(err)
			return
		}
		defer asks.Close()
		b, changes := make([]byte, 2048), 0
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if b[1] == heartbeatResponse {
				answer(-1, b[:n])
				continue
			}
			change := n == len(forward) && binary.BigEndian.Uint32(b[sequenceAt:])>>8 >= firstSequence
			if _, err = asks.Write(b[:n]); err == nil {
				n, err = asks.Read(b)
			}
			answers := [][]byte{b[:n]}
			if change {
				answers = answer(changes, b[:n])
				changes++
			}
			for _, a := range answers {
				if err == nil {
					_, err = conn.WriteToUDPAddrPort(a, from)
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// What a UPF does wrong is counted, and nothing else is.
func TestFaults(t *testing.T) {
	const t1 = 200 * time.Millisecond
	change := func(at int, to byte) func(int, []byte) [][]byte { // the first answer
		return func(n int, right []byte) [][]byte {
			if n == 0 {
				right[at] = to
			}
			return [][]byte{right}
		}
	}
	for name, c := range map[string]struct {
		answer func(n int, right []byte) [][]byte
		want   func(sent int) Result
	}{
		"one drop": {func(n int, right []byte) [][]byte {
			if n == 0 {
				return nil
			}
			return [][]byte{right}
		}, func(n int) Result { return Result{Accepted: n, Unanswered: 1} }},
		"no answer": {func(int, []byte) [][]byte { return nil }, func(n int) Result { return Result{Unanswered: n, Lost: n} }},
		"twice": {func(n int, right []byte) [][]byte {
			if n == 0 { // the last one's second answer may come after the run
				return [][]byte{right, right}
			}
			return [][]byte{right}
		}, func(n int) Result { return Result{Accepted: n, Strange: 1} }},
		"a refusal":       {change(20, 72), func(n int) Result { return Result{Accepted: n - 1, Refused: 1} }},
		"a wrong SEID":    {change(11, 0xee), func(n int) Result { return Result{Accepted: n, Wrong: 1, Unanswered: 1} }},
		"another message": {change(1, 55), func(n int) Result { return Result{Accepted: n, Wrong: 1, Unanswered: 1} }},
		"a wrong number":  {change(14, 0xee), func(n int) Result { return Result{Accepted: n, Strange: 1, Unanswered: 1} }},
	} {
		t.Run(name, func(t *testing.T) {
			l := dial(t, faulty(t, c.answer), 1, 20)
			r := l.must(t, Settings{Rate: 200, Duration: 100 * time.Millisecond, T1: t1})
			want := c.want(r.Sent)
			want.Sent, want.Skipped = r.Sent, r.Skipped
			got := Result{Sent: r.Sent, Accepted: r.Accepted, Refused: r.Refused, Unanswered: r.Unanswered, Lost: r.Lost, Wrong: r.Wrong, Strange: r.Strange, Foreign: r.Foreign, Skipped: r.Skipped}
			if got != want || r.Sent < 2 {
				t.Errorf("%+v, want %+v", got, want)
			}
			if (r.Err() == nil) != (name == "twice") {
				t.Errorf("error %v", r.Err())
			}
		})
	}
}

// Who is not the UPF answers, and nothing is accepted.
func TestForeign(t *testing.T) {
	other, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.4:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var l *Load
	upf := faulty(t, func(_ int, right []byte) [][]byte {
		to := l.smfs[0].packets.LocalAddr().(*net.UDPAddr).AddrPort()
		if _, err := other.WriteToUDPAddrPort(right, to); err != nil {
			t.Error(err)
		}
		return nil
	})
	l = dial(t, upf, 1, 20)
	r := l.must(t, Settings{Window: 1, Duration: 300 * time.Millisecond, T1: 200 * time.Millisecond})
	if r.Sent != 1 || r.Foreign != 2 || r.Accepted != 0 || r.Lost != 1 || r.Err() == nil {
		t.Errorf("%+v", r)
	}
}

// While a run reads the SMFs' sockets, a UPF gets answers to its own requests.
func TestOwnRequests(t *testing.T) {
	const heartbeatRequest = "20 01 000c 000007 00 0060 0004 e0000001"
	heard := make(chan string, 100)
	l := dial(t, faulty(t, func(n int, right []byte) [][]byte {
		if n < 0 {
			heard <- hex.EncodeToString(right[:8])
			return nil
		}
		return [][]byte{decode(heartbeatRequest), right}
	}), 1, 20)
	r := l.must(t, Settings{Rate: 200, Duration: 100 * time.Millisecond})
	if r.Err() != nil || r.Sent == 0 || r.Accepted != r.Sent {
		t.Errorf("%+v, %v", r, r.Err())
	}
	for range r.Sent {
		if got := <-heard; got != "2002000c00000700" {
			t.Errorf("answer %s", got)
		}
	}
}

// A gap is seen for as long as it is, and sessions without an answer are not asked again.
func TestGap(t *testing.T) {
	dark := func(n int) bool { return n >= 20 && n < 40 }
	l := dial(t, faulty(t, func(n int, right []byte) [][]byte {
		if dark(n) {
			return nil
		}
		return [][]byte{right}
	}), 2, 40)
	r := l.must(t, Settings{Rate: 400, Duration: 300 * time.Millisecond, T1: 100 * time.Millisecond})
	if r.LongestGap < 25*time.Millisecond || r.Unanswered == 0 || r.Accepted+r.Lost != r.Sent {
		t.Errorf("20 requests of 400 a second without an answer: %+v", r)
	}
}

// Until and ctx end a run before its time.
func TestEnd(t *testing.T) {
	l := dial(t, echo(t), 1, 10)
	until := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(until) })
	if r := l.must(t, Settings{Rate: 100, Duration: time.Hour, Until: until}); r.Accepted != r.Sent || r.Sent < 2 {
		t.Errorf("%+v", r)
	}
	ctx, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	if r, err := l.Run(ctx, Settings{Rate: 100, Duration: time.Hour, On: -1}); err == nil {
		t.Errorf("a run that was stopped: %+v", r)
	}
}

// Bad settings are told before anything is sent.
func TestSettings(t *testing.T) {
	l := dial(t, echo(t), 1, 10)
	for name, s := range map[string]Settings{
		"neither":       {Duration: 1},
		"both":          {Duration: 1, Window: 1, Rate: 1},
		"below 0":       {Duration: 1, Window: -1, Rate: 1},
		"window":        {Duration: 1, Window: 11},
		"idle":          {Duration: 1, Window: 1, Idle: 0.6},
		"no time":       {Window: 1},
		"a time before": {Window: 1, Duration: 1, T1: -1},
	} {
		if r, err := l.Run(t.Context(), s); err == nil || r.Sent > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for name, o := range map[string]Options{
		"no SMF":     {Spec: smf.Spec{Count: 1}},
		"uneven":     {Spec: smf.Spec{Count: 3}, SMFs: make([]netip.AddrPort, 2)},
		"no gNB":     {UPF: netip.MustParseAddrPort("127.0.0.2:1"), Spec: smf.Spec{Count: 1}, SMFs: make([]netip.AddrPort, 1)},
		"IPv6":       {UPF: netip.MustParseAddrPort("[::1]:1"), Spec: smf.Spec{Count: 1, Access: &smf.Tunnel{Address: addr("192.0.2.1")}}, SMFs: make([]netip.AddrPort, 1)},
		"no session": {SMFs: make([]netip.AddrPort, 1)},
	} {
		if _, err := Dial(t.Context(), o); err == nil {
			t.Errorf("%s: dialled", name)
		}
	}
}

// What a generator that did not get the CPU owes is sent in portions that a queue has room for,
// with time for answers between them; at its rate it waits for what is due next.
func TestLate(t *testing.T) {
	r := &run{Settings: Settings{Rate: 1000}, tally: newTally(), began: time.Now().Add(-time.Second)}
	if n, wait := r.room(r.now()), r.wait(); n != mostAtOnce || wait != takeBreath {
		t.Errorf("a second late: %d requests at once, then %s", n, wait)
	}
	r.offered = 1000 * 3600
	if n, wait := r.room(r.now()), r.wait(); n > 0 || wait != longestWait {
		t.Errorf("an hour early: %d requests, then %s", n, wait)
	}
}
