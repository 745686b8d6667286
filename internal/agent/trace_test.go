package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/session"
)

// gtpFrame is a G-PDU over IPv4, without anything in it.
func gtpFrame(teid uint32) []byte {
	b := make([]byte, 14+20+8+8)
	copy(b[12:], []byte{8, 0, 0x45, 0, 0, 36})
	b[14+8], b[14+9] = 64, 17
	binary.BigEndian.PutUint16(b[36:], 2152)
	binary.BigEndian.PutUint16(b[38:], 16)
	b[42], b[43] = 0x30, 255
	binary.BigEndian.PutUint32(b[46:], teid)
	return b
}

func reasonOf(tb testing.TB, name string) reason.Reason {
	tb.Helper()
	for _, r := range reason.All() {
		if r.String() == name {
			return r
		}
	}
	tb.Fatalf("no reason %s", name)
	return 0
}

func TestTrace(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	teid := uint32(7)
	got := make(chan TraceEvent, 10)
	done := make(chan error, 1)
	go func() {
		done <- d.Trace(ctx, TraceFilter{
			Interface: "eth1", Destination: prefix("192.0.2.0/24"), Drops: true, TEID: &teid, SID: prefix("fc00:1::/48"),
		}, func(e TraceEvent) error { got <- e; return nil })
	}()
	sid := prefix("fc00:1:0:1::/64")
	for _, e := range []event.TraceEvent{
		{SID: sid, In: gtpFrame(8)},
		{SID: prefix("fc00:2::/64"), In: gtpFrame(7)},
		{In: gtpFrame(7)},
		{SID: sid, In: gtpFrame(8), Out: gtpFrame(7), Ifindex: 2, Egress: 9, Policy: "south", List: 1, Verdict: "XDP_DROP",
			Reason: reasonOf(t, "hop_limit"), Adjacency: adjacency.Key{Interface: "eth0"}},
	} {
		d.dp.traced <- e
	}
	e := <-got
	d.dp.traced <- event.TraceEvent{SID: sid, In: gtpFrame(7), Out: gtpFrame(7), InLength: 90, OutLength: 90, Ifindex: 2, Reason: reason.Passed}
	if passed := <-got; passed.Reason != "passed" || passed.Out != nil || passed.OutLength != 0 || passed.InLength != 90 {
		t.Errorf("a packet that the kernel gets as it came: %+v, and nothing was sent", passed)
	}
	if len(got) > 0 || e.Interface != "eth1" || e.Egress != "#9" || e.Reason != "hop_limit" || !e.Drop || e.Text == "" ||
		e.Adjacency != "dev eth0" || e.Verdict != "XDP_DROP" || len(e.SegmentList) != 1 || e.SegmentList[0] != netip.MustParseAddr("fc00:4:0:1::") {
		t.Errorf("the event is %+v, %d more", e, len(got))
	}
	d.dp.mu.Lock()
	if f := d.dp.filter; f == nil || f.Ifindex != 2 || !f.DropsOnly || f.Destination != prefix("192.0.2.0/24") {
		t.Errorf("the data path's filter is %+v", f)
	}
	d.dp.mu.Unlock()
	if err := d.Trace(ctx, TraceFilter{}, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("a second trace: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the trace ended: %v", err)
	}
	if d.dp.filter != nil {
		t.Error("the data path goes on tracing")
	}
}

// ipFrame is an IPv4 packet without anything in it.
func ipFrame(source, destination string) []byte {
	b := make([]byte, 14+20)
	copy(b[12:], []byte{8, 0, 0x45, 0, 0, 20})
	b[14+8], b[14+9] = 64, 17
	copy(b[26:], netip.MustParseAddr(source).AsSlice())
	copy(b[30:], netip.MustParseAddr(destination).AsSlice())
	return b
}

// tpdu is a G-PDU with a packet in it.
func tpdu(packet []byte) []byte {
	b := append(gtpFrame(7), packet[14:]...)
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	binary.BigEndian.PutUint16(b[38:], uint16(len(b)-34))
	binary.BigEndian.PutUint16(b[44:], uint16(len(b)-50))
	return b
}

