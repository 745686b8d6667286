package slowpath

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// asking is a bench with neighbours that answer, or do not.
type asking struct {
	*bench
	asked []Neighbour
	known map[Neighbour]bool
}

func newAsking(o Options) *asking {
	a := &asking{known: map[Neighbour]bool{}}
	o.Resolve = func(n Neighbour) { a.asked = append(a.asked, n) }
	o.Resolved = func(n Neighbour) bool { return a.known[n] }
	a.bench = newBench(o)
	return a
}

// await hands up frames whose last byte is i, for the neighbour on interface 7.
func (a *asking) await(neighbour string, frames ...byte) {
	for _, i := range frames {
		data := append(make([]byte, 34), i)
		data[14], data[17] = 4<<4|5, 21 // from nobody that an error could go to
		a.Handle(Packet{
			Kind: AwaitNeighbour, Ifindex: 5, L3: 14, Data: data,
			NextHop: Neighbour{Ifindex: 7, Addr: netip.MustParseAddr(neighbour)},
		})
		clear(data) // the frame is not kept, a copy is
	}
}

func (a *asking) expect(t *testing.T, injected string, counters map[string]uint64) {
	t.Helper()
	last := []byte{}
	for i, f := range a.injected {
		if last = append(last, f[len(f)-1]); a.ifindex[i] != 5 {
			t.Errorf("frame %d was sent in on %d", i, a.ifindex[i])
		}
	}
	if hex.EncodeToString(last) != injected {
		t.Errorf("sent in: %x, want %s", last, injected)
	}
	for _, name := range []string{"neighbour_held", "neighbour_resolved", "neighbour_timeout", "neighbour_overflow", "malformed", "inject_failed"} {
		if got := a.count(name); got != counters[name] {
			t.Errorf("%s: %d, want %d", name, got, counters[name])
		}
	}
}

func TestFramesWaitForTheirNeighbour(t *testing.T) {
	a := newAsking(Options{})
	a.await("192.0.2.7", 1, 2)
	a.await("2001:db8::7", 3)
	a.Retry()
	a.expect(t, "", map[string]uint64{"neighbour_held": 3})
	want := Neighbour{7, netip.MustParseAddr("192.0.2.7")}
	if len(a.asked) != 3 || a.asked[0] != want {
		t.Errorf("asked for %v", a.asked)
	}
	a.known[want] = true
	a.Retry()
	a.Retry()
	a.expect(t, "0102", map[string]uint64{"neighbour_held": 3, "neighbour_resolved": 2})
}

// A frame for a destination without a link is sent in once: the data path may have no route for
// what the kernel has resolved.
func TestDestinationsAreTriedOnce(t *testing.T) {
	a := newAsking(Options{})
	to := Neighbour{Addr: netip.MustParseAddr("192.0.2.9")}
	hand := func(i byte) {
		data := append(make([]byte, 34), i)
		data[14], data[17] = 4<<4|5, 21
		a.Handle(Packet{Kind: AwaitNeighbour, Ifindex: 5, L3: 14, Data: data, NextHop: to})
	}
	hand(1)
	a.known[to] = true
	a.Retry()
	hand(2) // the same again
	a.Retry()
	a.expect(t, "01", map[string]uint64{"neighbour_held": 1, "neighbour_resolved": 1, "neighbour_overflow": 1})
	a.now = a.now.Add(notAgain)
	a.Retry()
	hand(3)
	a.Retry()
	a.expect(t, "0103", map[string]uint64{"neighbour_held": 2, "neighbour_resolved": 2, "neighbour_overflow": 1})
}

func TestFramesDoNotWaitForever(t *testing.T) {
	a := newAsking(Options{})
	a.await("192.0.2.7", 1)
	a.now = a.now.Add(holdTime / 2)
	a.await("192.0.2.7", 2)
	a.now = a.now.Add(holdTime/2 - time.Nanosecond)
	a.Retry()
	a.expect(t, "", map[string]uint64{"neighbour_held": 2})
	a.now = a.now.Add(time.Nanosecond)
	a.Retry()
	a.expect(t, "", map[string]uint64{"neighbour_held": 2, "neighbour_timeout": 1})
	a.now = a.now.Add(holdTime)
	a.Retry()
	a.expect(t, "", map[string]uint64{"neighbour_held": 2, "neighbour_timeout": 2})
	if len(a.waiting.frames) != 0 {
		t.Errorf("left: %v", a.waiting.frames)
	}
}

