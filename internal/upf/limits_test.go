package upf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	dpsettings "github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/session"
	instrument "github.com/culvert-net/culvert/internal/smf"
)

// As many sessions as the limit says fit, as SMFs make them: with a session AMBR, a
// QFI, a URR, Open5GS' rules of router solicitations, and a dedicated QoS flow. One
// more is refused with Cause 75, and the others stay.
func TestLimitHoldsSessionsOfCores(t *testing.T) {
	const most = 1024
	rate := &session.BitRate{Uplink: 1000000, Downlink: 1000000}
	ambr := instrument.Spec{
		Count: most, QFI: 1, MBR: rate, NetworkInstance: "internet", URR: &instrument.URR{Start: true},
		UE4: netip.MustParsePrefix("10.60.0.1/16"), UE6: netip.MustParsePrefix("2001:db8:60::/48"),
		Filters: []instrument.Filter{{Flow: "permit out udp from 198.51.100.7 5001 to assigned", QFI: 2, MBR: rate}},
		Access:  &instrument.Tunnel{Address: addr("127.93.0.20"), TEID: 0x1000},
	}
	open5gs, free5gc := ambr, ambr
	open5gs.CPFunction = addr("127.93.0.3")
	free5gc.Local = &instrument.Local{Address: addr("10.200.0.8"), AccessTEID: 0x7f000001}
	for dialect, spec := range map[instrument.Dialect]instrument.Spec{instrument.Open5GS: open5gs, instrument.Free5GC: free5gc} {
		t.Run(string(dialect), func(t *testing.T) {
			n := newN4With(t, dpsettings.Limits{
				SIDs: 64, Policies: 16, SegmentLists: 16, Tunnels: 64, Routes: 64, Adjacencies: 64, Sessions: most})
			c, err := instrument.Dial(instrument.Options{
				UPF: netip.MustParseAddrPort("127.93.0.8:8805"), Local: netip.MustParseAddrPort("127.93.0.3:8805"), NodeID: "127.93.0.3", Dialect: dialect,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Associate(t.Context()); err != nil {
				t.Fatal(err)
			}
			establish(t, c, spec)
			if n.Len() != most {
				t.Fatalf("%d sessions of %d", n.Len(), most)
			}
			spec.Name, spec.Count, spec.UE4, spec.UE6 = "more", 1, netip.MustParsePrefix("10.61.0.1/16"), netip.Prefix{}
			if spec.Local != nil {
				spec.Local = &instrument.Local{Address: spec.Local.Address, AccessTEID: 0x7e000001}
			}
			g, err := c.Add(spec)
			if err != nil {
				t.Fatal(err)
			}
			r, err := g.Establish(t.Context(), instrument.Pace{})
			var refused *instrument.RefusedError
			if err != nil || !errors.As(r.Err(), &refused) || refused.Cause != 75 || n.Len() != most {
				t.Errorf("one more: %v, %v; %d sessions are left", err, r.Err(), n.Len())
			}
		})
	}
}

// establish sets sessions up, and has them forward.
func establish(t *testing.T, c *instrument.Client, spec instrument.Spec) {
	t.Helper()
	g, err := c.Add(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(context.Context, instrument.Pace) (instrument.Result, error){g.Establish, g.Forward} {
		if r, err := step(t.Context(), instrument.Pace{}); err != nil || r.Err() != nil {
			t.Fatalf("%v, %v", err, r.Err())
		}
	}
}

// A session has at most 64 filters in a direction, and 128 PDRs. One with more is refused
// with Cause 75 and leaves nothing; what was there stays.
func TestRulesOfASession(t *testing.T) {
	n := newN4(t)
	c, err := instrument.Dial(instrument.Options{
		UPF: netip.MustParseAddrPort("127.93.0.8:8805"), Local: netip.MustParseAddrPort("127.93.0.3:8805"), NodeID: "127.93.0.3",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := instrument.Spec{
		QFI: 1, UE4: netip.MustParsePrefix("10.60.0.1/16"), Access: &instrument.Tunnel{Address: addr("127.93.0.20"), TEID: 0x1000},
	}
	for port := range 62 { // a PDR each way, as the session itself has
		spec.Filters = append(spec.Filters, instrument.Filter{Flow: fmt.Sprintf("permit out udp from 198.51.100.7 %d to assigned", 5000+port)})
	}
	establish(t, c, spec)
	used := fmt.Sprint(n.path.Usage())
	spec.Name, spec.UE4, spec.Filters = "more", netip.MustParsePrefix("10.60.0.2/16"), append(spec.Filters, spec.Filters[:2]...)
	g, err := c.Add(spec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := g.Establish(t.Context(), instrument.Pace{})
	var refused *instrument.RefusedError
	if err != nil || !errors.As(r.Err(), &refused) || refused.Cause != 75 {
		t.Errorf("130 PDRs: %v, %v", err, r.Err())
	}
	eventually(t, "the refused session leaves something", func() bool { return n.Len() == 1 && fmt.Sprint(n.path.Usage()) == used })
}
