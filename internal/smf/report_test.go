package smf

import (
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// What a UPF asks is answered, and said.
func TestReports(t *testing.T) {
	u := newUPF(t)
	o := fast(u, Open5GS)
	o.Heartbeat = time.Hour
	c := dial(t, o)
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := c.Establish(t.Context(), spec(Open5GS, 1))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_700_000_100, 0).UTC()
	usage := message.NewSessionReportRequest(0, 0, s.Info().CPSEID, 1, 0, ie.NewReportType(0, 0, 1, 0),
		ie.NewUsageReportWithinSessionReportRequest(ie.NewURRID(7), ie.NewURSEQN(0), ie.NewUsageReportTrigger(0x02, 0, 0), ie.NewStartTime(start),
			ie.NewVolumeMeasurement(0x07, 3, 1, 2, 0, 0, 0), ie.NewDurationMeasurement(12*time.Second)))
	answered(t, u.ask(usage), ie.CauseRequestAccepted)
	duration := Duration(12 * time.Second)
	says(t, c, Report{Kind: ReportSession, Group: s.Info().Group, SEID: s.Info().CPSEID, Usage: []Usage{{
		URR: 7, Triggers: []string{"VOLTH"}, Total: new(uint64(3)), Uplink: new(uint64(1)), Downlink: new(uint64(2)), Duration: &duration, Start: &start,
	}}})
	answered(t, u.ask(message.NewSessionReportRequest(0, 0, s.Info().CPSEID, 8, 0, ie.NewReportType(0, 0, 1, 0),
		ie.NewUsageReportWithinSessionReportRequest(ie.NewURRID(7), ie.NewUsageReportTrigger(0, 0x40, 0), ie.NewEthernetTrafficInformation(
			ie.New(ie.MACAddressesDetected, []byte{2, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0}),
			ie.New(ie.MACAddressesRemoved, []byte{1, 2, 0, 0, 0, 0, 3, 0, 0}), ie.New(ie.MACAddressesRemoved, []byte{9, 2}))))), ie.CauseRequestAccepted)
	says(t, c, Report{Kind: ReportSession, Group: s.Info().Group, SEID: s.Info().CPSEID, Usage: []Usage{{
		URR: 7, Triggers: []string{"MACAR"}, Detected: []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}, Removed: []string{"02:00:00:00:00:03"},
	}}})
	answered(t, u.ask(message.NewSessionReportRequest(0, 0, 0x999, 2, 0, ie.NewReportType(0, 0, 0, 1), ie.NewDownlinkDataReport(ie.NewPDRID(1)))), ie.CauseSessionContextNotFound)
	says(t, c, Report{Kind: ReportSession, Session: -1, SEID: 0x999, DownlinkData: []uint16{1}})
	u.ask(message.NewSessionReportRequest(0, 0, s.Info().CPSEID, 3, 0, ie.NewReportType(0, 1, 0, 0), ie.NewErrorIndicationReport(ie.NewFTEID(1, 0x55, net.IPv4(192, 0, 2, 1), nil, 0))))
	says(t, c, Report{Kind: ReportSession, Group: s.Info().Group, SEID: s.Info().CPSEID, ErrorIndications: []Created{{TEID: 0x55, Addr4: addr("192.0.2.1")}}})
	u.ask(message.NewNodeReportRequest(4, ie.NewNodeID("127.0.0.3", "", ""), ie.NewNodeReportType(1), ie.NewUserPlanePathFailureReport(ie.NewRemoteGTPUPeer(2, "192.0.2.1", "", 0, ""))))
	r := <-c.Reports()
	if r.Kind != ReportNode || r.Session != -1 {
		t.Errorf("%+v", r)
	}
	h := u.ask(message.NewHeartbeatRequest(5, ie.NewRecoveryTimeStamp(u.started), nil)).(*message.HeartbeatResponse)
	if stamp, err := h.RecoveryTimeStamp.RecoveryTimeStamp(); err != nil || stamp.Unix() != c.options.Started.Unix() {
		t.Errorf("heartbeat: %v, %v", stamp, err)
	}
	if len(c.Reports()) != 0 {
		t.Errorf("a heartbeat is reported: %+v", <-c.Reports())
	}
	u.ask(message.NewHeartbeatRequest(6, ie.NewRecoveryTimeStamp(u.started.Add(time.Minute)), nil))
	says(t, c, Report{Kind: ReportRestarted, Session: -1})
	u.ask(message.NewAssociationReleaseRequest(7, ie.NewNodeID("127.0.0.3", "", "")))
	says(t, c, Report{Kind: ReportReleased, Session: -1})
}

