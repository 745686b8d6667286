package smf

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/replay"
)

func player(t *testing.T, u *upf, settings replay.Settings) (*Client, *replay.Player) {
	t.Helper()
	c := dial(t, fast(u, Open5GS))
	p, err := c.Replay(settings)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

// Each copy of a session has numbers of its own, and the first those of the capture.
func TestReplayCopies(t *testing.T) {
	u := newUPF(t)
	_, p := player(t, u, replay.Settings{Capture: "open5gs", Times: 3, Access: addr("192.0.2.1")})
	if r, err := p.Play(t.Context(), 12, 0); err != nil || r.Err() != nil || r.Sessions != 6 || r.Requests != 2+6+3 {
		t.Fatalf("%+v, %v", r, err)
	}
	seids, ues, peers := map[uint64]bool{}, map[string]bool{}, map[uint32]bool{}
	for _, r := range u.of(message.MsgTypeSessionEstablishmentRequest) {
		m := r.message.(*message.SessionEstablishmentRequest)
		f, _ := m.CPFSEID.FSEID()
		seids[f.SEID] = true
		a, _ := child(child(m.CreatePDR[0], ie.PDI), ie.UEIPAddress).UEIPAddress()
		ues[a.IPv4Address.String()] = true
		node, _ := m.NodeID.NodeID()
		if node != "127.0.0.1" || !f.IPv4Address.Equal(net.IPv4(127, 0, 0, 1)) {
			t.Errorf("Node ID %s, F-SEID %v", node, f.IPv4Address)
		}
	}
	for _, r := range u.of(message.MsgTypeSessionModificationRequest) {
		m := r.message.(*message.SessionModificationRequest)
		o, _ := child(child(m.UpdateFAR[0], ie.UpdateForwardingParameters), ie.OuterHeaderCreation).OuterHeaderCreation()
		peers[o.TEID] = true
		if !o.IPv4Address.Equal(net.IPv4(192, 0, 2, 1)) {
			t.Errorf("gNB at %v", o.IPv4Address)
		}
	}
	if len(seids) != 6 || !seids[0xcc1] || !seids[0x401] || len(ues) != 6 || !ues["10.60.0.2"] || !ues["10.60.0.7"] || len(peers) != 3 || !peers[1] {
		t.Errorf("SEIDs %v, UEs %v, TEIDs %v", seids, ues, peers)
	}
	for i, want := range []string{"10.60.0.2", "10.60.0.4", "10.60.0.6"} {
		if s := p.Sessions(0, 3)[i]; s.UE4 != addr(want) || !s.Established || s.UPSEID == 0 || s.Access.TEID == 0 || s.CPFunction.TEID == 0 || s.Peer.Addr4 != addr("192.0.2.1") {
			t.Errorf("copy %d: %+v", i, s)
		}
	}
}

// What an SMF would notice is found, and named.
func TestReplayFinds(t *testing.T) {
	accepted := ie.NewCause(ie.CauseRequestAccepted)
	of := func(kind uint8, ies ...*ie.IE) func(message.Message) []*ie.IE {
		return func(m message.Message) []*ie.IE {
			if m.MessageType() == kind {
				return ies
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		change  func(u *upf)
		matters bool
		ie      string
		frame   int
	}{
		"nothing": {func(*upf) {}, false, "UP Function Features", 1},
		"refused": {func(u *upf) {
			u.say = of(message.MsgTypeSessionModificationRequest, ie.NewCause(ie.CauseMandatoryIEIncorrect), ie.NewOffendingIE(ie.FARID))
		}, true, "Offending IE", 9},
		"no created PDR": {func(u *upf) { u.noCreated = true }, true, "Created PDR", 7},
		"another SEID":   {func(u *upf) { u.otherSEID = 99 }, true, "SEID in the header", 7},
		"one IE more": {func(u *upf) {
			u.say = of(message.MsgTypeSessionModificationRequest, accepted, ie.NewTimer(time.Second))
		}, false, "55", 9},
		"usage": {func(u *upf) {
			u.usage = ie.NewUsageReportWithinSessionModificationResponse(ie.NewURRID(1), ie.NewURSEQN(0), ie.NewUsageReportTrigger(0x80, 0, 0))
		}, true, "usage reports", 9},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUPF(t)
			u.change(func() { tt.change(u) })
			_, p := player(t, u, replay.Settings{Capture: "open5gs", Times: 2})
			r, err := p.Play(t.Context(), 10, 0)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(r.Differences, func(d replay.Difference) bool {
				return d.Frame == tt.frame && strings.Contains(d.IE, tt.ie) && d.Matters == tt.matters
			})
			if i < 0 || (r.Err() != nil) != tt.matters {
				t.Fatalf("%v: %+v", r.Err(), r.Differences)
			}
			if d := r.Differences[i]; d.Session == 1 && d.Copies != 2 || d.Captured == d.Live {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Reports are answered as the capture's SMF did: with its Cause, or, where the capture has
// none, with what is right. One of nobody's session is refused.
func TestReplayAnswers(t *testing.T) {
	u := newUPF(t)
	c, p := player(t, u, replay.Settings{Capture: "open5gs", Times: 2})
	if r, err := p.Play(t.Context(), 24, 0); err != nil || r.Sessions != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	second := p.Sessions(0, 2)[1]
	report := func(seid uint64, sequence uint32) *message.SessionReportResponse {
		return u.ask(message.NewSessionReportRequest(0, 0, seid, sequence, 0, ie.NewReportType(0, 0, 0, 1),
			ie.NewDownlinkDataReport(ie.NewPDRID(1)))).(*message.SessionReportResponse)
	}
	for range 2 { // it is sent twice
		if a := report(second.CPSEID, 7); a.SEID() != second.UPSEID || a.Sequence() != 7 || causeOf(a.Cause) != ie.CauseRequestAccepted {
			t.Errorf("%+v", a)
		}
	}
	if r := <-c.Reports(); r.Group != "s1" || r.Session != 1 || !slices.Equal(r.DownlinkData, []uint16{1}) || len(c.Reports()) != 0 {
		t.Errorf("%+v, and %d more", r, len(c.Reports()))
	}
	if a := report(0xabcdef, 8); causeOf(a.Cause) != ie.CauseSessionContextNotFound {
		t.Errorf("a session that nobody has: %+v", a)
	}
	// The capture's first report is one of session 1: both copies are waited for.
	go func() { report(p.Sessions(0, 1)[0].CPSEID, 9) }()
	r, err := p.Play(t.Context(), 26, 2*time.Second)
	if err != nil || r.Err() != nil || r.Reports != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	// Nobody reports the second session.
	r, err = p.Play(t.Context(), 36, 50*time.Millisecond)
	var differ *replay.DifferError
	if err != nil || !errors.As(r.Err(), &differ) || differ.First.IE != "report" || differ.First.Copies != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

func causeOf(i *ie.IE) uint8 {
	cause, err := i.Cause()
	if err != nil {
		return 0
	}
	return cause
}

// An SMF that the capture shows to be silent is silent, too.
func TestReplayIsSilent(t *testing.T) {
	u := newUPF(t)
	c, p := player(t, u, replay.Settings{Capture: "open5gs-live"})
	if _, err := p.Play(t.Context(), 2, 0); err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	to := u.smf
	u.mu.Unlock()
	u.send(message.NewNodeReportRequest(5, ie.NewNodeID("127.0.0.3", "", ""), ie.NewNodeReportType(1),
		ie.NewUserPlanePathFailureReport(ie.NewRemoteGTPUPeer(2, "192.0.2.1", "", 0, ""))), to)
	if r := <-c.Reports(); r.Kind != ReportNode || len(r.Failed) != 1 {
		t.Errorf("%+v", r)
	}
	select {
	case a := <-u.answers:
		t.Errorf("answered: %+v", a)
	case <-time.After(100 * time.Millisecond):
	}
}

// What cannot be played says why.
func TestReplayRefuses(t *testing.T) {
	u := newUPF(t)
	for name, tt := range map[string]struct {
		settings replay.Settings
		want     string
	}{
		"nothing":         {replay.Settings{}, "capture: missing"},
		"no file":         {replay.Settings{Capture: "/nowhere.pcap"}, "give a capture file"},
		"times":           {replay.Settings{Capture: "open5gs", Times: -1}, "times: -1"},
		"pace":            {replay.Settings{Capture: "open5gs", Pace: "slow"}, `pace: "slow"`},
		"another SMF":     {replay.Settings{Capture: "open5gs", From: addr("192.0.2.1")}, "no such conversation"},
		"an unknown peer": {replay.Settings{Capture: "open5gs", Map: map[netip.Addr]netip.Addr{addr("192.0.2.1"): addr("192.0.2.2")}}, "no tunnel of the capture is at 192.0.2.1"},
	} {
		if _, err := dial(t, fast(u, Open5GS)).Replay(tt.settings); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	c, _ := player(t, u, replay.Settings{Capture: "open5gs"})
	if _, err := c.Add(spec(Open5GS, 1)); !errors.Is(err, errBoth) {
		t.Errorf("sessions beside a capture: %v", err)
	}
	// A UPF that is silent, and an interruption.
	u.change(func() { u.lose = func(int, uint8) bool { return true } })
	_, p := player(t, u, replay.Settings{Capture: "open5gs"})
	if r, err := p.Play(t.Context(), 0, 0); !errors.Is(err, ErrUnanswered) || !strings.Contains(err.Error(), "frame 1, Association Setup Request") || r.Complete {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Play(ctx, 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// A scenario plays a capture step by step.
func TestReplayScenario(t *testing.T) {
	for text, want := range map[string]string{
		"{upf: 127.0.0.3, replay: {capture: open5gs}, steps: [{do: replay, until: 20}, {do: show, sessions: s1}]}": "",
		"{replay: {capture: open5gs}, sessions: [{ue4: 10.0.0.0/8}]}":                                              "not both",
		"{replay: {}}":                                     "capture: missing",
		"{replay: {capture: x, pace: slow}}":               `pace: "slow"`,
		"{steps: [{do: replay}]}":                          "has no replay",
		"{steps: [{do: associate, until: 3}]}":             "until is of a replay",
		"{replay: {capture: x}, steps: [{do: establish}]}": "whose requests replay sends",
	} {
		_, err := ParseScenario([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	u := newUPF(t)
	s, err := ParseScenario([]byte("{replay: {capture: open5gs, times: 3}}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(dial(t, fast(u, Open5GS)), s)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Do(t.Context(), Step{Do: "replay", Until: 12}); !got.OK || got.Replay.Sessions != 6 || len(got.Sessions) != 2 || got.Sessions[1].Group != "s2" {
		t.Errorf("%+v", got)
	}
	if got := r.Do(t.Context(), Step{Do: "show", Sessions: "s1"}); !got.OK || len(got.Sessions) != 3 || got.Sessions[2].CPFunction == nil {
		t.Errorf("%+v", got)
	}
	if got := r.Do(t.Context(), Step{Do: "show", Sessions: "s3"}); got.OK || !strings.Contains(got.Error, "it has s1 to s2") {
		t.Errorf("%+v", got)
	}
}
