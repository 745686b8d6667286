package upf

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// gnb is a GTP-U peer on the loopback interface.
type gnb struct {
	t *testing.T
	*net.UDPConn
}

func newGNB(t *testing.T, a string) gnb {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(a), gtpu.Port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return gnb{t, c}
}

// next is the next message and where it came from.
func (g gnb) next() (gtpu.Header, netip.AddrPort) {
	g.t.Helper()
	b := make([]byte, 2048)
	if err := g.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		g.t.Fatal(err)
	}
	n, from, err := g.ReadFromUDPAddrPort(b)
	if err != nil {
		g.t.Fatal(err)
	}
	h, ok := gtpu.ParseHeader(b[:n])
	if !ok {
		g.t.Fatalf("no GTP-U: %x", b[:n])
	}
	return h, from
}

func (g gnb) send(b []byte, to netip.AddrPort) {
	g.t.Helper()
	if _, err := g.WriteToUDPAddrPort(b, to); err != nil {
		g.t.Fatal(err)
	}
}

// runPaths runs the paths until the test ends.
func (w *world) runPaths(own func() []netip.Addr) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.paths.Run(ctx, own) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

func TestPaths(t *testing.T) {
	const own, peer, other = "127.91.0.1", "127.91.0.2", "127.91.0.3"
	g, g2 := newGNB(t, peer), newGNB(t, other)
	w := newWorld(t)
	if err := w.SetConfig(Config{Addresses: []netip.Addr{addr(own)}}); err != nil {
		t.Fatal(err)
	}
	s := sample.Session(1)
	s.FARs[1].Forwarding.Outer.Addr = addr(peer)
	w.establish(s)
	w.runPaths(func() []netip.Addr { return w.install.config.Load().Addresses })

	h, from := g.next()
	sequence, _ := h.Sequence()
	if h.Type() != gtpu.EchoRequest || from != netip.AddrPortFrom(addr(own), gtpu.Port) {
		t.Fatalf("%v from %v", h.Type(), from)
	}
	g.send(gtpu.AppendEchoResponse(nil, sequence), from)
	g.send([]byte{1, 2, 3}, from)

	// An Error Indication, of which the second is only a packet later.
	indication, err := gtpu.ErrorIndication{TEID: 2, Peer: addr(peer)}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	g2.send(indication, from) // which is about the first one's
	waitFor(t, "another's Error Indication", func() bool { return w.stats.ErrorIndicationsRefused.Load() == 1 })
	if reports := w.smf.take(); len(reports) != 0 {
		t.Errorf("reports: %+v", reports)
	}
	g.send(indication, from)
	g.send(indication, from)
	waitFor(t, "Error Indications", func() bool { return w.stats.ErrorIndications.Load() == 3 && w.stats.GTPUMalformed.Load() == 1 })
	reports := w.smf.take()
	if len(reports) != 1 || !slices.Equal(reports[0].ErrorIndications, []session.PeerTEID{{Addr: addr(peer), TEID: 2}}) {
		t.Errorf("reports: %+v", reports)
	}

	// A handover: the old path gets an End Marker, once it is the old one.
	to := sample.Copy(t, s)
	to.FARs[1].Forwarding.Outer = &session.OuterHeader{Addr: addr(other), TEID: 9}
	w.modify(s, to, session.Modification{EndMarkers: []uint32{2}})
	if h, _ := g.next(); h.Type() != gtpu.EndMarker || h.TEID() != 2 {
		t.Errorf("on the old path: %v", h.Type())
	}
	if h, _ := g2.next(); h.Type() != gtpu.EchoRequest {
		t.Errorf("on the new path: %v", h.Type())
	}
	w.modify(to, to, session.Modification{EndMarkers: []uint32{2}})
	if n := w.stats.EndMarkers.Load(); n != 1 {
		t.Errorf("%d End Markers", n)
	}
	if list := w.Peers(); len(list) != 1 || list[0].Addr != addr(other) || list[0].Tunnels != 1 {
		t.Errorf("peers: %+v", list)
	}

	// Duplicates go where the Duplicating Parameters say.
	dup := sample.Copy(t, to)
	dup.FARs[1].Action |= session.Duplicate
	dup.FARs[1].Duplicates = []session.Forwarding{{Destination: session.LIFunction, Outer: &session.OuterHeader{Addr: addr(peer), TEID: 77}}}
	w.modify(to, dup, session.Modification{})
	p := toUE(1, 5)
	w.Duplicate(Packet{Session: 1, Rule: 2, L3: 14, Data: append(p.Data, 0, 0)}) // and padding of the frame
	if h, _ := g.next(); h.TEID() != 77 || !slices.Equal(h.Payload(), p.Data[14:]) {
		t.Errorf("duplicate: TEID %d, %x", h.TEID(), h.Payload())
	}
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 5 s", what)
		}
	}
}