func answered(t *testing.T, m message.Message, want uint8) {
	t.Helper()
	a, ok := m.(*message.SessionReportResponse)
	if !ok {
		t.Fatalf("%+v", m)
	}
	if cause, err := a.Cause.Cause(); err != nil || cause != want {
		t.Errorf("cause %d, %v, want %d", cause, err, want)
	}
}

func says(t *testing.T, c *Client, want Report) {
	t.Helper()
	select {
	case got := <-c.Reports():
		if time.Since(got.Time) > time.Minute {
			t.Errorf("of %v", got.Time)
		}
		got.Time = time.Time{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	case <-time.After(2 * time.Second):
		t.Fatalf("no report, want %+v", want)
	}
}

// A report that nobody takes is not answered: the UPF sends it again, and then
// it is there once.
func TestReportsWait(t *testing.T) {
	u := newUPF(t)
	o := fast(u, Open5GS)
	o.Reports = 1
	c := dial(t, o)
	s, err := c.Establish(t.Context(), spec(Open5GS, 1))
	if err != nil {
		t.Fatal(err)
	}
	report := func(sequence uint32) message.Message {
		return message.NewSessionReportRequest(0, 0, s.Info().CPSEID, sequence, 0, ie.NewReportType(0, 0, 0, 1), ie.NewDownlinkDataReport(ie.NewPDRID(uint16(sequence))))
	}
	u.ask(report(1))
	u.send(report(2), c.options.Local)
	select {
	case a := <-u.answers:
		t.Errorf("answered, and nobody has taken it: %+v", a)
	case <-time.After(200 * time.Millisecond):
	}
	<-c.Reports()
	u.ask(report(2))
	if r := <-c.Reports(); !reflect.DeepEqual(r.DownlinkData, []uint16{2}) || len(c.Reports()) != 0 {
		t.Errorf("%+v, and %d more", r, len(c.Reports()))
	}
}

// Heartbeats are sent once there is an association; a silent UPF is said.
func TestHeartbeats(t *testing.T) {
	u := newUPF(t)
	c := dial(t, Options{UPF: u.addr(), Timeout: 20 * time.Millisecond, Attempts: 2, Heartbeat: 50 * time.Millisecond})
	time.Sleep(120 * time.Millisecond)
	if n := len(u.of(message.MsgTypeHeartbeatRequest)); n != 0 {
		t.Errorf("%d heartbeats without an association", n)
	}
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if len(u.of(message.MsgTypeHeartbeatRequest)) >= 3 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(c.Reports()) != 0 || len(u.of(message.MsgTypeHeartbeatRequest)) < 3 {
		t.Fatalf("%d reports, %d heartbeats", len(c.Reports()), len(u.of(message.MsgTypeHeartbeatRequest)))
	}
	u.change(func() { u.lose = func(int, uint8) bool { return true } })
	says(t, c, Report{Kind: ReportPathLost, Session: -1})
}

// Whatever comes in, the client lives, and answers what can be answered.
func FuzzTake(f *testing.F) {
	seed := message.NewSessionReportRequest(0, 0, 1, 1, 0, ie.NewReportType(0, 0, 1, 1), ie.NewDownlinkDataReport(ie.NewPDRID(1)),
		ie.NewUsageReportWithinSessionReportRequest(ie.NewURRID(7), ie.NewURSEQN(0), ie.NewUsageReportTrigger(0x02, 0, 0), ie.NewVolumeMeasurement(0x3f, 3, 1, 2, 0, 0, 0)))
	b, err := seed.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x21, 51, 0, 12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0})
	c, err := Dial(Options{UPF: free("127.0.0.3"), Local: free("127.0.0.1"), Sequence: 1, Heartbeat: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	if _, err := c.Add(spec(Open5GS, 4)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok := wire.ParseHeader(b); ok {
			var a wire.Answer
			a.Read(h.Payload)
			if _, err := usages(h.Payload); err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
		}
		c.serve(b, c.options.Local)
		for len(c.reports) > 0 {
			<-c.reports
		}
	})
}
