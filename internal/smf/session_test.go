package smf

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/session"
)

// fast makes what is not answered fail soon.
func fast(u *upf, d Dialect) Options {
	return Options{UPF: u.addr(), Dialect: d, Timeout: 100 * time.Millisecond, Attempts: 3}
}

// Open5GS' SMF makes a pair of FARs for each QoS flow, and changes those of all.
func TestFARsOfFlows(t *testing.T) {
	u := newUPF(t)
	c := dial(t, fast(u, Open5GS))
	ctx := t.Context()
	if _, err := c.Associate(ctx); err != nil {
		t.Fatal(err)
	}
	one := spec(Open5GS, 1)
	one.Filters = []Filter{{Flow: "permit out udp from 198.51.100.7 5001 to assigned", QFI: 2}, {Flow: "permit out ip from any to assigned"}}
	s, err := c.Establish(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	handover := func(ctx context.Context, s Session) error {
		return c.Handover(ctx, s, Tunnel{Address: netip.MustParseAddr("192.0.2.7"), TEID: 0x2000}, true)
	}
	for name, do := range map[string]func(context.Context, Session) error{"idle": c.Idle, "handover": handover} {
		if err := do(ctx, s); err != nil {
			t.Fatal(err)
		}
		var fars []uint32
		for _, update := range u.lastModification().UpdateFAR {
			id, err := update.FARID()
			if err != nil {
				t.Fatal(err)
			}
			fars = append(fars, id)
		}
		if want := []uint32{1, 4}; !slices.Equal(fars, want) {
			t.Errorf("%s: FARs %v, want %v", name, fars, want)
		}
	}
}

// One session through everything, with what the UPF reads of it.
func TestConversation(t *testing.T) {
	u := newUPF(t)
	c := dial(t, fast(u, Open5GS))
	ctx := t.Context()
	a, err := c.Associate(ctx)
	if err != nil || a.NodeID != "127.0.0.3" || !a.Started.Equal(u.started) || !reflect.DeepEqual(a.Features, []string{"FTUP", "EMPU"}) {
		t.Fatalf("%+v, %v", a, err)
	}
	one := spec(Open5GS, 1)
	one.URR = &URR{VolumeThreshold: &session.Volume{Total: new(uint64(1000))}}
	s, err := c.Establish(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	info := s.Info()
	if !info.Live || info.UPSEID != 0xab00000001 || info.UE4.String() != "10.0.0.1" || info.Access == nil || info.Access.TEID != 1 || info.Access.Addr4.String() != "127.0.0.3" || info.Peer.TEID != 0x1000 {
		t.Fatalf("%+v", info)
	}
	goes(t, u, "192.0.2.1", 0x1000, false)

	if err := c.Handover(ctx, s, Tunnel{Address: netip.MustParseAddr("2001:db8::7"), TEID: 0x2000}, true); err != nil {
		t.Fatal(err)
	}
	goes(t, u, "2001:db8::7", 0x2000, true)

	if err := c.Idle(ctx, s); err != nil {
		t.Fatal(err)
	}
	if action := child(u.lastModification().UpdateFAR[0], ie.ApplyAction); !action.HasBUFF() || !action.HasNOCP() || action.HasFORW() {
		t.Errorf("idle: %v", action.Payload)
	}
	paged(t, u, c, s)

	u.change(func() {
		u.usage = ie.NewUsageReportWithinSessionModificationResponse(ie.NewURRID(1), ie.NewURSEQN(3), ie.NewUsageReportTrigger(0x80, 0, 0),
			ie.NewVolumeMeasurement(0x3f, 30, 10, 20, 3, 1, 2))
	})
	want := []Usage{{URR: 1, Sequence: 3, Triggers: []string{"IMMER"}, Total: new(uint64(30)), Uplink: new(uint64(10)), Downlink: new(uint64(20)),
		TotalPackets: new(uint64(3)), UplinkPackets: new(uint64(1)), DownlinkPackets: new(uint64(2))}}
	if got, err := c.Query(ctx, s); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("query: %+v, %v", got, err)
	}
	if m := u.lastModification(); len(m.QueryURR) != 1 || m.SEID() != info.UPSEID {
		t.Errorf("query: %+v", m)
	}
	if got, err := c.Delete(ctx, s); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("delete: %+v, %v", got, err)
	}
	if s.Info().Live {
		t.Error("deleted, and live")
	}
	if err := c.Idle(ctx, s); err == nil || !strings.Contains(err.Error(), "not established") {
		t.Errorf("idle of a session that is gone: %v", err)
	}
	if err := c.Release(ctx); err != nil {
		t.Error(err)
	}
}

