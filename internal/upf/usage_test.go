package upf

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/wheel"
)

func octets(n uint64) *session.Volume { return &session.Volume{Total: &n} }

// counted is a session whose two PDRs are counted by one URR.
func countedBy(u session.URR) *session.Session {
	s := sample.Session(1)
	u.ID = 1
	s.URRs = []session.URR{u}
	return s
}

func TestThreshold(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(100_000)}))
	var up, down uint64
	for i := range 1000 {
		w.path.packet(1, 1, 1000)
		up += 1000
		if i%3 == 0 {
			w.path.packet(1, 2, 500)
			down += 500
		}
		w.settle()
	}
	last, err := w.remove(1)
	if err != nil {
		t.Fatal(err)
	}
	reports := w.smf.usage()
	if len(reports) < 10 || len(reports) > 11 {
		t.Errorf("%d reports of 1,167,000 octets by 100,000", len(reports))
	}
	var sum session.Measured
	for i, r := range append(reports, last...) {
		if r.Sequence != uint32(i) {
			t.Errorf("report %d has UR-SEQN %d", i, r.Sequence)
		}
		if i < len(reports) && (r.Cause != session.CauseVolumeThreshold || r.Volume.Total() < 100_000 || r.Volume.Total() > 104_000) {
			t.Errorf("report %d: cause %#x, %d octets", i, r.Cause, r.Volume.Total())
		}
		sum.Uplink += r.Volume.Uplink
		sum.Downlink += r.Volume.Downlink
	}
	if want := (session.Measured{Uplink: up, Downlink: down}); sum != want {
		t.Errorf("reported %+v, sent %+v", sum, want)
	}
	if len(last) != 1 || last[0].Cause != session.CauseTermination {
		t.Errorf("last: %+v", last)
	}
}

// However the rules share it, a quota is not exceeded by more than a packet of
// each, is used up to the last packet, and is reported when it is.
func TestQuota(t *testing.T) {
	for _, onlyUplink := range []bool{true, false} {
		w := newWorld(t)
		w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(1_000_000)}))
		var sent uint64
		for i := range 3000 {
			rule := uint16(1)
			if i%2 == 0 && !onlyUplink {
				rule = 2
			}
			if w.path.packet(1, rule, 1000) {
				sent += 1000
			}
			w.settle()
		}
		reports := w.smf.usage()
		if sent < 990_000 || sent > 1_002_000 {
			t.Errorf("%d octets of 1,000,000 were let through (only uplink: %v)", sent, onlyUplink)
		}
		if len(reports) != 1 || reports[0].Cause != session.CauseVolumeQuota || reports[0].Volume.Total() != sent {
			t.Errorf("reports %+v, sent %d", reports, sent)
		}
		// The same quota again.
		s := w.Session(1)
		w.modify(s, sample.Copy(t, s), session.Modification{Renewed: []session.Renewed{{URR: 1, VolumeQuota: true}}})
		if !w.path.packet(1, 1, 1000) {
			t.Error("nothing goes with a new quota")
		}
	}
}

func TestQuotaOfNothing(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(0)}))
	if w.path.packet(1, 1, 100) {
		t.Error("a packet went without quota")
	}
}

// Where a FAR is named for it, it holds once the quota is used up.
func TestFARForQuotaAction(t *testing.T) {
	w := newWorld(t)
	other := uint32(7)
	s := countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(10_000), FARForQuotaAction: &other})
	s.FARs = append(s.FARs, session.FAR{ID: 7, Action: session.Forward, Forwarding: &session.Forwarding{
		Destination: session.CPFunction, Outer: &session.OuterHeader{Addr: addr("192.0.2.99"), TEID: 9}}})
	w.establish(s)
	for range 12 {
		w.path.packet(1, 1, 1000)
		w.settle()
	}
	if r := w.path.rule(t, 1, 1); r.Forward.Remote != addr("192.0.2.99") || r.StopAt != 0 {
		t.Errorf("after the quota: %+v", r)
	}
	now := w.Session(1)
	w.modify(now, sample.Copy(t, now), session.Modification{Renewed: []session.Renewed{{URR: 1, VolumeQuota: true}}})
	if r := w.path.rule(t, 1, 1); r.Forward.Kind != datapath.ForwardTable || r.StopAt == 0 {
		t.Errorf("with a new quota: %+v", r)
	}
}

func TestPeriodic(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerPeriodic, Period: 30 * time.Second}))
	w.path.packet(1, 1, 777)
	w.pass(95 * time.Second)
	reports := w.smf.usage()
	if len(reports) != 3 {
		t.Fatalf("%d reports in 95 s", len(reports))
	}
	for i, r := range reports {
		want := uint64(0)
		if i == 0 {
			want = 777
		}
		if r.Cause != session.CausePeriodic || r.Volume.Uplink != want || r.End.Sub(r.Start).Round(time.Second) != 30*time.Second {
			t.Errorf("report %d: %+v", i, r)
		}
	}
}

