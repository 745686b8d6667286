package dataplane

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func TestTakenAddressesAndTEIDs(t *testing.T) {
	d := sessionRig(t, Options{})
	a, b := plain(5, 7), plain(6, 8)
	a.Rules[1].Destinations = append(a.Rules[1].Destinations, prefix("10.77.0.1/32"), prefix("192.168.1.0/24"))
	must(t, d.Sessions.Put(a))
	must(t, d.Sessions.Put(b))
	for _, change := range []func(*Session){
		func(s *Session) { s.Rules[0].TEID = 7 },
		func(s *Session) { s.Rules[1].Destinations = a.Rules[1].Destinations[:1] },
		func(s *Session) { s.Rules[1].Destinations = a.Rules[1].Destinations[1:2] },
		func(s *Session) { s.Rules[1].Destinations = a.Rules[1].Destinations[2:] },
	} {
		c := plain(6, 8)
		change(&c)
		d.hook(func() { t.Error("something was written") })
		err := d.Sessions.Put(c)
		d.hook(nil)
		if !errors.Is(err, ErrTaken) {
			t.Errorf("what another session has: %v", err)
		}
	}
	if err := d.Steering.Put(srpolicy.Steering{Prefix: prefix("192.168.1.0/24"), Policy: "n9"}); !errors.Is(err, ErrTaken) {
		t.Errorf("steering what is a framed route: %v", err)
	}
	must(t, d.Sessions.Drop(5))
	must(t, d.Sessions.Drop(6))
	checkEmpty(t, d)
	must(t, d.Steering.Put(srpolicy.Steering{Prefix: prefix("192.168.1.0/24"), Policy: "n9"}))
	if err := d.Sessions.Put(a); !errors.Is(err, ErrTaken) {
		t.Errorf("a framed route that is steered: %v", err)
	}
	checkEmpty(t, d)
}

// TestFullTablesOfSessions fills each table: the session that does not fit
// leaves nothing, and those that are there go on.
func TestFullTablesOfSessions(t *testing.T) {
	limits := sessionLimits
	limits.Sessions, limits.Filters = 16, 64
	for what, make := range map[string]func(n uint32) Session{
		"filters": func(n uint32) Session { return rich(n, n) },
		"meters": func(n uint32) Session {
			s := plain(n, n)
			s.Meters = []Meter{{Rate: 1}, {Rate: 2}}
			s.Rules[0].Meters = []int{0, 1}
			return s
		},
		"addresses": func(n uint32) Session {
			s := plain(n, n)
			s.Rules[1].Destinations = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, 0, byte(n)}), 32),
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, 1, byte(n)}), 32)}
			return s
		},
		"TEIDs":    func(n uint32) Session { return plain(n, n<<16) },
		"sessions": func(n uint32) Session { return Session{ID: uint64(n)} },
		"peers": func(n uint32) Session {
			s := plain(n, n)
			s.Rules[1].Forward.Remote = netip.AddrFrom4([4]byte{10, 1, 0, byte(n)})
			return s
		},
	} {
		t.Run(what, func(t *testing.T) {
			d, err := Open(again(t, Options{Limits: limits}))
			must(t, err)
			defer func() { must(t, d.Close()) }()
			must(t, d.SetSettings(Settings{GTPUAddresses: addrs("10.0.0.1"), UEPools: []netip.Prefix{prefix("10.45.0.0/28"), prefix("2001:db8:45::/60")}}))
			n := uint32(1)
			for ; n < 40; n++ {
				before := d.Usage()
				err := d.Sessions.Put(make(n))
				if err == nil {
					continue
				}
				var full *table.FullError
				if !errors.As(err, &full) {
					t.Fatalf("session %d: %v", n, err)
				}
				settled(d)
				if after := d.Usage(); !maps.Equal(after, before) {
					t.Errorf("before the refused session %v, after it %v", before, after)
				}
				d.hook(func() { t.Error("the session that does not fit is written") })
				if err := d.Sessions.Put(make(n)); !errors.As(err, &full) {
					t.Errorf("session %d again: %v", n, err)
				}
				d.hook(nil)
				break
			}
			if n == 40 {
				t.Fatal("the table never was full")
			}
			must(t, d.Sessions.Drop(1))
			must(t, d.Sessions.Put(make(n))) // waits for the room
			for ; n > 0; n-- {
				_, err := deleteSession(d, uint64(n))
				must(t, err)
			}
			checkEmpty(t, d)
		})
	}
}