func TestWaitingFramesAreBounded(t *testing.T) {
	a := newAsking(Options{MaxNeighbours: 2})
	var want []byte
	for i := range byte(framesANeighbour + 1) {
		a.await("192.0.2.7", i)
		want = append(want, i)
	}
	a.await("192.0.2.8", 205)
	a.await("192.0.2.9", 206) // one neighbour too many
	a.await("192.0.2.8", 207)
	for i := range 3 {
		a.known[Neighbour{7, netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 7+i))}] = true
		a.Retry()
	}
	injected := hex.EncodeToString(append(want[1:], 205, 207)) // all but the oldest
	a.expect(t, injected, map[string]uint64{"neighbour_held": 104, "neighbour_resolved": 103, "neighbour_overflow": 2})
	a.Handle(Packet{Kind: AwaitNeighbour, Ifindex: 5, L3: 14, Data: make([]byte, 40)})
	a.expect(t, injected, map[string]uint64{"neighbour_held": 104, "neighbour_resolved": 103, "neighbour_overflow": 2, "malformed": 1})
}

// However many neighbours there are, what waits for them occupies so much; what
// goes, for whichever reason, makes room.
func TestWaitingBytesAreBounded(t *testing.T) {
	const size = 2048
	a := newAsking(Options{})
	fill := func() (taken uint64) {
		before := a.count("neighbour_held")
		for i := range waitingBytes/size + 2 {
			a.Handle(Packet{Kind: AwaitNeighbour, Ifindex: 5, L3: 14, Data: make([]byte, size),
				NextHop: Neighbour{7, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}})
		}
		return a.count("neighbour_held") - before
	}
	if taken := fill(); taken != waitingBytes/size || a.count("neighbour_overflow") != 2 {
		t.Errorf("%d taken, %d not", taken, a.count("neighbour_overflow"))
	}
	a.now = a.now.Add(holdTime)
	a.Retry()
	if taken := fill(); taken != waitingBytes/size || a.waiting.bytes != waitingBytes {
		t.Errorf("then %d taken, %d bytes", taken, a.waiting.bytes)
	}
	for i := range 256 {
		a.known[Neighbour{7, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}] = true
	}
	if a.Retry(); a.waiting.bytes != 0 {
		t.Errorf("%d bytes are left", a.waiting.bytes)
	}
}

// Who sent a packet to a neighbour that does not answer hears of it as from
// Linux: host unreachable, address unreachable.
func TestSenderHearsOfSilentNeighbours(t *testing.T) {
	outer6, inner4 := whole6(t, 100), whole4(t, 8)
	outer6[20] = protocolIPv4
	decapsulated := append(bytes.Clone(outer6[:54]), inner4[14:]...)
	a := newAsking(Options{ErrorsPerSecond: 3})
	for _, p := range []Packet{
		{Ifindex: 5, L3: 54, Table: 100, Data: decapsulated},
		{Ifindex: 6, L3: 14, Table: 100, Data: whole6(t, 100)},
		{Ifindex: 7, L3: 14, Table: 100, Data: whole4(t, 1900)},
		{Ifindex: 8, L3: 14, Table: 100, Data: whole4(t, 100)}, // one too many
	} {
		p.Kind, p.NextHop = AwaitNeighbour, Neighbour{p.Ifindex, b4}
		a.Handle(p)
	}
	a.now = a.now.Add(holdTime - time.Nanosecond)
	a.Retry()
	if len(a.sent) != 0 {
		t.Fatalf("%d sent before their time", len(a.sent))
	}
	a.now = a.now.Add(time.Nanosecond)
	a.Retry()
	a.Retry()
	a.expect(t, "", map[string]uint64{"neighbour_held": 4, "neighbour_timeout": 4})
	if a.count("icmp_sent") != 3 || a.count("icmp_limited") != 1 {
		t.Errorf("%d sent, %d limited", a.count("icmp_sent"), a.count("icmp_limited"))
	}
	// They come in any order: one per interface, none of the last.
	want := map[int]string{
		5: "192.0.2.1\t\t3\t1\t\t", 6: "\t2001:db8::1\t\t\t1\t3",
		7: "192.0.2.1\t\t3\t1\t\t", 8: "192.0.2.1\t\t3\t1\t\t",
	}
	for i, line := range tshark(t, a.sent, "ip.dst", "ipv6.dst", "icmp.type", "icmp.code", "icmpv6.type", "icmpv6.code") {
		w := a.ways[i]
		if inside := w.Ifindex == 5; line != want[w.Ifindex] || inside != (w.Back == nil) || w.Table != 100 {
			t.Errorf("%q by %+v, want %q", line, w, want[w.Ifindex])
		}
	}
}