// Time counts from the first packet on, and ends an inactivity time after the
// last one.
func TestTime(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Time: true, InactivityTime: 10 * time.Second}))
	w.pass(20 * time.Second)
	for range 30 {
		w.path.packet(1, 1, 1000)
		w.pass(time.Second)
	}
	w.pass(60 * time.Second)
	s := w.Session(1)
	reports := w.modify(s, s, session.Modification{QueryAll: true})
	if len(reports) != 1 || reports[0].Cause != session.CauseImmediate || !reports[0].HasDuration {
		t.Fatalf("%+v", reports)
	}
	if d := reports[0].Duration; d < 38*time.Second || d > 42*time.Second {
		t.Errorf("30 s of packets and 10 s behind them: %v", d)
	}
}

func TestTimeThresholdAndQuota(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Time: true, ImmediateStart: true, Trigger: session.TriggerTimeThreshold | session.TriggerTimeQuota,
		TimeThreshold: 10 * time.Second, HasTimeQuota: true, TimeQuota: 25 * time.Second}))
	w.path.packet(1, 1, 5000)
	w.pass(31 * time.Second)
	var causes []session.Cause
	for _, r := range w.smf.usage() {
		causes = append(causes, r.Cause)
	}
	if len(causes) != 3 || causes[0] != session.CauseTimeThreshold || causes[1] != session.CauseTimeThreshold || causes[2] != session.CauseTimeQuota {
		t.Errorf("causes %#x", causes)
	}
	if w.path.packet(1, 1, 1000) {
		t.Error("a packet went after the time quota")
	}
}

func TestQuotaHoldingAndValidity(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, VolumeQuota: octets(1e9), QuotaHolding: 10 * time.Second, Trigger: session.TriggerQuotaHolding}))
	for range 20 {
		w.path.packet(1, 1, 1000)
		w.pass(time.Second)
	}
	if got := w.smf.usage(); len(got) != 0 {
		t.Fatalf("while packets come: %+v", got)
	}
	w.pass(13 * time.Second)
	if got := w.smf.usage(); len(got) != 1 || got[0].Cause != session.CauseQuotaHolding || got[0].Volume.Uplink != 20_000 {
		t.Errorf("holding time: %+v", got)
	}
	if w.path.packet(1, 1, 1000) {
		t.Error("a packet went after the holding time")
	}

	s := countedBy(session.URR{Volume: true, VolumeQuota: octets(1e9), QuotaValidity: 10 * time.Second, Trigger: session.TriggerQuotaValidity})
	s.SEID = 2
	w.establish(s)
	w.pass(11 * time.Second)
	if got := w.smf.usage(); len(got) != 1 || got[0].Cause != session.CauseQuotaValidity {
		t.Errorf("validity: %+v", got)
	}
}

func TestStartAndStop(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, InactivityTime: 8 * time.Second, Trigger: session.TriggerStart | session.TriggerStop}))
	w.pass(5 * time.Second)
	for range 2 {
		w.path.packet(1, 1, 100)
		w.pass(20 * time.Second)
	}
	var causes []session.Cause
	for _, r := range w.smf.usage() {
		causes = append(causes, r.Cause)
	}
	want := []session.Cause{session.CauseStart, session.CauseStop, session.CauseStart, session.CauseStop}
	if len(causes) != len(want) {
		t.Fatalf("causes %#x", causes)
	}
	for i := range want {
		if causes[i] != want[i] {
			t.Errorf("causes %#x", causes)
		}
	}
}

func TestMonitoringTime(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(1e9),
		MonitoringTime: w.at().Add(10 * time.Second), SubsequentVolume: octets(5000)}))
	w.path.packet(1, 1, 7000)
	w.pass(11 * time.Second)
	if got := w.smf.usage(); len(got) != 0 {
		t.Errorf("at the Monitoring Time: %+v", got)
	}
	for range 7 {
		w.path.packet(1, 1, 1000)
		w.settle()
	}
	got := w.smf.usage()
	if len(got) != 2 || !got[0].BeforeMonitoring || got[0].Volume.Uplink != 7000 || !got[1].AfterMonitoring || got[1].Volume.Uplink < 5000 {
		t.Errorf("%+v", got)
	}
}

func TestLinked(t *testing.T) {
	w := newWorld(t)
	s := countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(5000)})
	s.URRs = append(s.URRs, session.URR{ID: 2, Volume: true, Trigger: session.TriggerLinked, Linked: []uint32{1}})
	s.PDRs[0].URRs = []uint32{1, 2}
	w.establish(s)
	for range 7 {
		w.path.packet(1, 1, 1000)
		w.settle()
	}
	got := w.smf.usage()
	if len(got) != 2 || got[1].URR != 2 || got[1].Cause != session.CauseLinked || got[1].Volume != got[0].Volume {
		t.Errorf("%+v", got)
	}
}

