package dataplane

import (
	"cmp"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/srv6"
)

// These tests measure a rate by the clock of whatever machine runs them; the
// sender only has to offer more than the rate. If a meter refused the last packet
// of a batch, all of the volume granted until then was spent, except for what the
// bucket had not paid out yet. If it passes a packet of the next batch, it has
// granted more since. The volume between two such moments, whose times are known
// to lie between two readings of the clock, is rate * time. A meter makes up for
// a pause up to its window. So the measurement starts again after a longer pause
// of the sender, or after as long without a refusal.
const (
	// meterError is how far off a rate may seem. That the moments are vague makes
	// as much again at most: what is off by more than 1 % fails.
	meterError = 0.005
	// meterPause is less than a bucket's window.
	meterPause = 60 * time.Millisecond
	// meterPatience is how long a busy machine may disturb.
	meterPatience = time.Minute
)

// flow is a UE whose T-PDUs go on to another F-TEID.
type flow struct {
	d       *DataPlane
	kind    string
	octets  int      // of a T-PDU
	batch   int      // packets
	frames  [][]byte // by turns, a batch of each
	turn    int
	rules   []uint16 // whose they are
	session Session
}

// meterKinds are where a rate may stand.
var meterKinds = []string{"own rate", "shared meter", "slice"}

func newFlow(t *testing.T, d *DataPlane, n uint32, kind string, octets, batch int) *flow {
	t.Helper()
	f := &flow{d: d, kind: kind, octets: octets, batch: batch, rules: []uint16{1}, session: plain(n, n)}
	f.session.Rules[0].Forward = gnb(n, "10.0.0.2")
	if kind == "slice" {
		f.session.Rules[0].Forward.Slice = 1
	}
	f.frames = [][]byte{packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")},
		packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: n}, packet.IPv4{Src: ue4(n), Dst: addr("192.0.2.1")},
		packet.UDP{Sport: 5000, Dport: 80}, packet.Payload{Count: octets - 28})}
	must(t, d.Sessions.TakeTEID(n))
	return f
}

// setRate changes the rate, in kbit/s, and nothing else.
func (f *flow) setRate(t *testing.T, rate uint64) {
	t.Helper()
	switch f.kind {
	case "own rate":
		f.session.Rules = slices.Clone(f.session.Rules)
		f.session.Rules[0].Rate = rate
	case "shared meter":
		f.session.Meters, f.session.Rules[0].Meters = []Meter{{Rate: rate}}, []int{0}
	case "shared downlink":
		f.session.Meters = []Meter{{Rate: rate}}
	case "slice":
		must(t, f.d.SetSlice(1, rate, 0))
	}
	must(t, f.d.Sessions.Put(f.session))
}

// offer sends a batch, and says whether its last packet was refused.
func (f *flow) offer(t *testing.T) (refused bool) {
	frame := f.frames[f.turn%len(f.frames)]
	f.turn++
	return runEach(t, f.d, frame, f.batch) == xdp.VerdictDrop
}

// runEach sends a frame `count` times, and returns the last verdict. A call of
// its own for each packet: the kernel exchanges programs for one of many, which
// takes longer than a bucket's window.
func runEach(t *testing.T, d *DataPlane, frame []byte, count int) uint32 {
	ctx := xdp.MD{DataEnd: uint32(len(frame)), IngressIfindex: 1}
	attr := struct { // the part of union bpf_attr for BPF_PROG_TEST_RUN
		prog, verdict, sizeIn, sizeOut uint32
		in, out                        uint64
		repeat, duration               uint32
		ctxSizeIn, ctxSizeOut          uint32
		ctxIn, ctxOut                  uint64
		flags, cpu, batch, pad         uint32
	}{prog: uint32(d.prog.FD()), sizeIn: uint32(len(frame)), in: uint64(uintptr(unsafe.Pointer(&frame[0]))),
		repeat: 1, ctxSizeIn: uint32(unsafe.Sizeof(ctx)), ctxIn: uint64(uintptr(unsafe.Pointer(&ctx)))}
	for range count {
		attr.sizeOut = 0 // the kernel writes it, and takes it for a limit
		_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		if errno != 0 && errno != unix.EINTR {
			t.Errorf("run the program: %v", errno)
		}
	}
	runtime.KeepAlive(&ctx)
	return attr.verdict
}

// volume is what the flow's rules counted, in octets.
func (f *flow) volume(t *testing.T) (sum uint64) {
	t.Helper()
	counted := volumes(t, f.d, f.session.ID)
	for _, id := range f.rules {
		sum += counted[id].Bytes
	}
	return sum
}

// setting is a rate in kbit/s that began to hold within a time.
type setting struct {
	rate        uint64
	first, last time.Duration
}

// moment is when a volume was what had been paid: not before `first`, and not
// after `last`.
type moment struct {
	volume      uint64
	first, last time.Duration
}