// silence lets time pass until a path has failed.
func (w *world) silence() {
	for range 3 * 60 * 2 {
		w.paths.Watch()
		w.passed.Add(int64(500 * time.Millisecond))
	}
}

// A path that fails is reported to the SMFs whose sessions use it, once, and to the log.
func TestPathFailure(t *testing.T) {
	var log strings.Builder
	w := newWorld(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w.establish(sample.Session(1))
	other := sample.Session(2)
	other.Node, other.FARs[1].Forwarding.Outer.Addr = "smf-elsewhere", addr("192.0.2.77")
	w.establish(other)
	w.silence()
	slices.Sort(w.smf.paths)
	if want := []string{"down 192.0.2.3 [" + sample.Session(1).Node + "]", "down 192.0.2.77 [smf-elsewhere]"}; !slices.Equal(w.smf.paths, want) {
		t.Errorf("reported: %q, want %q", w.smf.paths, want)
	}
	if want := "level=WARN msg=\"GTP-U path has failed: the peer does not answer Echo Requests\" event=gtpu.path_failed peer=192.0.2.77 sessions=1 smfs=[smf-elsewhere]\n"; !strings.Contains(log.String(), want) {
		t.Errorf("the log has no %q:\n%s", want, &log)
	}
}

// An SMF that takes no Node Reports gets a report for each of its sessions that forwards
// to the peer, unless the peer has never answered: it may be there all the same.
func TestPathFailureBySession(t *testing.T) {
	const own, peer = "127.91.0.4", "127.91.0.5"
	for _, answers := range []bool{false, true} {
		w := newWorld(t)
		w.smf.noNodeReports = true
		if err := w.SetConfig(Config{Addresses: []netip.Addr{addr(own)}}); err != nil {
			t.Fatal(err)
		}
		var sessions []*session.Session
		for seid := range uint64(3) {
			s := sample.Session(seid + 1)
			s.FARs[1].Forwarding.Outer = &session.OuterHeader{Kind: session.OuterGTPU, Addr: addr(peer), TEID: uint32(100 + seid)}
			w.establish(s)
			sessions = append(sessions, s)
		}
		idle := sample.Copy(t, sessions[2]) // its UE is idle: nothing is sent to its tunnel
		idle.FARs[1].Action = session.Buffer
		w.modify(sessions[2], idle, session.Modification{})
		if answers {
			w.answerEcho(newGNB(t, peer), own)
		}
		w.silence()
		want := []session.PeerTEID{{Addr: addr(peer), TEID: 100}, {Addr: addr(peer), TEID: 101}}
		if !answers {
			want = nil
			time.Sleep(50 * time.Millisecond)
		}
		var got []session.PeerTEID
		waitFor(t, "reports", func() bool {
			for _, r := range w.smf.take() {
				got = append(got, r.ErrorIndications...)
			}
			return len(got) >= len(want)
		})
		if !slices.Equal(got, want) {
			t.Errorf("answers before: %t: reported %v, want %v", answers, got, want)
		}
	}
}

// answerEcho runs the paths until the peer has answered once.
func (w *world) answerEcho(g gnb, own string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.paths.Run(ctx, func() []netip.Addr { return []netip.Addr{addr(own)} }) }()
	h, from := g.next()
	sequence, _ := h.Sequence()
	g.send(gtpu.AppendEchoResponse(nil, sequence), from)
	peer := g.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	waitFor(w.t, "the answer", func() bool { _, answered := w.paths.Failed(peer); return answered })
	cancel()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}