func TestInactivityTimer(t *testing.T) {
	w := newWorld(t)
	s := sample.Session(1)
	s.URRs, s.InactivityTimer = nil, 10*time.Second
	s.PDRs[0].URRs, s.PDRs[1].URRs = nil, nil
	w.establish(s)
	w.pass(5 * time.Second)
	w.path.packet(1, 1, 100)
	w.pass(30 * time.Second)
	if got := w.smf.take(); len(got) != 1 || !got[0].Inactive {
		t.Errorf("%+v", got)
	}
}

// What an SMF does not take is sent again, and nothing more until it does; all
// that was counted meanwhile is in the next report.
func TestReportsWaitForAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.smf.silent = true
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(10_000)}))
	for range 50 {
		w.path.packet(1, 1, 1000)
		w.settle()
	}
	first := w.smf.usage()
	if len(first) != 1 {
		t.Fatalf("%d reports without an answer", len(first))
	}
	w.smf.waiting[0](pfcp.ErrNoAnswer)
	w.pass(31 * time.Second)
	again := w.smf.usage()
	if len(again) != 1 || again[0].Sequence != first[0].Sequence || again[0].Volume != first[0].Volume {
		t.Fatalf("sent again: %+v, first %+v", again, first)
	}
	w.smf.silent = false
	w.smf.waiting[1](nil)
	w.pass(wheel.Tick)
	next := w.smf.usage()
	if len(next) != 1 || next[0].Sequence != 1 || first[0].Volume.Uplink+next[0].Volume.Uplink != 50_000 {
		t.Errorf("next: %+v", next)
	}
}

// Rules that go are counted to their last packet: in the fake, one that comes
// with each put.
func TestRemovedRuleIsCountedToItsEnd(t *testing.T) {
	w := newWorld(t)
	s := countedBy(session.URR{Volume: true})
	w.establish(s)
	var sent uint64
	w.path.during = func(before datapath.Session) {
		for _, r := range before.Rules { // the last packets by what held so far
			if v := w.path.volumes[1][r.ID]; v != nil && r.Action == datapath.ActionForward {
				v.Packets++
				v.Bytes += 100
				sent += 100
			}
		}
	}
	to := sample.Copy(t, s)
	to.PDRs[1].ID = 9
	reports := w.modify(s, to, session.Modification{})
	if len(reports) != 0 {
		t.Errorf("reports: %+v", reports)
	}
	w.path.during = nil
	last, err := w.remove(1)
	if err != nil || len(last) != 1 || last[0].Volume.Total() != sent || sent == 0 {
		t.Errorf("reported %+v, %v; sent %d", last, err, sent)
	}
}

func TestRemovedURR(t *testing.T) {
	w := newWorld(t)
	s := countedBy(session.URR{Volume: true})
	w.establish(s)
	w.path.packet(1, 2, 900)
	to := sample.Copy(t, s)
	to.URRs, to.PDRs[0].URRs, to.PDRs[1].URRs = nil, nil, nil
	reports := w.modify(s, to, session.Modification{})
	if len(reports) != 1 || reports[0].Cause != session.CauseTermination || reports[0].Volume.Downlink != 900 {
		t.Errorf("%+v", reports)
	}
}

// When a slice moves, what came by SRv6 up to then is counted once.
func TestSliceMovesCounted(t *testing.T) {
	w := newWorld(t)
	with := slice.Slice{Name: "a", N9: &slice.N9{Transport: slice.SRv6, Uplink: addr("fc00::1"), LocalSID: netip.MustParsePrefix("fc00:1::/64")}}
	if err := w.SetConfig(Config{Slices: []slice.Slice{with}}); err != nil {
		t.Fatal(err)
	}
	s := countedBy(session.URR{Volume: true})
	s.PDRs[1].PDI.TEID = 77
	w.establish(s)
	if at := w.path.rule(t, 1, 2).AtSID; at.Slice != 1 || w.path.sliceSIDs[with.N9.LocalSID] != 1 {
		t.Errorf("at the SID: %+v; %v", at, w.path.sliceSIDs)
	}
	w.path.packet(1, 2, 1000)
	if err := w.SetConfig(Config{Slices: []slice.Slice{{Name: "a"}}}); err != nil {
		t.Fatal(err)
	}
	if r := w.path.rule(t, 1, 1); r.Forward.Kind != datapath.ForwardTable || r.Forward.Slice != 1 || w.path.rule(t, 1, 2).AtSID.Slice != 0 {
		t.Errorf("moved: %+v", r)
	}
	w.path.packet(1, 2, 300)
	for range 3 {
		w.reports.check(w.store.Entry(1))
	}
	last, err := w.remove(1)
	if err != nil || len(last) != 1 || last[0].Volume.Downlink != 1300 {
		t.Errorf("%+v, %v", last, err)
	}
}