// A packet is a UE's by its session, whatever addresses it has then: others behind a NAT, those of
// framed routes. One that met no session is a UE's by an address.
func TestTraceOfUE(t *testing.T) {
	ue, seid := netip.MustParseAddr("10.45.0.1"), uint64(3)
	mine := &session.Session{SEID: 3, UserID: "imsi-001010000000001", PDRs: []session.PDR{{PDI: session.PDI{
		UE: []netip.Prefix{prefix("10.45.0.1/32")}, FramedRoutes: []netip.Prefix{prefix("192.168.7.0/24")},
	}}}}
	other := &session.Session{SEID: 4, UserID: "imsi-901010000000001", PDRs: []session.PDR{{PDI: session.PDI{UE: []netip.Prefix{prefix("10.45.0.2/32")}}}}}
	for name, c := range map[string]struct {
		filter TraceFilter
		event  TraceEvent
		of     *session.Session
		want   bool
	}{
		"its session, translated":      {TraceFilter{UE: ue}, TraceEvent{Session: 3, In: ipFrame("198.51.100.1", "203.0.113.1")}, mine, true},
		"another's, to it":             {TraceFilter{UE: ue}, TraceEvent{Session: 4, In: ipFrame("10.45.0.2", "10.45.0.1")}, other, false},
		"its framed route":             {TraceFilter{UE: netip.MustParseAddr("192.168.7.9")}, TraceEvent{Session: 3}, mine, true},
		"no session, inner source":     {TraceFilter{UE: ue}, TraceEvent{In: tpdu(ipFrame("10.45.0.1", "203.0.113.1"))}, nil, true},
		"no session, outer":            {TraceFilter{UE: ue}, TraceEvent{In: ipFrame("203.0.113.1", "10.45.0.1")}, nil, true},
		"no session, another's":        {TraceFilter{UE: ue}, TraceEvent{In: tpdu(ipFrame("10.45.0.11", "203.0.113.1"))}, nil, false},
		"a session that has ended":     {TraceFilter{UE: ue}, TraceEvent{Session: 3, Out: tpdu(ipFrame("203.0.113.1", "10.45.0.1"))}, nil, true},
		"the user":                     {TraceFilter{User: "imsi-001010000000001"}, TraceEvent{Session: 3}, mine, true},
		"the user, digits alone":       {TraceFilter{User: "001010000000001"}, TraceEvent{Session: 3}, mine, true},
		"the end of another user's ID": {TraceFilter{User: "01010000000001"}, TraceEvent{Session: 4}, other, false},
		"no session has a user":        {TraceFilter{User: "imsi-001010000000001"}, TraceEvent{In: ipFrame("10.45.0.1", "203.0.113.1")}, nil, false},
		"the SEID":                     {TraceFilter{SEID: &seid}, TraceEvent{Session: 3}, mine, true},
		"another SEID":                 {TraceFilter{SEID: &seid}, TraceEvent{Session: 4}, other, false},
		"the SEID, another user":       {TraceFilter{SEID: &seid, User: "imsi-9"}, TraceEvent{Session: 3}, mine, false},
	} {
		if got := c.filter.isOf(c.event, c.of); got != c.want || !c.filter.asksForSession() {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	d := start(t)
	got, err := d.Explain("eth1", [][]byte{gtpFrame(7), gtpFrame(8)})
	if err != nil || len(got) != 2 || got[1].Interface != "eth1" || got[1].Policy != "south" || len(got[1].SegmentList) != 1 || !bytes.Equal(got[1].In, gtpFrame(8)) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := d.Explain("eth9", [][]byte{gtpFrame(7)}); !errors.Is(err, desired.ErrNotFound) || !strings.Contains(err.Error(), "eth9") {
		t.Errorf("an interface that is not there: %v", err)
	}
	d.core.mu.Lock()
	delete(d.core.writer.Modes, "eth1")
	d.core.mu.Unlock()
	if _, err := d.Explain("eth1", [][]byte{gtpFrame(7)}); !errors.Is(err, desired.ErrNotFound) || !strings.Contains(err.Error(), "`culvert interface`") {
		t.Errorf("an interface that the data path is not on: %v", err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Explain("eth1", [][]byte{gtpFrame(7)}); !errors.Is(err, pods.ErrNotReady) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTraceEndsWithItsReader(t *testing.T) {
	d := start(t)
	if err := d.Trace(context.Background(), TraceFilter{Interface: "eth9"}, nil); !errors.Is(err, desired.ErrNotFound) || !strings.Contains(err.Error(), "eth9") {
		t.Errorf("an interface that is not there: %v", err)
	}
	gone := errors.New("the reader has gone")
	done := make(chan error, 1)
	go func() {
		done <- d.Trace(context.Background(), TraceFilter{}, func(TraceEvent) error { return gone })
	}()
	d.dp.traced <- event.TraceEvent{}
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("the trace ended: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := d.Trace(ctx, TraceFilter{}, nil); err != nil {
		t.Errorf("the next trace: %v", err)
	}
}

// Whoever is in the middle of something when the daemon ends is told, and
// nothing touches the data path after it was closed.
func TestEndIsOrderly(t *testing.T) {
	d := start(t)
	done := make(chan error, 1)
	go func() {
		done <- d.Trace(context.Background(), TraceFilter{}, func(TraceEvent) error { return nil })
	}()
	d.dp.traced <- event.TraceEvent{}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, pods.ErrNotReady) {
		t.Errorf("the trace ended: %v", err)
	}
	calls := d.dp.log()
	if n := len(calls); n == 0 || calls[n-1] != "close" {
		t.Errorf("the last calls are %q", calls)
	}
	if _, err := d.Status(); !errors.Is(err, pods.ErrNotReady) || !strings.Contains(err.Error(), "ending") {
		t.Errorf("status: %v", err)
	}
	if _, err := d.Delete(context.Background(), []desired.Ref{{Kind: desired.KindSID, Key: "::1"}}); !errors.Is(err, pods.ErrNotReady) {
		t.Errorf("delete: %v", err)
	}
	if got := scraped(t, d.Agent); strings.Contains(got, "culvert_packets_total") {
		t.Errorf("a scrape after the end:\n%s", got)
	}
	if calls := d.dp.log(); len(calls) > 0 {
		t.Errorf("after the end: %q", calls)
	}
}

// What the data path hands up gets to the slow path, and comes back.
func TestSlowPathIsJoined(t *testing.T) {
	d := start(t)
	frame := fragment(0, true)
	d.dp.punts <- event.Punt{Kind: event.PuntReassemble, Ifindex: 1, L3: 14, Data: frame}
	d.dp.punts <- event.Punt{Kind: event.PuntReassemble, Ifindex: 1, L3: 14, Data: fragment(8, false)}
	select {
	case whole := <-d.dp.injected:
		if len(whole) != 14+20+16 || binary.BigEndian.Uint16(whole[14+6:]) != 0 {
			t.Errorf("sent in again: %x", whole)
		}
	case <-time.After(5 * time.Second):
		t.Fatalf("nothing was sent in again: %v", d.punts.Counters())
	}
	if got := scraped(t, d.Agent); !strings.Contains(got, `culvert_slow_path_events_total{event="reassembled"} 1`+"\n") {
		t.Error("reassembly is not in the metrics")
	}
}

// fragment is eight bytes of a UDP datagram over IPv4.
func fragment(offset uint16, more bool) []byte {
	b := make([]byte, 14+20+8)
	copy(b[12:], []byte{8, 0, 0x45, 0, 0, 28, 0, 99})
	flags := offset / 8
	if more {
		flags |= 0x2000
	}
	binary.BigEndian.PutUint16(b[20:], flags)
	b[14+8], b[14+9] = 64, 17
	copy(b[14+12:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[24:], ^uint16(sum))
	return b
}