// TestFullFilterTableRefusesAtOnce demands that nobody waits for room that will
// not come: whoever does holds up all who come after, and the end of the daemon.
func TestFullFilterTableRefusesAtOnce(t *testing.T) {
	limits := sessionLimits
	limits.Sessions, limits.Filters = 1024, 256
	d := openWith(t, Options{Limits: limits})
	must(t, d.SetSettings(Settings{GTPUAddresses: addrs("10.0.0.1"), UEPools: []netip.Prefix{prefix("10.45.0.0/22"), prefix("2001:db8:45::/54")}}))
	must(t, d.Sweep())
	n := uint32(1)
	var full *table.FullError
	for ; !errors.As(d.Sessions.Put(rich(n, n)), &full); n++ {
		if n == limits.Sessions {
			t.Fatal("the table never was full")
		}
	}
	const refusals = 200
	settled(d)
	before, began, waits := d.Usage(), time.Now(), d.grace.Epoch
	for i := range uint32(refusals) {
		if err := d.Sessions.Put(rich(n+i, n+i)); !errors.As(err, &full) || full.Limit != "filters" {
			t.Fatalf("session %d: %v", n+i, err)
		}
		// Other sessions come and go meanwhile.
		must(t, d.Sessions.Put(plain(n+i, n+i)))
		must(t, d.Sessions.Drop(uint64(n+i)))
	}
	// What a refused session leaves is waited for at most once a second.
	if n, most := d.grace.Epoch-waits, uint64(time.Since(began)/time.Second)+1; n > most {
		t.Errorf("%d refusals waited %d times for packets under way, at most %d times may be", refusals, n, most)
	}
	settled(d)
	if after := d.Usage(); !maps.Equal(after, before) {
		t.Errorf("before the refused sessions %v, after them %v", before, after)
	}
}

// TestSessionsLeaveNothing puts, changes and deletes sessions at random from
// several sides.
func TestSessionsLeaveNothing(t *testing.T) {
	d := sessionRig(t, Options{})
	cycles := 300
	if testing.Short() {
		cycles = 50
	}
	var running sync.WaitGroup
	for side := range uint32(4) {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(side), 1))
			for range cycles {
				n := 1 + side*15 + random.Uint32N(15)
				teid, err := d.Sessions.NewTEID()
				if err != nil {
					t.Error(err)
					return
				}
				makers := []func(n, teid uint32) Session{plain, both4and6, rich}
				for range 1 + random.IntN(3) {
					s := makers[random.IntN(3)](n, teid)
					s.Rules[1].Forward = gnb(n, netip.AddrFrom4([4]byte{10, 0, 1, byte(random.Uint32N(8))}).String())
					s.Rules[1].Action = []Action{ActionForward, ActionBuffer, ActionDrop}[random.IntN(3)]
					if err := d.Sessions.Put(s); err != nil {
						t.Error(err)
						return
					}
				}
				if random.IntN(8) == 0 {
					_, err = deleteSession(d, uint64(n))
				} else {
					err = d.Sessions.Drop(uint64(n))
				}
				if err != nil {
					t.Error(err)
				}
				d.Sessions.FreeTEID(teid)
			}
		})
	}
	running.Wait()
	checkEmpty(t, d)
	if n := len(d.Adjacencies.Keys()); n != 2 { // of the policy and the routes
		t.Errorf("%d adjacencies are left", n)
	}
}