// gauge finds moments among a flow's batches.
type gauge struct {
	*flow
	start    time.Time
	rates    []setting
	tight    *moment // at the end of the last batch, if that was refused
	begun    *moment
	now      moment
	refused  time.Duration // when something was, the last time
	offered  int           // octets since then
	restarts int
}

func newGauge(t *testing.T, f *flow, rate uint64) *gauge {
	t.Helper()
	g := &gauge{flow: f, start: time.Now()}
	g.set(t, rate)
	resolve(t, f.d)
	return g
}

func (g *gauge) set(t *testing.T, rate uint64) {
	t.Helper()
	s := setting{rate: rate, first: time.Since(g.start)}
	g.setRate(t, rate)
	s.last = time.Since(g.start)
	g.rates = append(g.rates, s)
}

func (g *gauge) String() string {
	return fmt.Sprintf("%s, %d kbit/s, T-PDUs of %d octets", g.kind, g.rates[len(g.rates)-1].rate, g.octets)
}

// worth is what a time is, in octets: at least, and at most.
func (g *gauge) worth(from, to time.Duration) (least, most float64) {
	for i, s := range g.rates {
		more := i == 0 || s.rate > g.rates[i-1].rate
		begins := func(late bool) time.Duration {
			if late {
				return s.last
			}
			return s.first
		}
		before := 0.0
		if i > 0 {
			before = float64(g.rates[i-1].rate)
		}
		step := (float64(s.rate) - before) * 125 // octets a second
		least += step * max(to-max(from, begins(more)), 0).Seconds()
		most += step * max(to-max(from, begins(!more)), 0).Seconds()
	}
	return least, most
}

// step offers a batch; true: there is a new moment.
func (g *gauge) step(t *testing.T) bool {
	t.Helper()
	before := time.Since(g.start)
	refused := g.offer(t)
	after := time.Since(g.start)
	volume := g.volume(t)
	fresh := g.tight != nil && volume > g.tight.volume
	if fresh {
		g.now = moment{g.tight.volume, g.tight.first, after}
		g.tight = nil
	}
	g.offered += g.batch * g.octets
	if after-g.refused > meterPause {
		// A bucket holds the window's worth, or 16384 octets, and lets a packet
		// begin: whoever offers more is refused something.
		_, most := g.worth(g.refused, after)
		fastest := slices.MaxFunc(g.rates, func(a, b setting) int { return cmp.Compare(a.rate, b.rate) }).rate
		held := max(float64(fastest)*125*settings.DefaultRateBurst.Seconds(), 16384)
		if float64(g.offered) > 1.5*(most+held)+float64(2*g.batch*g.octets) {
			t.Fatalf("%s: %d octets in %v, and none was refused", g, g.offered, after-g.refused)
		}
		if g.begun != nil {
			g.restarts++
		}
		g.begun, g.tight, fresh = nil, nil, false
	}
	if refused {
		g.tight = &moment{volume: volume, first: before}
		g.offered, g.refused = 0, before
	}
	return fresh
}

// unpaid is what a meter may still owe for the time that just went: 4 ms, or what does
// not pay the packets with which two CPUs went beyond what was paid.
func (g *gauge) unpaid() float64 {
	_, most := g.worth(max(g.now.last-4*time.Millisecond, 0), g.now.last)
	return min(max(512, float64(2*g.octets)), most)
}

// measured says whether it is known well enough how much should have gone since
// the first moment.
func (g *gauge) measured() bool {
	if g.begun == nil {
		now := g.now
		g.begun = &now
		return false
	}
	least, _ := g.worth(g.begun.last, g.now.first)
	_, most := g.worth(g.begun.first, g.now.last)
	return g.now.first-g.begun.last > 300*time.Millisecond && most-least+g.unpaid() <= meterError*least
}

func (g *gauge) check(t *testing.T) {
	t.Helper()
	got := float64(g.now.volume - g.begun.volume)
	least, _ := g.worth(g.begun.last, g.now.first)
	_, most := g.worth(g.begun.first, g.now.last)
	t.Logf("%s: %.4f to %.4f of it in %v; %d restarts", g, got/most, got/least, g.now.last-g.begun.first, g.restarts)
	if got < least*(1-meterError) || got > most*(1+meterError) {
		t.Errorf("%s: %.0f octets, want %.0f to %.0f", g, got, least, most)
	}
}

// measure goes on until it is measured, and `ready` says so.
func (g *gauge) measure(t *testing.T, ready func() bool) {
	t.Helper()
	for begun := time.Now(); ; {
		if g.step(t) && g.measured() && ready() {
			g.check(t)
			return
		}
		if time.Since(begun) > meterPatience {
			t.Fatalf("%s: the machine did not let it be measured in %v; %d restarts", g, meterPatience, g.restarts)
		}
	}
}

func always() bool { return true }