// G-PDUs reach a socket by interfaces without the data path. SMFs' are taken, by N4.
func TestGPDUsOfSMFs(t *testing.T) {
	const own = "127.91.0.6"
	smf, stranger := newGNB(t, "127.91.0.9"), newGNB(t, "127.91.0.10")
	w := newWorld(t)
	w.runPaths(func() []netip.Addr { return []netip.Addr{addr(own)} })
	gpdu, err := gtpu.AppendGPDU(nil, 0x123, gtpu.PDUSessionContainer{}, []byte{0x60, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(addr(own), gtpu.Port)
	count := uint64(0)
	waitFor(t, "a stranger's G-PDU", func() bool { // the socket opens soon
		stranger.send(gpdu, to)
		count = w.stats.GTPUIgnored.Load()
		return count > 0
	})
	smf.send(gpdu, to)
	waitFor(t, "the SMF's G-PDU", func() bool { return w.stats.FromSMF.Load() == 1 })
	if !slices.Equal(w.path.givenBack(), []string{fmt.Sprintf("%x tos 0 ttl 64", gpdu)}) {
		t.Errorf("taken: %q", w.path.givenBack())
	}
}

// Echo Requests reach a socket by interfaces without the data path, which says who may send
// by its own, and by interfaces that the data path cannot answer by: those are answered.
func TestEchoRequests(t *testing.T) {
	const own, loopback = "127.91.0.30", 1
	g := newGNB(t, "127.91.0.31")
	w := newWorld(t)
	w.runPaths(func() []netip.Addr { return []netip.Addr{addr(own)} })
	to := netip.AddrPortFrom(addr(own), gtpu.Port)
	waitFor(t, "an Echo Request", func() bool { // the socket opens soon
		g.send(gtpu.AppendEchoRequest(nil, 8), to)
		return w.stats.GTPUIgnored.Load() > 0
	})
	w.path.mu.Lock()
	w.path.silent = loopback
	w.path.mu.Unlock()
	g.send(gtpu.AppendEchoRequest(nil, 9), to)
	for sequence := uint16(8); sequence == 8; { // one of those may still have been on its way
		h, from := g.next()
		sequence, _ = h.Sequence()
		if h.Type() != gtpu.EchoResponse || sequence != 8 && sequence != 9 || from != to {
			t.Fatalf("type %d with sequence number %d from %s, want an Echo Response, 9, %s", h.Type(), sequence, from, to)
		}
	}
}

// A session that sends on takes End Markers from the gNB and the UPF that it sends to, and
// for a while from the gNB that its UE has left. Others' have no effect and are counted.
func TestEndMarkersOfPeers(t *testing.T) {
	const own, other, gnb1, gnb2, anchor, stranger = "127.91.0.20", "127.91.0.19", "127.91.0.21", "127.91.0.22", "127.91.0.23", "127.91.0.24"
	w := newWorld(t)
	w.runPaths(func() []netip.Addr { return []netip.Addr{addr(own), addr(other)} })
	s := sample.Session(1)
	s.PDRs[1].PDI.TEID, s.PDRs[1].PDI.TEID4 = 0x77, addr(own)
	s.FARs[0].Forwarding.Outer = &session.OuterHeader{Addr: addr(anchor), TEID: 0x8001}
	s.FARs[1].Forwarding.Outer.Addr = addr(gnb1)
	peers := map[string]gnb{}
	for _, a := range []string{gnb1, gnb2, anchor, stranger} {
		peers[a] = newGNB(t, a)
	}
	w.establish(s)
	if _, from := peers[gnb1].next(); from.Addr() != addr(own) { // so the socket is open
		t.Errorf("an Echo Request from %v, not from the first address", from)
	}
	want := func(what, from string, teid uint32, taken bool) {
		t.Helper()
		before, refused := len(w.path.givenBack()), w.stats.EndMarkersRefused.Load()
		peers[from].send(gtpu.AppendEndMarker(nil, teid), netip.AddrPortFrom(addr(own), gtpu.Port))
		if !taken {
			waitFor(t, what, func() bool { return w.stats.EndMarkersRefused.Load() == refused+1 })
		} else {
			waitFor(t, what, func() bool { return len(w.path.givenBack()) == before+1 })
		}
		if n := len(w.path.givenBack()); !taken && n != before {
			t.Errorf("%s: it has an effect", what)
		}
	}
	want("of the upstream UPF", anchor, 0x77, true)
	want("of the gNB", gnb1, s.PDRs[0].PDI.TEID, true)
	want("of a stranger", stranger, 0x77, false)
	want("of a gNB that no rule names", gnb2, 0x77, false)
	want("for an unknown TEID", anchor, 0x78, false)

	to := sample.Copy(t, s)
	to.FARs[1].Forwarding.Outer.Addr = addr(gnb2)
	w.modify(s, to, session.Modification{})
	want("of the new gNB", gnb2, 0x77, true)
	want("of the gNB that the UE has left", gnb1, 0x77, true)
	w.passed.Add(int64(11 * time.Second))
	want("of the gNB that the UE left long ago", gnb1, 0x77, false)
	want("of the gNB, later", gnb2, 0x77, true)
	if got, want := w.path.givenBack()[0], "30fe000000000077 tos 0 ttl 64"; got != want {
		t.Errorf("sent on: %q, want %q", got, want)
	}
}
