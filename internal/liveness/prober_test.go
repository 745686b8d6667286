package liveness

import (
	"bytes"
	"encoding/binary"
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
	path    func(label uint32) netip.Addr // where a flow goes that has several equal paths
	late    map[netip.Addr]time.Duration
	arrived [][]byte
	times   []time.Time // of arrival, of the first ones of arrived
	sent    [][]byte
	err     error
}

func (f *fakeLink) send(b []byte, _ netip.Addr) error {
	if f.err != nil {
		return f.err
	}
	f.sent = append(f.sent, b)
	for a := range f.cut {
		if bytes.Contains(b[40:], a.AsSlice()) || f.path != nil && f.path(binary.BigEndian.Uint32(b)&0xfffff) == a {
			return nil
		}
	}
	var late time.Duration
	for a, d := range f.late {
		if bytes.Contains(b[40:], a.AsSlice()) {
			late = d
		}
	}
	back := bytes.Clone(b)
	copy(back[24:], sid.AsSlice())
	back[43] = 0
	f.arrived, f.times = append(f.arrived, back), append(f.times, time.Now().Add(late))
	return nil
}

func (f *fakeLink) receive() ([]byte, time.Time) {
	if len(f.arrived) == 0 {
		return nil, time.Time{}
	}
	b := f.arrived[0]
	f.arrived = f.arrived[1:]
	if len(f.times) == 0 {
		return b, time.Now()
	}
	at := f.times[0]
	f.times = f.times[1:]
	return b, at
}

func (f *fakeLink) close() error { return nil }

// rig is a prober without sockets, and what it reported last.
type rig struct {
	*Prober
	*fakeLink
	now   time.Time
	found Found
}