// A slice that cannot be moved stays where it was.
func TestSliceStays(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	w.path.failPut = errors.New("no")
	to := slice.Slice{Name: "a", N9: &slice.N9{Transport: slice.SRv6, Uplink: addr("fc00::1")}}
	if err := w.SetConfig(Config{Slices: []slice.Slice{to}}); err == nil {
		t.Fatal("moved")
	}
	w.path.failPut = nil
	w.establish(sample.Session(2))
	if r := w.path.rule(t, 2, 1); r.Forward.Kind != datapath.ForwardTable {
		t.Errorf("a new session: %+v", r)
	}
}

// The time of a packet is reported only where it was seen soon after.
func TestTimesOfPackets(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true}))
	ask := func() session.UsageReport {
		s := w.Session(1)
		return w.modify(s, s, session.Modification{QueryAll: true})[0]
	}
	w.path.packet(1, 1, 1000)
	w.pass(time.Minute)
	if r := ask(); !r.First.IsZero() || !r.Last.IsZero() {
		t.Errorf("nobody looked for a minute: %+v", r)
	}
	w.pass(time.Second)
	w.path.packet(1, 1, 1000)
	if r := ask(); r.First != w.at() || r.Last != w.at() {
		t.Errorf("looked a second ago: %+v", r)
	}
}

// free5GC has two URRs for each PDR, one before and one after QoS enforcement:
// what is refused is in the first.
func TestBeforeQoS(t *testing.T) {
	w := newWorld(t)
	s := countedBy(session.URR{Volume: true, BeforeQoS: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(100_000)})
	s.URRs = append(s.URRs, session.URR{ID: 2, Volume: true})
	for i := range s.PDRs {
		s.PDRs[i].URRs = []uint32{1, 2}
	}
	w.establish(s)
	for i := range 1000 {
		w.path.packet(1, 1, 700)
		if i < 400 || i > 600 { // nothing is refused in between
			w.path.refuse(1, 1, 1000)
		}
		if i%4 == 0 {
			w.path.refuse(1, 2, 500)
		}
		w.settle()
	}
	reports := w.smf.usage()
	last, err := w.remove(1)
	if err != nil {
		t.Fatal(err)
	}
	var before, after session.Measured
	for i, r := range append(reports, last...) {
		if i < len(reports) && (r.URR != 1 || r.Volume.Total() < 100_000 || r.Volume.Total() > 103_000) {
			t.Errorf("report %d: URR %d, %d octets", i, r.URR, r.Volume.Total())
		}
		sum := &before
		if r.URR == 2 {
			sum = &after
		}
		sum.Uplink += r.Volume.Uplink
		sum.Downlink += r.Volume.Downlink
	}
	if want := (session.Measured{Uplink: 700_000 + 799_000, Downlink: 125_000}); before != want {
		t.Errorf("before QoS enforcement: %+v, want %+v", before, want)
	}
	if want := (session.Measured{Uplink: 700_000}); after != want {
		t.Errorf("behind it: %+v, want %+v", after, want)
	}
	if len(reports) < 15 {
		t.Errorf("%d reports of 1,624,000 octets by 100,000", len(reports))
	}
}

// What is refused takes from a quota that is measured before QoS enforcement, also
// where all of it is.
func TestQuotaBeforeQoS(t *testing.T) {
	for _, forwards := range []bool{true, false} {
		w := newWorld(t)
		w.establish(countedBy(session.URR{Volume: true, BeforeQoS: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(1_000_000)}))
		for range 3000 {
			if forwards {
				w.path.packet(1, 1, 300)
			}
			w.path.refuse(1, 1, 700)
			w.settle()
		}
		reports := w.smf.usage()
		if len(reports) != 1 || reports[0].Cause != session.CauseVolumeQuota {
			t.Fatalf("reports %+v", reports)
		}
		if used := reports[0].Volume.Uplink; used < 999_000 || used > 1_003_000 {
			t.Errorf("the quota of 1,000,000 ended after %d (forwards: %v)", used, forwards)
		}
		if w.path.packet(1, 1, 300) {
			t.Error("a packet goes without a quota")
		}
	}
}

// The first packet of a URR that counts time is reported, even if it is refused.
func TestTimeBeforeQoS(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Time: true, BeforeQoS: true, Trigger: session.TriggerTimeThreshold, TimeThreshold: time.Minute}))
	for range 70 {
		w.path.refuse(1, 1, 100)
		w.pass(time.Second)
	}
	if reports := w.smf.usage(); len(reports) != 1 || reports[0].Duration < 59*time.Second {
		t.Errorf("reports %+v", reports)
	}
}
