package pfcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
	instrument "github.com/culvert-net/culvert/internal/smf"
)

// dialInstrument is `culvert smf`, which shares no code with the server.
func dialInstrument(t *testing.T, b *bed, d instrument.Dialect) *instrument.Client {
	t.Helper()
	c, err := instrument.Dial(instrument.Options{
		UPF: netip.AddrPortFrom(b.addr(1), Port), Local: netip.AddrPortFrom(b.addr(9), Port), Dialect: d,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if a, err := c.Associate(t.Context()); err != nil || a.NodeID != b.addr(1).String() || !slices.Contains(a.Features, "FTUP") {
		t.Fatalf("%+v, %v", a, err)
	}
	return c
}

// instrumentSpec has a rule of each kind.
func instrumentSpec(d instrument.Dialect, count int) instrument.Spec {
	s := instrument.Spec{
		Name: "many", Count: count, UE4: netip.MustParsePrefix("10.45.0.0/16"), UE6: netip.MustParsePrefix("2001:db8:45::/48"), NetworkInstance: "internet", DNN: "internet",
		Access: &instrument.Tunnel{Address: netip.MustParseAddr("192.0.2.1"), TEID: 0x1000}, QFI: 9, MBR: &session.BitRate{Uplink: 1000, Downlink: 2000},
		URR:     &instrument.URR{VolumeThreshold: &session.Volume{Total: new(uint64(1_000_000))}, Period: instrument.Duration(time.Minute)},
		Filters: []instrument.Filter{{Flow: "permit out udp from 198.51.100.7 5001 to assigned", QFI: 5}},
	}
	s.SNSSAI.SST, s.SNSSAI.SD = 1, "000001"
	if d == instrument.Free5GC {
		s.Local = &instrument.Local{Address: netip.MustParseAddr("10.200.0.8"), AccessTEID: 0x5000}
	} else {
		s.CPFunction = netip.MustParseAddr("10.200.0.1")
	}
	return s
}

// One session of each dialect's SMF, through everything.
func TestInstrument(t *testing.T) {
	for _, dialect := range []instrument.Dialect{instrument.Open5GS, instrument.Free5GC} {
		t.Run(string(dialect), func(t *testing.T) {
			b := newBed(t)
			c := dialInstrument(t, b, dialect)
			s, err := c.Add(instrumentSpec(dialect, 1))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(done(s.Establish(t.Context(), instrument.Pace{})), done(s.Forward(t.Context(), instrument.Pace{}))); err != nil {
				t.Fatal(err)
			}
			got := b.upf.only(t)
			snssai := session.SNSSAI{SST: 1, SD: 1, HasSD: true}
			if dialect == instrument.Open5GS {
				snssai.SD = 0x010000 // its SMF sends the octets in reverse order
			}
			if got.SEID != s.Info(0).UPSEID || got.CPSEID != s.Info(0).CPSEID || got.SNSSAI != snssai || got.PDNType != session.PDNIPv4v6 {
				t.Errorf("%+v, %+v", got, s.Info(0))
			}
			forwards(t, b, s, "192.0.2.1", 0x1000)
			for _, p := range got.PDRs {
				if p.PDI.Source == session.Access && p.PDI.TEID != s.Info(0).Access.TEID {
					t.Errorf("PDR %d: TEID %#x, the SMF got %#x", p.ID, p.PDI.TEID, s.Info(0).Access.TEID)
				}
			}
			to := instrument.Tunnel{Address: netip.MustParseAddr("2001:db8::2"), TEID: 0x2000}
			if err := done(s.Handover(t.Context(), instrument.Pace{}, to, true)); err != nil {
				t.Fatal(err)
			}
			forwards(t, b, s, "2001:db8::2", 0x2000)
			b.upf.mu.Lock()
			flows := map[instrument.Dialect]int{instrument.Open5GS: 2, instrument.Free5GC: 1}[dialect] // with a FAR
			if last := b.upf.changes[len(b.upf.changes)-1]; len(last.EndMarkers) != flows {
				t.Errorf("end markers: %+v", last)
			}
			b.upf.mu.Unlock()
			pages(t, b, c, s)
			if err := done(s.Delete(t.Context(), instrument.Pace{})); err != nil {
				t.Error(err)
			}
			b.upf.holdsNothing(t)
			if err := c.Release(t.Context()); err != nil {
				t.Error(err)
			}
			var refused *instrument.RefusedError
			if err := done(s.Establish(t.Context(), instrument.Pace{})); !errors.As(err, &refused) || refused.Cause != ie.CauseNoEstablishedPFCPAssociation {
				t.Errorf("without an association: %v", err)
			}
		})
	}
}

// done is the error of a procedure for one session.
func done(r instrument.Result, err error) error {
	if err == nil && r.Requests != 1 {
		err = fmt.Errorf("%s: %d requests", r.Procedure, r.Requests)
	}
	return errors.Join(err, r.Err())
}

// toAccess is the FAR of the session's downlink packets.
func toAccess(t *testing.T, b *bed) session.FAR {
	t.Helper()
	s := b.upf.only(t)
	i := slices.IndexFunc(s.PDRs, func(p session.PDR) bool { return p.PDI.Source == session.Core })
	j := slices.IndexFunc(s.FARs, func(f session.FAR) bool { return f.ID == s.PDRs[i].FAR })
	return s.FARs[j]
}

func forwards(t *testing.T, b *bed, s *instrument.Group, addr string, teid uint32) {
	t.Helper()
	want := session.OuterHeader{Kind: session.OuterGTPU, Addr: netip.MustParseAddr(addr), TEID: teid}
	f := toAccess(t, b)
	if f.Action != session.Forward || f.Forwarding == nil || f.Forwarding.Outer == nil || *f.Forwarding.Outer != want {
		t.Errorf("%+v, want %+v", f, want)
	}
	if p := s.Info(0).Peer; p.TEID != teid {
		t.Errorf("the SMF thinks that it is %+v", p)
	}
}

// pages: idle, a report that packets wait, and forwarding again.
func pages(t *testing.T, b *bed, c *instrument.Client, s *instrument.Group) {
	t.Helper()
	if err := done(s.Idle(t.Context(), instrument.Pace{})); err != nil {
		t.Fatal(err)
	}
	if f := toAccess(t, b); f.Action != session.Buffer|session.Notify {
		t.Errorf("idle: %+v", f)
	}
	paged := make(chan error, 1)
	go func() { paged <- done(s.Page(context.Background(), instrument.Pace{}, nil)) }()
	reported := make(chan error, 1)
	b.s.Report(session.Report{SEID: s.Info(0).UPSEID, DownlinkData: []uint16{1}}, func(err error) { reported <- err })
	if err := errors.Join(<-reported, <-paged); err != nil {
		t.Errorf("page: %v", err)
	}
	if r := <-c.Reports(); r.Kind != instrument.ReportSession || r.Session != 0 || !slices.Equal(r.DownlinkData, []uint16{1}) {
		t.Errorf("%+v", r)
	}
	forwards(t, b, s, "2001:db8::2", 0x2000)
}

// Two thousand sessions at once: nothing is refused, and nothing is left.
func TestInstrumentLoad(t *testing.T) {
	for _, dialect := range []instrument.Dialect{instrument.Open5GS, instrument.Free5GC} {
		t.Run(string(dialect), func(t *testing.T) {
			b := newBed(t)
			c := dialInstrument(t, b, dialect)
			g, err := c.Add(instrumentSpec(dialect, 2000))
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []func(context.Context, instrument.Pace) (instrument.Result, error){g.Establish, g.Forward, g.Idle, g.Query, g.Delete} {
				r, err := step(t.Context(), instrument.Pace{Window: 256})
				if err != nil || r.Err() != nil || r.Requests != 2000 {
					t.Fatalf("%s: %v, %v", r.Procedure, err, r.Err())
				}
				t.Logf("%s: %.0f a second, P99 %.0f us, sent again %d", r.Procedure, r.PerSecond, r.P99, r.Retransmissions)
			}
			b.upf.holdsNothing(t)
		})
	}
}