// TestMeterRate holds rates of rules, of shared meters and of slices against the
// clock: within 1 %.
func TestMeterRate(t *testing.T) {
	d, n := sessionRig(t, Options{}), uint32(0)
	for _, kind := range meterKinds {
		for rate, sizes := range map[uint64][]int{100_000: {128, 1400}, 1_000_000: {700, 1400}} {
			for _, octets := range sizes {
				t.Run(fmt.Sprintf("%s, %d kbit/s, %d octets", kind, rate, octets), func(t *testing.T) {
					n++
					newGauge(t, newFlow(t, d, n, kind, octets, 32), rate).measure(t, always)
				})
			}
		}
	}
}

// TestSlowMeterRate does so where a packet of 1400 octets takes up to 175 ms: for
// all flows at the same time.
func TestSlowMeterRate(t *testing.T) {
	d := sessionRig(t, Options{})
	var open []*gauge
	for _, kind := range []string{"own rate", "shared meter"} {
		for _, rate := range []uint64{64, 1000} {
			for _, octets := range []int{64, 1400} {
				n := uint32(len(open) + 1)
				open = append(open, newGauge(t, newFlow(t, d, n, kind, octets, 16), rate))
			}
		}
	}
	for begun := time.Now(); len(open) > 0; time.Sleep(200 * time.Microsecond) {
		open = slices.DeleteFunc(open, func(g *gauge) bool {
			if !g.step(t) || !g.measured() {
				return false
			}
			g.check(t)
			return true
		})
		if time.Since(begun) > meterPatience {
			t.Fatalf("%v: the machine did not let them be measured", open)
		}
	}
}

// TestMeterRateOfTwoCPUs: two at once get no more, and no less.
func TestMeterRateOfTwoCPUs(t *testing.T) {
	d := sessionRig(t, Options{})
	for n, kind := range meterKinds {
		t.Run(kind, func(t *testing.T) {
			g := newGauge(t, newFlow(t, d, uint32(n+1), kind, 1400, 32), 1_000_000)
			var stop atomic.Bool
			var other sync.WaitGroup
			defer other.Wait()
			defer stop.Store(true)
			other.Go(func() {
				for !stop.Load() {
					g.offer(t)
				}
			})
			g.measure(t, always)
		})
	}
}

// TestMeterRateChanges: another rate counts from when it is set, and the bucket
// is not filled again.
func TestMeterRateChanges(t *testing.T) {
	d := sessionRig(t, Options{})
	for n, kind := range meterKinds {
		t.Run(kind, func(t *testing.T) {
			g := newGauge(t, newFlow(t, d, uint32(n+1), kind, 1400, 32), 50_000)
			rates, changed := []uint64{200_000, 100_000, 120_000, 50_000}, time.Now()
			g.measure(t, func() bool {
				if time.Since(changed) < 100*time.Millisecond {
					return false
				}
				since := slices.IndexFunc(g.rates, func(s setting) bool { return s.first > g.begun.last })
				if since >= 0 && len(g.rates)-since >= len(rates) {
					return true
				}
				g.set(t, rates[(len(g.rates)-1)%len(rates)])
				changed = time.Now()
				return false
			})
		})
	}
}

// TestLimitOfTwoCPUs: End.Limit lets both together go on with what a bucket holds
// and what the time was worth.
func TestLimitOfTwoCPUs(t *testing.T) {
	const octets, perSecond, held = 1000, 1e6, 1e5 // 8000 kbit/s, of which a bucket holds 100 ms
	d := sessionRig(t, Options{})
	must(t, d.SIDs.Put(srv6.LocalSID{
		SID: netip.MustParsePrefix("fc00:f::/64"), Behavior: srv6.EndLimit, GroupBits: 16, RateBits: 16,
	}))
	frame := packet.Frame(packet.Ethernet{}, packet.IPv6{Src: addr("fc00::1"), Dst: addr("fc00:f:0:0:1:1f40::")},
		packet.IPv6{Src: addr("fc00::1"), Dst: addr("fc00::2")}, packet.Payload{Count: octets - 80})
	var offered atomic.Int64
	var both sync.WaitGroup
	begun := time.Now()
	for range 2 {
		both.Go(func() {
			for time.Since(begun) < 2*time.Second {
				runEach(t, d, frame, 32)
				offered.Add(32)
			}
		})
	}
	both.Wait()
	worth := perSecond * time.Since(begun).Seconds()
	all, err := d.Outcomes()
	must(t, err)
	went := float64(octets) * float64(offered.Load()-int64(all[abi.ReasonREASON_LIMITED].Packets))
	t.Logf("%d packets offered; %.4f of the rate went, with what the bucket held", offered.Load(), went/(worth+held))
	// The last of it may not be paid yet, and each CPU lets a packet begin.
	if went > 1.002*(worth+held)+2*octets || went < 0.99*worth {
		t.Errorf("%.0f octets went, want %.0f and at most %.0f more", went, worth, float64(held))
	}
}
