package agent

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// delayLine is the link between a and the end of a diamond. What a sends takes time on it.
type delayLine struct {
	delay, jitter atomic.Int64 // nanoseconds; up to jitter is added
	data          atomic.Int64 // packets of flows that a sent
	ended         atomic.Bool
	running       sync.WaitGroup
}

// newDelayLine puts a delay line in the place of the veth pair.
func newDelayLine(t *testing.T, d *diamond) *delayLine {
	t.Helper()
	l, wire := &delayLine{}, netns.New(t)
	d.a.IP(t, "link del ae")
	join := func(ns *netns.NS, name, address, at string) int {
		_, end := netns.Veth(t, ns, name, wire, at)
		wire.Sysctl(t, "net.ipv6.conf."+at+".disable_ipv6", "1")
		ns.Addr(t, name, address)
		ns.Sysctl(t, "net.ipv6.conf."+name+".seg6_enabled", "1")
		ns.Run(t, "ethtool", "-K", name, "tx", "off", "gro", "off")
		return packetSocket(t, wire, end.Index)
	}
	a, end := join(d.a, "ae", "fc00:ae::1/64", "wa"), join(d.end, "ea", "fc00:ae::2/64", "we")
	d.a.IP(t, "-6 route replace fc00:e::/48 via fc00:ae::2")
	d.a.IP(t, "-6 route replace fc00:a:0:1::/128 encap seg6local action End dev ae")
	for _, fd := range []int{a, end} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
			t.Fatal(err)
		}
	}
	l.running.Go(func() { l.carry(a, end, l.takes) })
	l.running.Go(func() { l.carry(end, a, func([]byte) time.Duration { return 0 }) })
	t.Cleanup(func() {
		l.ended.Store(true)
		l.running.Wait()
	})
	return l
}

// takes is how long a frame is on its way to the end.
func (l *delayLine) takes(frame []byte) time.Duration {
	const class, next, srh, ipv6 = 14, 20, 43, 41
	if len(frame) > next && frame[class] == 0x60 && (frame[next] == srh || frame[next] == ipv6) { // probes have class CS6
		l.data.Add(1)
	}
	d := l.delay.Load()
	if j := l.jitter.Load(); j > 0 {
		d += rand.Int64N(j)
	}
	return time.Duration(d)
}

// carry hands on frames, in their order.
func (l *delayLine) carry(from, to int, takes func([]byte) time.Duration) {
	type timed struct {
		due   time.Time
		frame []byte
	}
	queue := make(chan timed, 1<<16)
	l.running.Go(func() {
		for n := 1; ; n++ {
			f, more := <-queue
			if !more {
				return
			}
			time.Sleep(time.Until(f.due))
			if n%64 == 0 { // what is late does not come all at once: a veth's queue holds 256 packets
				time.Sleep(time.Millisecond)
			}
			_, _ = unix.Write(to, f.frame)
		}
	})
	defer close(queue)
	buffer := make([]byte, 9000)
	for !l.ended.Load() {
		n, err := unix.Read(from, buffer)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
			continue
		}
		if err != nil {
			return
		}
		frame := append([]byte(nil), buffer[:n]...)
		queue <- timed{time.Now().Add(takes(frame)), frame}
	}
}

// took counts the packets of flows that took the line while others ran, of all that were sent. None may be lost.
func (d *diamond) took(t *testing.T, l *delayLine, when string, while func()) (took, sent int) {
	t.Helper()
	f := d.flows(t)
	before := l.data.Load()
	while()
	took = int(l.data.Load() - before)
	sent, lost, until := f.end(time.Now())
	t.Logf("%s: %d of %d packets took the slow link, %d were lost", when, took, sent, lost)
	if lost > 0 {
		t.Errorf("%s: %d of %d packets are lost, the last %s before the end", when, lost, sent, -until)
	}
	return took, sent
}

func rest() { time.Sleep(time.Second) }

// boundDiamond is a diamond whose policy has a bound of 60 ms, and a way that can be slow. Its
// daemon has measured all lists. It is patient: no list is dead, nor slow, because this machine
// is busy.
func boundDiamond(t *testing.T, file string) (*diamond, *delayLine, *daemonProcess) {
	t.Helper()
	d := newDiamond(t, strings.NewReplacer(
		"name: both", "name: both\n    delay_bound: 60ms",
		"enabled: true", "enabled: true\n  multiplier: 50").Replace(file))
	l := newDelayLine(t, d)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := d.daemon(t, binary)
	p.says(t, "probes segment lists")
	rest()
	return d, l, p
}

// Packets leave a list whose round trip grows above the bound, and lose nothing; they return some
// time after it is below. Round trips that jitter around the bound move nothing more.
func TestDelayBoundMovesPackets(t *testing.T) {
	d, l, p := boundDiamond(t, diamondFile)
	if took, sent := d.took(t, l, "within the bound", rest); took < sent/4 || took > 3*sent/4 {
		t.Errorf("%d of %d packets took one of two lists", took, sent)
	}
	d.took(t, l, "it is slow from now on", func() {
		l.delay.Store(int64(160 * time.Millisecond))
		p.says(t, "event=segment_list.slow")
		rest()
	})
	if took, _ := d.took(t, l, "above the bound", rest); took > 0 {
		t.Errorf("%d packets took a list above the bound", took)
	}
	l.delay.Store(int64(40 * time.Millisecond))
	l.jitter.Store(int64(40 * time.Millisecond))
	lines := strings.Count(p.log.String(), "event=segment_list.")
	if took, _ := d.took(t, l, "around the bound", func() { time.Sleep(5 * time.Second) }); took > 0 {
		t.Errorf("%d packets took a list whose round trip is about the bound", took)
	}
	if n := strings.Count(p.log.String(), "event=segment_list."); n > lines {
		t.Errorf("the list moved %d times:\n%s", n-lines, p.log)
	}
	d.took(t, l, "fast again", func() {
		l.delay.Store(0)
		l.jitter.Store(0)
		time.Sleep(13 * time.Second)
	})
	if took, sent := d.took(t, l, "within the bound again", rest); took < sent/4 {
		t.Errorf("%d of %d packets took one of two lists:\n%s", took, sent, p.log)
	}
}

// A candidate path without a list within its bound gives way to the next one.
func TestDelayBoundMovesPath(t *testing.T) {
	d, l, p := boundDiamond(t, protectedFile)
	if took, sent := d.took(t, l, "within the bound", rest); took < 9*sent/10 {
		t.Errorf("%d of %d packets took the preferred path", took, sent)
	}
	d.took(t, l, "it is slow from now on", func() {
		l.delay.Store(int64(160 * time.Millisecond))
		p.says(t, "path=spare")
		rest()
	})
	if took, _ := d.took(t, l, "above the bound", rest); took > 0 {
		t.Errorf("%d packets took a path above the bound", took)
	}
	if n := strings.Count(p.log.String(), "event=policy.path_changed"); n != 1 {
		t.Errorf("the path changed %d times:\n%s", n, p.log)
	}
}