// TestSessionLimits lets a rule reach what it is told about, and what it may
// have.
func TestSessionLimits(t *testing.T) {
	d := sessionRig(t, Options{})
	must(t, d.Sessions.Put(plain(5, 7)))
	resolve(t, d)
	ctx, stop := context.WithCancel(context.Background())
	events := make(chan SessionEvent, 100)
	done := make(chan error, 1)
	go func() { done <- d.SessionEvents(ctx, func(e SessionEvent) { events <- e }) }()
	defer func() { stop(); must(t, <-done) }()
	expect := func(what string, want ...SessionEvent) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-events:
				if got != w {
					t.Errorf("%s: %+v, want %+v", what, got, w)
				}
			case <-time.After(5 * time.Second):
				t.Errorf("%s: nothing, want %+v", what, w)
			}
		}
		select {
		case got := <-events:
			t.Errorf("%s: %+v too", what, got)
		case <-time.After(20 * time.Millisecond):
		}
	}
	up := uplinkFrame(7, ue4(5).String(), "192.0.2.1", 80) // 128 octets
	send := func(n int, want string) {
		t.Helper()
		for range n {
			wantReason(t, d, "up", up, want)
		}
	}
	notified := SessionEvent{Session: 5, Rule: 1, Kind: EventNotify}
	stopped := SessionEvent{Session: 5, Rule: 1, Kind: EventStop}
	must(t, d.Sessions.SetLimits(5, 1, RuleLimits{NotifyAt: 512, StopAt: 1024}))
	send(4, "forwarded")
	expect("below")
	send(1, "forwarded")
	expect("at 512", notified)
	send(3, "forwarded")
	expect("told once")
	send(2, "quota")
	expect("at 1024", stopped)
	must(t, d.Sessions.SetLimits(5, 1, RuleLimits{NotifyAt: 0, StopAt: 1280}))
	send(2, "forwarded")
	send(1, "quota")
	expect("at 1280", stopped)
	// What was reached already is told at once; 0 is never.
	must(t, d.Sessions.SetLimits(5, 1, RuleLimits{NotifyAt: 100, StopAt: 0}))
	send(3, "forwarded")
	expect("already", notified)
	// Far away: the data path cannot look so far, but nobody sees that.
	const far, step = 1<<41 + 1<<20, 1<<37 + 1<<10
	must(t, d.Sessions.SetLimits(5, 1, RuleLimits{NotifyAt: far, StopAt: far + 1024}))
	at := d.ruleIndex(5, 1)
	for octets := uint64(step); octets < far; octets += step {
		d.count(at, octets)
		send(2, "forwarded")
		expect("on the way")
		awaitFar(t, d, at)
	}
	d.count(at, far-256)
	send(2, "forwarded")
	expect("before it")
	send(1, "forwarded")
	expect("there", notified)
	d.count(at, far+1024)
	send(2, "quota")
	expect("beyond", stopped)
	must(t, d.Sessions.SetLimits(5, 1, RuleLimits{NotifyAt: 0, StopAt: 0}))
	send(3, "forwarded")
	// Where the word would mean something else it is one more.
	for _, words := range []uint64{1 << 40, 2 << 40} {
		d.count(at, words-1280)
		must(t, d.Sessions.SetLimits(5, 1, RuleLimits{NotifyAt: words - 1024, StopAt: words}))
		send(3, "forwarded")
		expect("around", notified)
		send(9, "forwarded")
		send(3, "quota")
		expect("around", stopped)
	}
	if err := d.Sessions.SetLimits(5, 9, RuleLimits{NotifyAt: 1, StopAt: 1}); err == nil {
		t.Error("there is no rule 9")
	}
}

// ruleIndex is where a rule is.
func (d *DataPlane) ruleIndex(id uint64, rule uint16) uint32 {
	return d.Sessions.EntryAt(id, rule)
}

// count lets an entry have counted so many octets.
func (d *DataPlane) count(at uint32, octets uint64) {
	for w, v := range table.ToWords(counter.VolumeOf(counter.Counter{Packets: octets / 1000, Bytes: octets})) {
		d.sessionTables.PDR.Store(at, w, v)
	}
}