// goes says that the last modification sends downlink packets there.
func goes(t *testing.T, u *upf, addr string, teid uint32, endMarker bool) {
	t.Helper()
	m := u.lastModification()
	if len(m.UpdateFAR) != 1 {
		t.Fatalf("%d FARs are updated", len(m.UpdateFAR))
	}
	parameters := child(m.UpdateFAR[0], ie.UpdateForwardingParameters)
	created, err := child(parameters, ie.OuterHeaderCreation).OuterHeaderCreation()
	if err != nil {
		t.Fatal(err)
	}
	ip := created.IPv4Address
	if ip == nil {
		ip = created.IPv6Address
	}
	if ip.String() != addr || created.TEID != teid {
		t.Errorf("downlink packets go to %s, %#x, want %s, %#x", ip, created.TEID, addr, teid)
	}
	if flags := child(parameters, ie.PFCPSMReqFlags); (flags != nil && flags.HasSNDEM()) != endMarker {
		t.Errorf("end marker asked for: %v, want %v", !endMarker, endMarker)
	}
}

// paged: nothing is sent before the report comes, then packets go on.
func paged(t *testing.T, u *upf, c *Client, s Session) {
	t.Helper()
	before := len(u.of(message.MsgTypeSessionModificationRequest))
	done := make(chan error, 1)
	go func() { done <- c.Page(context.Background(), s) }()
	select {
	case err := <-done:
		t.Fatalf("page did not wait for the report: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if n := len(u.of(message.MsgTypeSessionModificationRequest)); n != before {
		t.Errorf("%d modifications before the report", n-before)
	}
	report := message.NewSessionReportRequest(0, 0, s.Info().CPSEID, 77, 0, ie.NewReportType(0, 0, 0, 1), ie.NewDownlinkDataReport(ie.NewPDRID(1)))
	for range 2 { // the second is the UPF's retransmission: answered, not reported again
		a, ok := u.ask(report).(*message.SessionReportResponse)
		if cause, err := a.Cause.Cause(); !ok || err != nil || cause != ie.CauseRequestAccepted || a.SEID() != s.Info().UPSEID || a.SequenceNumber != 77 {
			t.Errorf("report: %+v", a)
		}
	}
	if err := <-done; err != nil {
		t.Errorf("page: %v", err)
	}
	goes(t, u, "2001:db8::7", 0x2000, false)
	if r := <-c.Reports(); r.Kind != ReportSession || r.Session != 0 || !reflect.DeepEqual(r.DownlinkData, []uint16{1}) || len(c.Reports()) != 0 {
		t.Errorf("%+v, and %d more", r, len(c.Reports()))
	}
}

// What a UPF refuses is an error with cause, IE and rule; nothing is thought to
// be there.
func TestRefused(t *testing.T) {
	u := newUPF(t)
	c := dial(t, fast(u, Open5GS))
	u.change(func() {
		u.say = func(m message.Message) []*ie.IE {
			if m.MessageType() == message.MsgTypeSessionEstablishmentRequest {
				return []*ie.IE{ie.NewCause(ie.CauseMandatoryIEIncorrect), ie.NewOffendingIE(ie.FTEID), ie.NewFailedRuleID(ie.RuleIDTypePDR, 2)}
			}
			return nil
		}
	})
	_, err := c.Establish(t.Context(), spec(Open5GS, 1))
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Cause != ie.CauseMandatoryIEIncorrect || refused.Offending != ie.FTEID || refused.Rule != "PDR 2" {
		t.Fatalf("%v", err)
	}
	if want := "establish refused: mandatory IE incorrect (cause 69), offending IE F-TEID (21), failed rule PDR 2"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if len(c.Groups()) != 0 {
		t.Error("a group stays")
	}

	u.change(func() { u.say = nil })
	g, err := c.Add(spec(Open5GS, 5))
	if err != nil {
		t.Fatal(err)
	}
	u.change(func() {
		u.say = func(m message.Message) []*ie.IE {
			if u.last == 3 { // the SEIDs that were handed out: the fourth
				return []*ie.IE{ie.NewCause(ie.CauseNoResourcesAvailable)}
			}
			return nil
		}
	})
	r, err := g.Establish(t.Context(), Pace{Window: 1})
	if err != nil || r.Requests != 5 || r.Failures != 1 || g.Live() != 4 || !errors.As(r.Err(), &refused) {
		t.Errorf("%+v, %v, %d live", r, err, g.Live())
	}
	if want := "establish: 1 of 5 failed; 1 times: establish refused: no resources available (cause 75)"; r.Err() == nil || r.Err().Error() != want {
		t.Errorf("%v, want %s", r.Err(), want)
	}
}

// A handover that is refused leaves the tunnel as it was.
func TestRefusedHandover(t *testing.T) {
	u := newUPF(t)
	c := dial(t, fast(u, Free5GC))
	s, err := c.Establish(t.Context(), spec(Free5GC, 1))
	if err != nil {
		t.Fatal(err)
	}
	u.change(func() {
		u.say = func(message.Message) []*ie.IE { return []*ie.IE{ie.NewCause(ie.CauseRequestRejected)} }
	})
	if err := c.Handover(t.Context(), s, Tunnel{Address: netip.MustParseAddr("192.0.2.9"), TEID: 9}, true); err == nil {
		t.Error("refused, and no error")
	}
	u.change(func() { u.say = nil })
	if err := c.Idle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	goes(t, u, "192.0.2.1", 0x1000, false) // free5GC says the tunnel even then
}

// An answer that accepts, and lacks what must be in it, is a failure.
func TestBadAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		change     func(u *upf)
	}{
		{"no Cause", "has no Cause", func(u *upf) { u.say = func(message.Message) []*ie.IE { return []*ie.IE{ie.NewOffendingIE(1)} } }},
		{"no F-TEID", "has no F-TEID", func(u *upf) { u.noCreated = true }},
		{"another's SEID", "is for SEID 0x63", func(u *upf) { u.otherSEID = 0x63 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUPF(t)
			c := dial(t, fast(u, Open5GS))
			u.change(func() { tt.change(u) })
			if _, err := c.Establish(t.Context(), spec(Open5GS, 1)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// Sessions of which the UPF chooses the UE's addresses, and one between two
// UPFs, whose next one becomes known later.
func TestChosenAndIntermediate(t *testing.T) {
	u := newUPF(t)
	c := dial(t, fast(u, Open5GS))
	s, err := c.Establish(t.Context(), Spec{ChooseUE: "ipv4v6"})
	if err != nil || s.Info().UE4.String() != "10.99.0.7" || s.Info().UE6.String() != "2001:db8:99:7::" {
		t.Errorf("%+v, %v", s.Info(), err)
	}
	s, err = c.Establish(t.Context(), Spec{Role: Intermediate, NetworkInstance: "a", Access: &Tunnel{Address: netip.MustParseAddr("192.0.2.1"), TEID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if i := s.Info(); i.Access == nil || i.Core == nil || i.Access.TEID == i.Core.TEID || i.Next != nil {
		t.Errorf("%+v", i)
	}
	next := Tunnel{Address: netip.MustParseAddr("192.0.2.77"), TEID: 0x77}
	if err := c.Modify(t.Context(), s, Change{Core: &next}); err != nil {
		t.Fatal(err)
	}
	goes(t, u, "192.0.2.77", 0x77, false)
	if i := s.Info(); i.Next == nil || i.Next.TEID != 0x77 {
		t.Errorf("%+v", i)
	}
	if err := c.Modify(t.Context(), s, Change{}); err == nil || !strings.Contains(err.Error(), "nothing is changed") {
		t.Error(err)
	}
}

// What is saved is gone on with by another client: same sessions, Recovery Time
// Stamp, and sequence numbers that the UPF has not seen.
func TestSave(t *testing.T) {
	u := newUPF(t)
	first, err := Dial(Options{UPF: u.addr(), Local: free("127.0.0.1"), NodeID: "smf.example", Started: time.Unix(1_600_000_000, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := first.Establish(t.Context(), spec(Open5GS, 1))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(first.Save())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	saved := &Saved{}
	if err := json.Unmarshal(text, saved); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(Options{UPF: saved.UPF, Local: saved.Local, NodeID: saved.NodeID, Dialect: saved.Dialect, Started: saved.Started, Sequence: saved.Sequence})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Restore(saved); err != nil {
		t.Fatal(err)
	}
	again := c.Groups()[0].Session(0)
	if !reflect.DeepEqual(again.Info(), s.Info()) || !c.options.Started.Equal(time.Unix(1_600_000_000, 0)) {
		t.Errorf("%+v, want %+v", again.Info(), s.Info())
	}
	if err := c.Idle(t.Context(), again); err != nil {
		t.Error(err)
	}
	if other, err := c.Establish(t.Context(), Spec{Name: "more", ChooseUE: "ipv4"}); err != nil || other.Info().CPSEID <= s.Info().CPSEID {
		t.Errorf("%+v, %v", other.Info(), err)
	}
	seen := map[uint32]bool{}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.requests {
		if n := r.message.Sequence(); seen[n] {
			t.Errorf("sequence number %d twice", n)
		} else {
			seen[n] = true
		}
	}
}
