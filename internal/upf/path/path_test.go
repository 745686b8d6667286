package path

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/stats"
)

// world has paths, a clock that the test moves, and what the paths reported.
type world struct {
	*Paths
	at      time.Time
	reports []string
}

func newWorld() *world {
	w := &world{at: time.Unix(1_800_000_000, 0)}
	w.Paths = New(Options{
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.at }, Stats: &stats.Counters{},
		Interval:  func() time.Duration { return time.Minute },
		Failed:    func(a netip.Addr) { w.reports = append(w.reports, "down "+a.String()) },
		Recovered: func(a netip.Addr) { w.reports = append(w.reports, "up "+a.String()) },
	})
	return w
}

// Three requests without an answer: the path has failed, which is reported once;
// an answer, and it is there again.
func TestPathFailure(t *testing.T) {
	w := newWorld()
	s := sample.Session(1)
	w.Move(1, nil, s)
	peer := s.FARs[1].Forwarding.Outer.Addr
	asked := func() uint16 { return w.peers[peer].sequence }
	for range 3 * 60 * 2 {
		w.Watch()
		w.at = w.at.Add(500 * time.Millisecond)
	}
	if !slices.Equal(w.reports, []string{"down 192.0.2.3"}) {
		t.Errorf("reported: %v", w.reports)
	}
	if n := asked(); n < 2 || n > 4 {
		t.Errorf("%d times in 3 minutes", n)
	}
	for range 200 { // until it is asked again
		if w.Watch(); w.peers[peer].asked > 0 {
			break
		}
		w.at = w.at.Add(500 * time.Millisecond)
	}
	w.echoResponse(peer, asked()-1) // of another time
	w.echoResponse(peer, asked())
	if !slices.Equal(w.reports, []string{"down 192.0.2.3", "up 192.0.2.3"}) {
		t.Errorf("reported: %v", w.reports)
	}
}

// Nobody asks a control plane for its GTP-U address whether it is there: it need not answer.
func TestControlPlaneIsNotWatched(t *testing.T) {
	w := newWorld()
	smf := netip.MustParseAddr("192.0.2.9")
	toSMF := session.FAR{ID: 7, Forwarding: &session.Forwarding{Destination: session.CPFunction,
		Outer: &session.OuterHeader{Kind: session.OuterGTPU, Addr: smf, TEID: 1}}}
	s := sample.Session(1)
	s.FARs = append(s.FARs, toSMF)
	watch := func() {
		for range 60 {
			w.Watch()
			w.at = w.at.Add(500 * time.Millisecond)
		}
	}
	w.Move(1, nil, s)
	watch()
	if !slices.Equal(w.reports, []string{"down 192.0.2.3"}) || w.peers[smf].sequence != 0 {
		t.Errorf("reported: %v; the SMF was asked %d times", w.reports, w.peers[smf].sequence)
	}
	if got := w.Sessions(session.PeerTEID{Addr: smf, TEID: 1}); !slices.Equal(got, []uint64{1}) {
		t.Errorf("an Error Indication of the SMF's is about %v", got)
	}
	for _, p := range w.Peers() {
		if p.Control != (p.Addr == smf) {
			t.Errorf("%+v", p)
		}
	}
	// The same node is a UPF for another session, and then no more.
	other := sample.Session(2)
	other.FARs[1].Forwarding.Outer = &session.OuterHeader{Kind: session.OuterGTPU, Addr: smf, TEID: 1}
	w.Move(2, nil, other)
	watch()
	if failed, answered := w.Failed(smf); !failed || answered || len(w.Users(smf)) != 2 {
		t.Errorf("failed %t, answered %t, users %v", failed, answered, w.Users(smf))
	}
	w.Move(2, other, nil)
	if failed, _ := w.Failed(smf); failed || !slices.Equal(w.Users(smf), []uint64{1}) {
		t.Errorf("the path is still down, for %v", w.Users(smf))
	}
}

func TestTunnelsOfOneFTEID(t *testing.T) {
	w := newWorld()
	to := session.PeerTEID{Addr: netip.MustParseAddr("192.0.2.9"), TEID: 5}
	s := &session.Session{FARs: []session.FAR{{ID: 1, Forwarding: &session.Forwarding{Outer: &session.OuterHeader{Addr: to.Addr, TEID: to.TEID}}}}}
	for seid := range uint64(4) {
		w.Move(seid+1, nil, s)
	}
	w.Move(3, s, nil)
	w.Move(1, s, nil)
	w.Move(1, s, nil) // twice: nothing
	got := w.Sessions(to)
	if slices.Sort(got); !slices.Equal(got, []uint64{2, 4}) {
		t.Errorf("%v", got)
	}
	w.Move(2, s, nil)
	w.Move(4, s, nil)
	if len(w.peers)+len(w.tunnels)+len(w.more) != 0 {
		t.Errorf("left: %v %v %v", w.peers, w.tunnels, w.more)
	}
}