// awaitFar waits until limits that were too far ahead have been looked at
// again: they are ahead of what was counted.
func awaitFar(t *testing.T, d *DataPlane, at uint32) {
	t.Helper()
	for range 200 {
		d.mu.Lock()
		now := uint32(counter.ReadVolume(d.sessionTables.PDR.Words(at)).Bytes >> 8)
		ahead := int32(d.sessionTables.PDR.Get(at).Notify - now)
		d.mu.Unlock()
		if ahead > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nobody looked at the limits again")
}

func TestSlices(t *testing.T) {
	d := sessionRig(t, Options{})
	s := plain(5, 7)
	for i := range s.Rules {
		s.Rules[i].Forward.Slice = 3
	}
	must(t, d.Sessions.Put(s))
	resolve(t, d)
	wantReason(t, d, "up", uplinkFrame(7, ue4(5).String(), "192.0.2.1", 80), "forwarded")
	for range 2 {
		wantReason(t, d, "down", downlinkFrame("192.0.2.1", ue4(5).String(), 80), "forwarded")
	}
	up, down, err := d.SliceCounters(3)
	must(t, err)
	if up != (counter.Counter{Packets: 1, Bytes: 128}) || down != (counter.Counter{Packets: 2, Bytes: 256}) {
		t.Errorf("the slice carried %v up and %v down", up, down)
	}
	must(t, d.SetSlice(3, 0, 1)) // a packet's worth takes a second
	lost := 0
	for range 200 {
		if run(t, d, downlinkFrame("192.0.2.1", ue4(5).String(), 80)).String() == "slice_rate" {
			lost++
		}
	}
	if lost == 0 || lost == 200 {
		t.Errorf("of 200 packets at 1 kbit/s %d were lost", lost)
	}
	wantReason(t, d, "up", uplinkFrame(7, ue4(5).String(), "192.0.2.1", 80), "forwarded")
	must(t, d.SetSlice(3, 0, 0))
	wantReason(t, d, "down", downlinkFrame("192.0.2.1", ue4(5).String(), 80), "forwarded")
	for _, n := range []uint32{0, session.MaxSlices} {
		if err := d.SetSlice(n, 1, 1); err == nil {
			t.Errorf("slice %d is there", n)
		}
	}
}

// TestRatesKeepTheirBuckets changes a rate: what was left of it stays.
func TestRatesKeepTheirBuckets(t *testing.T) {
	d := sessionRig(t, Options{})
	s := rich(5, 7)
	s.Rules[0].Rate, s.Rules[0].Precedence = 1000, 1
	must(t, d.Sessions.Put(s))
	resolve(t, d)
	for range 20 {
		wantReason(t, d, "up", uplinkFrame(7, ue4(5).String(), "192.0.2.1", 80), "forwarded")
	}
	at := d.ruleIndex(5, 1)
	bucket := d.sessionTables.PDR.Get(at).Bucket
	meters := []abi.Meter{d.sessionTables.Meter.Get(1), d.sessionTables.Meter.Get(2), d.sessionTables.Meter.Get(3)}
	s.Rules[0].Rate = 2000
	for i := range s.Meters {
		s.Meters[i].Rate *= 2
	}
	must(t, d.Sessions.Put(s))
	if now := d.sessionTables.PDR.Get(at).Bucket; now != bucket || d.sessionTables.PDR.Get(at).Rate != 2000 {
		t.Errorf("bucket %#x became %#x, rate %d", bucket, now, d.sessionTables.PDR.Get(at).Rate)
	}
	for i, was := range meters {
		if now := d.sessionTables.Meter.Get(uint32(1 + i)); now.Bucket != was.Bucket || now.Used != was.Used {
			t.Errorf("meter %d: %+v became %+v", i, was, now)
		}
	}
}

func TestMetersThatCannotBeChained(t *testing.T) {
	d := sessionRig(t, Options{})
	s := rich(5, 7)
	s.Rules[0].Meters, s.Rules[2].Meters, s.Rules[4].Meters = []int{0, 1}, []int{1, 2}, []int{0, 2}
	if err := d.Sessions.Put(s); err == nil {
		t.Error("three meters in pairs are no chain")
	}
	checkEmpty(t, d)
}

func TestUEPoolsStayWhileTheyAreUsed(t *testing.T) {
	d := sessionRig(t, Options{})
	check := func(s Settings) error { return CheckSettings(d, s) }
	must(t, d.Sessions.Put(plain(5, 7)))
	s := d.settings.Want
	s.UEPools = s.UEPools[1:]
	for _, change := range []func(Settings) error{check, d.SetSettings} {
		if err := change(s); err == nil || err.Error() != "settings: UE pool 10.45.0.0/26: sessions have addresses of it: keep the pool, or release them first" {
			t.Errorf("the pool of a session went: %v", err)
		}
	}
	s.UEPools = []netip.Prefix{prefix("10.45.0.0/26"), prefix("10.46.0.0/24")}
	var full *table.FullError
	for _, change := range []func(Settings) error{check, d.SetSettings} {
		if err := change(s); !errors.As(err, &full) {
			t.Errorf("a pool that does not fit: %v", err)
		}
	}
	must(t, d.Sessions.Drop(5))
	settled(d)
	s.UEPools = []netip.Prefix{prefix("10.46.0.0/26")}
	before := d.settings.Get()
	must(t, check(s))
	if d.settings.Get() != before {
		t.Error("the check changed the settings")
	}
	must(t, d.SetSettings(s))
	wantReason(t, d, "to the former pool", downlinkFrame("192.0.2.1", ue4(5).String(), 80), "passed")
	wantReason(t, d, "to the new pool", downlinkFrame("192.0.2.1", "10.46.0.5", 80), "no_pdr")
}

// threadTime is the CPU time that this thread has had, whatever else the machine does.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_THREAD, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestRestartWithSessions begins again with ten thousand sessions: nothing is
// written, everything is counted on, and it does not take long.
func TestRestartWithSessions(t *testing.T) {
	const sessions = 10_000
	limits := sessionLimits
	limits.Sessions, limits.Filters = 1<<14, 1<<17
	settings := Settings{GTPUAddresses: addrs("10.0.0.1"), UEPools: []netip.Prefix{prefix("10.45.0.0/18"), prefix("2001:db8:45::/50")}}
	path := filepath.Join(pinParent(t), "culvert")
	open := func() *DataPlane {
		d, err := Open(Options{PinPath: path, Limits: limits})
		must(t, err)
		must(t, d.SetSettings(settings))
		return d
	}
	session := func(n uint32) Session {
		switch n % 4 {
		case 0:
			return rich(n, n)
		case 1:
			return both4and6(n, n)
		}
		return plain(n, n)
	}
	d := open()
	for n := uint32(1); n <= sessions; n++ {
		must(t, d.Sessions.Put(session(n)))
		d.count(d.ruleIndex(uint64(n), 1), uint64(n))
	}
	settled(d)
	before := dump(t, d)
	must(t, d.Close())
	d = open()
	defer func() { must(t, d.Close()); must(t, Remove(path)) }()
	d.hook(func() { t.Error("something was written") })
	runtime.LockOSThread()
	began := threadTime(t)
	for n := uint32(1); n <= sessions; n++ {
		must(t, d.Sessions.Put(session(n)))
	}
	took := threadTime(t) - began
	runtime.UnlockOSThread()
	must(t, d.Sweep())
	d.hook(nil)
	if after := dump(t, d); after != before {
		t.Errorf("the tables changed")
	}
	if took > 500*time.Millisecond {
		t.Errorf("putting %d sessions again took %v of CPU time", sessions, took)
	}
	t.Logf("putting %d sessions again took %v of CPU time", sessions, took)
	for n := uint32(1); n <= sessions; n++ {
		if got := volumes(t, d, uint64(n))[1]; got.Bytes != uint64(n) {
			t.Fatalf("session %d: rule 1 counted %v", n, got)
		}
	}
}