func newRig() *rig {
	r := &rig{fakeLink: &fakeLink{cut: map[netip.Addr]bool{}}, now: time.Now()}
	r.Prober = newProber(Config{
		SID: sid, Source: source, Interval: 10 * time.Millisecond, Multiplier: 3, Log: slog.Default(),
		Changed: func(f Found) { r.found = f },
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

func (r *rig) isDead() []string { return slices.Sorted(maps.Keys(r.found.Dead)) }

var (
	viaA = Target{"a", addrs("fc00:0:a::", "fc00:0:9:1::")}
	viaB = Target{"b", addrs("fc00:0:b::", "fc00:0:9:1::")}
)

func TestProber(t *testing.T) {
	r := newRig()
	r.Set([]Target{viaA, viaB}, nil)
	r.pass(time.Second)
	if len(r.found.Dead) > 0 || len(r.sent) < 180 || len(r.sent) > 220 {
		t.Fatalf("dead %v after %d probes", r.found.Dead, len(r.sent))
	}
	r.cut[viaA.Path[0]] = true
	r.pass(60 * time.Millisecond)
	if got := r.isDead(); !slices.Equal(got, []string{"a"}) || !strings.Contains(r.found.Dead["a"], "no probe returns") {
		t.Errorf("dead %v", r.found.Dead)
	}
	r.cut[viaB.Path[0]] = true // now none returns: is it the way back?
	r.pass(time.Second)
	if got := r.isDead(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("dead %v, and nothing returns", r.found.Dead)
	}
	clear(r.cut)
	r.pass(time.Second)
	if len(r.found.Dead) > 0 {
		t.Errorf("dead %v after all is mended", r.found.Dead)
	}
	r.err = errors.New("network is unreachable")
	r.Set([]Target{viaA}, nil)
	r.pass(time.Second)
	if why := r.found.Dead["a"]; why != "no probe can be sent: network is unreachable" {
		t.Errorf("dead because %q", why)
	}
	r.Set(nil, nil)
	r.pass(20 * time.Millisecond)
	if len(r.found.Dead) > 0 || len(r.Status()) > 0 {
		t.Errorf("dead %v, of nothing", r.found.Dead)
	}
}

// A list is dead if one of several equal paths is, for flows that routers lead there are lost. It
// lives again when probes of all its flows return. All paths at once are found as soon as ever.
func TestEqualPaths(t *testing.T) {
	r := newRig()
	equal := addrs("fe80::1", "fe80::2")
	r.path = func(label uint32) netip.Addr { return equal[label%2] }
	r.Set([]Target{viaA}, nil)
	r.pass(time.Second)
	if len(r.found.Dead) > 0 {
		t.Fatalf("dead %v without a cut", r.found.Dead)
	}
	for _, one := range equal {
		r.cut[one] = true
		r.pass(100 * time.Millisecond) // two flows and a bit
		if got := r.isDead(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("dead %v while %s is cut", got, one)
		}
		r.pass(time.Second)
		if got := r.isDead(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("dead %v later, while %s is cut", got, one)
		}
		delete(r.cut, one)
		r.pass(300 * time.Millisecond)
		if len(r.found.Dead) > 0 {
			t.Errorf("dead %v after %s is mended", r.found.Dead, one)
		}
	}
	r.cut[equal[0]], r.cut[equal[1]] = true, true
	if r.pass(60 * time.Millisecond); len(r.found.Dead) == 0 {
		t.Error("it lives where all paths are cut")
	}
}

// The delay of probes decides among the lists of a choice. Nothing changes where the way back may
// be at fault, and what nobody chooses any more has no standing.
func TestProberChooses(t *testing.T) {
	r := newRig()
	r.late = map[netip.Addr]time.Duration{viaA.Path[0]: 20 * time.Millisecond}
	bound := Choice{Key: "p", Lists: []string{"a", "b"}, Bound: 15 * time.Millisecond}
	r.Set([]Target{viaA, viaB}, []Choice{bound, {Key: "q", Lists: []string{"a"}}})
	r.pass(time.Second)
	want := map[string]map[string]Standing{"p": {"a": {Above: true}}}
	if len(r.found.Dead) > 0 || !maps.EqualFunc(r.found.Standings, want, maps.Equal) {
		t.Fatalf("found %+v, want %+v", r.found, want)
	}
	r.cut[viaA.Path[0]], r.cut[viaB.Path[0]] = true, true
	r.pass(time.Second)
	if len(r.found.Dead) > 0 || !maps.EqualFunc(r.found.Standings, want, maps.Equal) {
		t.Errorf("found %+v, and nothing returns", r.found)
	}
	clear(r.cut)
	r.Set([]Target{viaA, viaB}, nil)
	r.pass(time.Second)
	if len(r.found.Dead) > 0 || len(r.found.Standings) > 0 {
		t.Errorf("found %+v, and nothing is chosen", r.found)
	}
}

// Somebody who sees no probe can make none, and a probe that is sent again is none.
func TestForgery(t *testing.T) {
	r := newRig()
	r.Set([]Target{viaA, viaB}, nil)
	r.pass(time.Second)
	r.cut[viaA.Path[0]] = true
	other := newRig() // which has another key
	other.Set([]Target{viaA, viaB}, nil)
	old := bytes.Clone(r.sent[len(r.sent)-10])
	for range 30 {
		other.pass(10 * time.Millisecond)
		r.arrived = append(r.arrived, other.sent...)
		r.arrived = append(r.arrived, old, old[:60], bytes.Repeat([]byte{0x60}, 200), nil)
		r.pass(10 * time.Millisecond)
	}
	if got := r.isDead(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("dead %v: forged probes keep it alive", r.found.Dead)
	}
}

// A round of many lists is as long as all of their probes may take.
func TestManyLists(t *testing.T) {
	r := newRig()
	var many []Target
	for i := range 1000 {
		many = append(many, Target{string(rune('a' + i)), addrs("fc00:0:a::")})
	}
	r.Set(many, nil)
	if got := 2 * r.round(r.now); got != 50*time.Millisecond {
		t.Errorf("1000 lists are probed every %s", got)
	}
}

func FuzzRead(f *testing.F) {
	key := []byte("key")
	b := probe{1, 2, 3}.packet(key, 4, source, viaA.Path, sid)
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
	b := probe{1, 2, 3}.packet([]byte("key"), 4, source, viaA.Path, sid)
	out := tshark.Read(t, tshark.Packets(t, [][]byte{b}), "-o", "udp.check_checksum:TRUE", "-T", "fields",
		"-e", "ipv6.dst", "-e", "ipv6.tclass.dscp", "-e", "ipv6.routing.segleft", "-e", "ipv6.routing.srh.last_entry", "-e", "ipv6.routing.srh.addr", "-e", "udp.dstport", "-e", "udp.checksum.status", "-e", "_ws.malformed")
	want := "fc00:0:a::\t48\t2\t2\tfc00:0:1:f::,fc00:0:9:1::,fc00:0:a::\t55862\t1\t\n"
	if out != want {
		t.Errorf("tshark reads %q, want %q", out, want)
	}
}
