package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
	"github.com/culvert-net/culvert/internal/smf"
)

// n4 does its events one after another. Sent are PFCP requests, received those
// that were accepted.
func n4(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	for _, e := range c.AllEvents() {
		if e.Do != "smf" {
			if err := disturb.Do(ctx, r, []topology.Event{e}, o); err != nil {
				return err
			}
			continue
		}
		result, err := daemon.Step(ctx, r.Instance, r.SMF(e.SMF), e.Step)
		switch {
		case err != nil && c.Expect.Nothing && result.ID != "": // the SMF did it, and was refused
			o.Say("%s: %v", e.Title(), err)
		case err != nil:
			o.Fail("%s: %v", e.Title(), err)
		}
		if played := result.Replay; played != nil {
			o.Sent += played.Requests
			o.Received += played.Requests
			o.Say("%s played to frame %d: %d sessions, %d differences that matter, %d others", e.SMF, played.Frame, played.Sessions, played.Matter(), len(played.Differences)-played.Matter())
		}
		if len(result.Results) == 0 && (result.Replay == nil || result.Replay.Requests == 0) { // about no session: one request
			o.Sent++
			if err == nil {
				o.Received++
			}
		}
		for _, p := range result.Results {
			o.Sent += p.Requests
			o.Received += p.Requests - p.Failures
			o.Say("%s by %s: %d, P50 %.0f us, P99 %.0f us", p.Procedure, e.SMF, p.Requests, p.P50, p.P99)
		}
	}
	wantAll(o, &c.Expect)
	return nil
}

// reportKinds say whether a line of an SMF's output is a report of that kind.
var reportKinds = map[string]func(*daemon.SMFLine) bool{
	"downlink_data": func(l *daemon.SMFLine) bool { return len(l.DownlinkData) > 0 },
	"usage":         func(l *daemon.SMFLine) bool { return l.Kind == smf.ReportSession && len(l.Usage) > 0 },
	"hosts": func(l *daemon.SMFLine) bool {
		return slices.ContainsFunc(l.Usage, func(u smf.Usage) bool { return len(u.Detected) > 0 })
	},
	"error_indication": func(l *daemon.SMFLine) bool { return len(l.ErrorIndications) > 0 },
	"path_failed":      func(l *daemon.SMFLine) bool { return len(l.Failed) > 0 },
	"restarted":        func(l *daemon.SMFLine) bool { return l.Kind == smf.ReportRestarted },
	"path_lost":        func(l *daemon.SMFLine) bool { return l.Kind == smf.ReportPathLost },
}

// wantReports wants the reports since before to be as many as they shall be.
func wantReports(r *disturb.Runner, c *topology.Check, o *report.Outcome, before map[string]int64) {
	for _, x := range c.Expect.Reports {
		count := func() (n int) {
			for _, l := range daemon.Lines(r.Instance, r.SMF(x.SMF), before[x.SMF]) {
				if reportKinds[x.Kind](&l) {
					n++
				}
			}
			return n
		}
		instance.WaitFor(AnswerTime, func() bool { return count() >= x.Count })
		if got := count(); got != x.Count {
			o.Fail("%s got %d reports of kind %s: want %d", x.SMF, got, x.Kind, x.Count)
		} else {
			o.Say("%s got %d reports of kind %s", x.SMF, got, x.Kind)
		}
	}
}

// volume is octets in each direction.
type volume struct{ up, down uint64 }

// volumes are those of each URR of a session.
type volumes map[uint32]volume

func (v volumes) add(list []smf.Usage) {
	for _, u := range list {
		sum, none := v[u.URR], new(uint64)
		sum.up += *cmp.Or(u.Uplink, none)
		sum.down += *cmp.Or(u.Downlink, none)
		v[u.URR] = sum
	}
}

func query(ctx context.Context, r *disturb.Runner, u *topology.UsageExpect, into volumes) error {
	result, err := daemon.Step(ctx, r.Instance, r.SMF(u.SMF), map[string]any{"do": "query", "sessions": u.Sessions})
	for _, p := range result.Results {
		for _, s := range p.Usage {
			into.add(s.Reports)
		}
	}
	return err
}

// wantUsage compares what the UPF reported, asked or not, with what the streams
// counted themselves, as IP packets: by each URR of the session.
func wantUsage(ctx context.Context, r *disturb.Runner, u *topology.UsageExpect, since int64, streams []probe.Stream, results []probe.StreamResult, o *report.Outcome) error {
	if u == nil {
		return nil
	}
	var want volume
	for i, s := range streams {
		packets := results[i].Received
		if u.BeforeQoS {
			packets = results[i].Sent
		}
		octets := uint64(packets) * uint64(s.IPLength())
		if i == 0 {
			want.up += octets // a check with usage sends from the UE's side
		} else {
			want.down += octets
		}
	}
	asked := volumes{}
	if err := query(ctx, r, u, asked); err != nil {
		return err
	}
	var got volumes
	reports := 0
	instance.WaitFor(AnswerTime, func() bool {
		got, reports = maps.Clone(asked), 0
		for _, l := range daemon.Lines(r.Instance, r.SMF(u.SMF), since) {
			if reportKinds["usage"](&l) && l.Report.Group == u.Sessions {
				reports++
				got.add(l.Usage)
			}
		}
		other := slices.ContainsFunc(slices.Collect(maps.Values(got)), func(v volume) bool { return v != want })
		return len(got) > 0 && !other
	})
	for _, urr := range slices.Sorted(maps.Keys(got)) {
		text := fmt.Sprintf("URR %d: uplink %d, downlink %d octets in %d reports and a query", urr, got[urr].up, got[urr].down, reports)
		if got[urr] != want {
			o.Fail("%s: sender and receiver counted %d, %d", text, want.up, want.down)
		} else {
			o.Say("%s", text)
		}
	}
	if len(got) == 0 {
		o.Fail("no usage: sender and receiver counted %d, %d octets", want.up, want.down)
	}
	return nil
}