// Without somebody who resolves, a frame waits in vain and is counted.
func TestNobodyResolves(t *testing.T) {
	b := newBench(Options{})
	b.handle(Packet{Kind: AwaitNeighbour, L3: 14, Data: make([]byte, 40), NextHop: Neighbour{7, a4}})
	b.now = b.now.Add(holdTime)
	b.Retry()
	if b.count("neighbour_timeout") != 1 || len(b.injected) != 0 {
		t.Errorf("%d timeouts, %d sent in", b.count("neighbour_timeout"), len(b.injected))
	}
}

// An error goes back where the packet came from; about a packet that was inside
// another it goes by the table.
func TestWaysOfErrors(t *testing.T) {
	tagged, plain := whole4(t, 100, 100, 7), whole6(t, 100)
	inside := append(bytes.Clone(plain[:54]), tagged[22:]...)
	inside[20] = protocolIPv4
	b := newBench(Options{})
	b.handle(
		Packet{Kind: ICMPError, Ifindex: 5, L3: 22, Type: timeExceeded, Table: 254, Data: tagged},
		Packet{Kind: ICMPError, Ifindex: 6, L3: 14, Type: timeExceeded, Table: 100, Data: plain},
		Packet{Kind: ICMPError, Ifindex: 6, L3: 54, Type: timeExceeded, Table: 100, Data: inside},
		part(plain, 14, 0, 80, 9),
	)
	b.now = b.now.Add(time.Minute)
	b.Expire()
	want := []struct {
		ifindex int
		back    string
		table   uint32
	}{
		{5, "020000000001" + "020000000002" + "81000064" + "81000007" + "0800", 254},
		{6, "020000000001" + "020000000002" + "86dd", 100},
		{6, "", 100},
		{5, "020000000001" + "020000000002" + "86dd", 0},
	}
	if len(b.ways) != len(want) {
		t.Fatalf("%d sent, want %d", len(b.ways), len(want))
	}
	for i, w := range b.ways {
		if w.Ifindex != want[i].ifindex || hex.EncodeToString(w.Back) != want[i].back || w.Table != want[i].table {
			t.Errorf("way %d: %+v, want %+v", i, w, want[i])
		}
	}
}

func TestNoErrorToGroupsOnTheLink(t *testing.T) {
	for name, at := range map[string]int{"destination": 0, "source": 6} {
		frame := whole4(t, 8)
		frame[at] |= 1
		b := newBench(Options{})
		b.handle(Packet{Kind: ICMPError, L3: 14, Type: timeExceeded, Data: frame})
		if len(b.sent) != 0 || b.count("icmp_suppressed") != 1 {
			t.Errorf("group as %s: %d sent", name, len(b.sent))
		}
	}
	none := whole4(t, 8)
	clear(none[6:12])
	b := newBench(Options{})
	b.handle(Packet{Kind: ICMPError, L3: 14, Type: timeExceeded, Data: none})
	if len(b.sent) != 0 || b.count("icmp_suppressed") != 1 {
		t.Errorf("source of zeros: %d sent", len(b.sent))
	}
}

func TestNoWayBackIsCounted(t *testing.T) {
	b := newBench(Options{})
	b.fail = fmt.Errorf("to 192.0.2.1: %w", ErrNoRoute)
	b.handle(Packet{Kind: ICMPError, L3: 14, Type: timeExceeded, Data: whole4(t, 8)})
	if b.count("icmp_no_route") != 1 || b.count("send_failed") != 0 || b.count("icmp_sent") != 0 {
		t.Errorf("%d without a route, %d failed", b.count("icmp_no_route"), b.count("send_failed"))
	}
}
