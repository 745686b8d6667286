package pfcp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

func TestNodeReports(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	for _, peer := range []string{"192.0.2.1", "2001:db8::1"} {
		b.s.PathFailure(netip.MustParseAddr(peer), []string{"nobody", m.addr.String()}, func(smf string) { t.Errorf("%s refuses", smf) })
		got, ok := m.receive(patience).(*message.NodeReportRequest)
		if !ok || !got.NodeReportType.HasUPFR() || got.UserPlanePathFailureReport == nil {
			t.Fatalf("reported %v", got)
		}
		f, err := got.UserPlanePathFailureReport.RemoteGTPUPeer()
		if err != nil || f.IPv4Address.String() != peer && f.IPv6Address.String() != peer {
			t.Errorf("peer %+v, %v", f, err)
		}
		m.send(message.NewNodeReportResponse(got.Sequence(), m.node(), ie.NewCause(ie.CauseRequestAccepted), nil))
		b.s.PathRecovery(netip.MustParseAddr(peer), []string{m.addr.String()})
		back, ok := m.receive(patience).(*message.NodeReportRequest)
		if !ok || back.UserPlanePathRecoveryReport == nil {
			t.Fatalf("reported %v", back)
		}
		m.send(message.NewNodeReportResponse(back.Sequence(), m.node(), ie.NewCause(ie.CauseRequestAccepted), nil))
	}
}

// An SMF that refuses Node Reports, or answers heartbeats but not them, gets no second
// one; other SMFs get theirs.
func TestNodeReportsRefused(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) { c.RetryAfter, c.Retries = 500*time.Millisecond, 1 })
	refuses, ignores, takes := b.smf(2), b.smf(3), b.smf(4)
	smfs := []string{}
	for _, m := range []*smf{refuses, ignores, takes} {
		m.associate()
		smfs = append(smfs, m.addr.String())
	}
	refused := make(chan string, 8)
	answer := func(m *smf, cause uint8) {
		t.Helper()
		got, ok := m.receive(patience).(*message.NodeReportRequest)
		if !ok {
			t.Fatalf("%s got %v", m.addr, got)
		}
		m.send(message.NewNodeReportResponse(got.Sequence(), m.node(), ie.NewCause(cause), nil))
	}
	b.s.PathFailure(netip.MustParseAddr("192.0.2.1"), smfs, func(smf string) { refused <- smf })
	answer(refuses, ie.CauseServiceNotSupported)
	answer(takes, ie.CauseRequestAccepted)
	got := []string{<-refused, <-refused}
	if slices.Sort(got); !slices.Equal(got, smfs[:2]) {
		t.Errorf("%v refuse", got)
	}
	for ignores.receive(silence) != nil {
	}
	b.s.PathRecovery(netip.MustParseAddr("192.0.2.1"), smfs)
	answer(takes, ie.CauseRequestAccepted)
	b.s.PathFailure(netip.MustParseAddr("192.0.2.1"), smfs, func(smf string) { refused <- smf })
	answer(takes, ie.CauseRequestAccepted)
	if got := []string{<-refused, <-refused}; !slices.Equal(got, smfs[:2]) || refuses.receive(silence) != nil || ignores.receive(silence) != nil {
		t.Errorf("the second time: %v refuse, or were asked again", got)
	}
}
