package liveness

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/testutil/tshark"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

var (
	sid    = netip.MustParseAddr("fc00:0:1:f::")
	source = netip.MustParseAddr("2001:db8::1")
)

// fakeLink returns what is sent at once, as routers would. What goes by a segment that is cut is lost.
type fakeLink struct {
	cut     map[netip.Addr]bool
	arrived [][]byte
	sent    [][]byte
	err     error
}

func (f *fakeLink) send(b []byte, _ netip.Addr) error {
	if f.err != nil {
		return f.err
	}
	f.sent = append(f.sent, b)
	for a := range f.cut {
		if bytes.Contains(b[40:], a.AsSlice()) {
			return nil
		}
	}
	back := bytes.Clone(b)
	copy(back[24:], sid.AsSlice())
	back[43] = 0
	f.arrived = append(f.arrived, back)
	return nil
}

func (f *fakeLink) receive() ([]byte, time.Time) {
	if len(f.arrived) == 0 {
		return nil, time.Time{}
	}
	b := f.arrived[0]
	f.arrived = f.arrived[1:]
	return b, time.Now()
}

func (f *fakeLink) close() error { return nil }

// rig is a prober without sockets, and what it reported last.
type rig struct {
	*Prober
	*fakeLink
	now  time.Time
	dead map[string]string
}

func newRig() *rig {
	r := &rig{fakeLink: &fakeLink{cut: map[netip.Addr]bool{}}, now: time.Now()}
	r.Prober = newProber(Config{
		SID: sid, Source: source, Interval: 10 * time.Millisecond, Multiplier: 3, Log: slog.Default(),
		Changed: func(dead map[string]string) { r.dead = dead },
	}, r.fakeLink)
	return r
}

// pass is rounds for a time.
func (r *rig) pass(d time.Duration) {
	for end := r.now.Add(d); r.now.Before(end); {
		next := r.round(r.now)
		r.now = r.now.Add(next)
		for _, t := range r.targets { // this clock, not the machine's
			for i := range t.sent {
				if t.sent[i].After(r.now.Add(-next)) {
					t.sent[i] = r.now.Add(-next)
				}
			}
		}
	}
}

func (r *rig) isDead() []string { return slices.Sorted(maps.Keys(r.dead)) }

var (
	viaA = Target{"a", addrs("fc00:0:a::", "fc00:0:9:1::")}
	viaB = Target{"b", addrs("fc00:0:b::", "fc00:0:9:1::")}
)

func TestProber(t *testing.T) {
	r := newRig()
	r.Set([]Target{viaA, viaB})
	r.pass(time.Second)
	if len(r.dead) > 0 || len(r.sent) < 180 || len(r.sent) > 220 {
		t.Fatalf("dead %v after %d probes", r.dead, len(r.sent))
	}
	r.cut[viaA.Path[0]] = true
	r.pass(60 * time.Millisecond)
	if got := r.isDead(); !slices.Equal(got, []string{"a"}) || !strings.Contains(r.dead["a"], "no probe returns") {
		t.Errorf("dead %v", r.dead)
	}
	r.cut[viaB.Path[0]] = true // now none returns: is it the way back?
	r.pass(time.Second)
	if got := r.isDead(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("dead %v, and nothing returns", r.dead)
	}
	clear(r.cut)
	r.pass(time.Second)
	if len(r.dead) > 0 {
		t.Errorf("dead %v after all is mended", r.dead)
	}
	r.err = errors.New("network is unreachable")
	r.Set([]Target{viaA})
	r.pass(time.Second)
	if why := r.dead["a"]; why != "no probe can be sent: network is unreachable" {
		t.Errorf("dead because %q", why)
	}
	r.Set(nil)
	r.pass(20 * time.Millisecond)
	if len(r.dead) > 0 || len(r.Status()) > 0 {
		t.Errorf("dead %v, of nothing", r.dead)
	}
}

// Somebody who sees no probe can make none, and a probe that is sent again is none.
func TestForgery(t *testing.T) {
	r := newRig()
	r.Set([]Target{viaA, viaB})
	r.pass(time.Second)
	r.cut[viaA.Path[0]] = true
	other := newRig() // which has another key
	other.Set([]Target{viaA, viaB})
	old := bytes.Clone(r.sent[len(r.sent)-10])
	for range 30 {
		other.pass(10 * time.Millisecond)
		r.arrived = append(r.arrived, other.sent...)
		r.arrived = append(r.arrived, old, old[:60], bytes.Repeat([]byte{0x60}, 200), nil)
		r.pass(10 * time.Millisecond)
	}
	if got := r.isDead(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("dead %v: forged probes keep it alive", r.dead)
	}
}

// A round of many lists is as long as all of their probes may take.
func TestManyLists(t *testing.T) {
	r := newRig()
	var many []Target
	for i := range 1000 {
		many = append(many, Target{string(rune('a' + i)), addrs("fc00:0:a::")})
	}
	r.Set(many)
	if got := 2 * r.round(r.now); got != 50*time.Millisecond {
		t.Errorf("1000 lists are probed every %s", got)
	}
}

func FuzzRead(f *testing.F) {
	key := []byte("key")
	b := probe{1, 2, 3}.packet(key, source, viaA.Path, sid)
	f.Add(b)
	f.Add(b[:50])
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := read(b, key); ok && p != (probe{1, 2, 3}) {
			t.Errorf("a probe that nobody sent: %+v", p)
		}
	})
}

// What leaves is right to somebody else, too.
func TestTshark(t *testing.T) {
	b := probe{1, 2, 3}.packet([]byte("key"), source, viaA.Path, sid)
	out := tshark.Read(t, tshark.Packets(t, [][]byte{b}), "-o", "udp.check_checksum:TRUE", "-T", "fields",
		"-e", "ipv6.dst", "-e", "ipv6.tclass.dscp", "-e", "ipv6.routing.segleft", "-e", "ipv6.routing.srh.last_entry", "-e", "ipv6.routing.srh.addr", "-e", "udp.dstport", "-e", "udp.checksum.status", "-e", "_ws.malformed")
	want := "fc00:0:a::\t48\t2\t2\tfc00:0:1:f::,fc00:0:9:1::,fc00:0:a::\t55862\t1\t\n"
	if out != want {
		t.Errorf("tshark reads %q, want %q", out, want)
	}
}
