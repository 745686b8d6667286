package pfcp

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/session"
	instrument "github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/smf/replay"
	"github.com/culvert-net/culvert/internal/smf/wire"
)

// conversation are the PFCP messages of a capture.
func conversation(t testing.TB, dialect string) []*replay.Message {
	t.Helper()
	c, err := replay.Open(dialect)
	if err != nil {
		t.Fatal(err)
	}
	return c.Messages
}

// playback is a conversation that is played to our server.
type playback struct {
	t      *testing.T
	bed    *bed
	player *replay.Player
}

// newPlayback plays to a server that takes G-PDUs where the capture's UPF did.
func newPlayback(t *testing.T, dialect string, gtpu netip.Addr) *playback {
	p := &playback{t: t, bed: newBed(t, func(_ *Config, u *fakeUPF) { u.v4, u.v6 = gtpu, netip.Addr{} })}
	c, err := instrument.Dial(instrument.Options{UPF: netip.AddrPortFrom(p.bed.addr(1), Port), Local: netip.AddrPortFrom(p.bed.addr(2), Port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if p.player, err = c.Replay(replay.Settings{Capture: dialect, GTPU: gtpu}); err != nil {
		t.Fatal(err)
	}
	p.player.Progress = func(done, _ int) {
		e := p.player.Conversation().Exchanges[done]
		switch {
		case e.FromUPF && e.Request.Kind == message.MsgTypeSessionReportRequest:
			p.report(e)
		case e.Request.Kind == message.MsgTypeSessionDeletionRequest && reportsUsage(e.Answer): // the fake UPF measures nothing
			p.bed.upf.mu.Lock()
			p.bed.upf.reports = []session.UsageReport{{URR: 1, Cause: session.CauseTermination}}
			p.bed.upf.mu.Unlock()
		}
	}
	return p
}

// report has the server report what the capture's UPF did.
func (p *playback) report(e *replay.Exchange) {
	about := session.Report{SEID: p.player.Sessions(e.Session, 1)[0].UPSEID}
	m, err := message.Parse(e.Request.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	captured := m.(*message.SessionReportRequest)
	if d := captured.DownlinkDataReport; d != nil {
		id, err := d.PDRID()
		if err != nil {
			p.t.Fatal(err)
		}
		about.DownlinkData = []uint16{id}
	}
	for _, u := range captured.UsageReport {
		id, err := u.URRID()
		if err != nil {
			p.t.Fatal(err)
		}
		about.Usage = append(about.Usage, session.UsageReport{URR: id, Cause: session.CauseVolumeThreshold})
	}
	p.bed.s.Report(about, func(err error) {
		if err != nil {
			p.t.Errorf("frame %d: the report was not taken: %v", e.Request.Frame, err)
		}
	})
}

// reportsUsage says whether a captured answer to a deletion does.
func reportsUsage(answer *replay.Message) (is bool) {
	wire.Each(answer.Payload, func(kind uint16, _ []byte) {
		is = is || kind == ie.UsageReportWithinSessionDeletionResponse
	})
	return is
}

// play plays up to a frame, and wants no difference that an SMF would notice.
func (p *playback) play(until int) replay.Result {
	p.t.Helper()
	r, err := p.player.Play(p.t.Context(), until, patience)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		p.t.Errorf("%v: %+v", err, r.Differences)
	}
	return r
}

// TestCaptures plays the SMFs' part of four conversations to our server. Its answers
// must say what the SMF got from its own UPF, and the sessions be what it meant.
func TestCaptures(t *testing.T) {
	for dialect, want := range map[string]struct {
		gtpu                                          string
		requests, reports, leftOut, sessions, restart int
	}{
		"free5gc":      {gtpu: "127.0.0.8", requests: 11, sessions: 1},
		"open5gs":      {gtpu: "10.200.0.8", requests: 23, reports: 2, leftOut: 1, sessions: 2, restart: 44},
		"open5gs-live": {gtpu: "10.3.0.2", requests: 111, reports: 2, sessions: 3},
		"sd-core":      {gtpu: "10.3.0.1", requests: 23, sessions: 2},
	} {
		t.Run(dialect, func(t *testing.T) {
			gtpu := netip.MustParseAddr(want.gtpu)
			p := newPlayback(t, dialect, gtpu)
			sum := replay.Result{}
			if want.restart > 0 {
				sum = p.play(want.restart)
				p.bed.stop() // as the capture's UPF did: it knows nothing then
				p.bed.upf = newFakeUPF()
				p.bed.start(func(_ *Config, u *fakeUPF) { u.v4, u.v6 = gtpu, netip.Addr{} })
			}
			r := p.play(0)
			sum.Requests, sum.Reports, sum.LeftOut = sum.Requests+r.Requests, sum.Reports+r.Reports, sum.LeftOut+r.LeftOut
			if sum.Requests != want.requests || sum.Reports != want.reports || sum.LeftOut != want.leftOut || r.Sessions != want.sessions || !r.Complete {
				t.Errorf("%+v and %+v, want %+v", sum, r, want)
			}
			p.bed.upf.consistent(t)
			p.compareSessions("testdata/n4-" + dialect + ".json")
		})
	}
}

// compareSessions compares what the SMF's rules have become with a file.
func (p *playback) compareSessions(file string) {
	sessions := slices.SortedFunc(maps.Values(p.bed.upf.sessions), func(a, b *session.Session) int {
		return cmp.Compare(a.CPSEID, b.CPSEID)
	})
	for _, s := range sessions {
		s.SEID = 0 // another one each time
		s.CPAddr = p.player.Conversation().SMF
		for i := range s.FARs {
			if f := s.FARs[i].Forwarding; f != nil && f.Outer != nil && f.Outer.Addr == p.bed.addr(2) {
				f.Outer.Addr = p.player.Conversation().SMF
			}
		}
		s.Node = strings.ReplaceAll(s.Node, p.bed.addr(2).String(), p.player.Conversation().SMF.String())
	}
	got, err := json.MarshalIndent(sessions, "", "  ")
	if err != nil {
		p.t.Fatal(err)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)+"\n"); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
