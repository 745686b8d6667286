package pfcp

import (
	"testing"

	"github.com/omec-project/pfcpsim/pkg/pfcpsim"
	sim "github.com/omec-project/pfcpsim/pkg/pfcpsim/session"
	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// TestPfcpsim is a session's life as pfcpsim has it: an SMF that others wrote.
// Its heartbeats (every 5 s, none here) have another Recovery Time Stamp each
// time, which means that it has lost its sessions once it confirms one.
func TestPfcpsim(t *testing.T) {
	b := newBed(t)
	c := pfcpsim.NewPFCPClient(b.addr(2).String())
	if err := c.ConnectN4(b.addr(1).String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.DisconnectN4)
	if err := c.SetupAssociation(); err != nil {
		t.Fatal(err)
	}
	const ul, dl = 1, 2
	pdrs := []*ie.IE{
		sim.NewPDRBuilder().WithID(ul).WithMethod(sim.Create).WithTEID(17).WithN3Address("198.51.100.1").
			WithSDFFilter("permit out ip from 0.0.0.0/0 to assigned").WithPrecedence(100).
			WithFARID(ul).AddQERID(4).AddQERID(1).MarkAsUplink().BuildPDR(),
		sim.NewPDRBuilder().WithID(dl).WithMethod(sim.Create).WithUEAddress("17.0.0.1").
			WithSDFFilter("permit out ip from 0.0.0.0/0 to assigned").WithPrecedence(100).
			WithFARID(dl).AddQERID(4).AddQERID(1).MarkAsDownlink().BuildPDR(),
	}
	fars := []*ie.IE{
		sim.NewFARBuilder().WithID(ul).WithMethod(sim.Create).WithAction(sim.ActionForward).
			WithDstInterface(ie.DstInterfaceCore).BuildFAR(),
		sim.NewFARBuilder().WithID(dl).WithMethod(sim.Create).WithAction(sim.ActionDrop).
			WithDstInterface(ie.DstInterfaceAccess).WithZeroBasedOuterHeaderCreation().BuildFAR(),
	}
	qers := []*ie.IE{
		sim.NewQERBuilder().WithID(4).WithMethod(sim.Create).WithUplinkMBR(60000).WithDownlinkMBR(60000).Build(),
		sim.NewQERBuilder().WithID(1).WithMethod(sim.Create).WithQFI(8).WithUplinkMBR(50000).WithDownlinkMBR(30000).
			WithUplinkGBR(50000).WithDownlinkGBR(30000).Build(),
	}
	urrs := []*ie.IE{
		sim.NewURRBuilder().WithID(1).WithMethod(sim.Create).WithMeasurementMethod(0, 1, 0).
			WithVolumeThreshold(1, 10000, 0, 0).
			WithReportingTrigger(sim.ReportingTrigger{Flags: sim.RPT_TRIG_VOLTH}).Build(),
	}
	s, err := c.EstablishSession(pdrs, fars, qers, urrs)
	if err != nil {
		t.Fatal(err)
	}
	got := b.upf.only(t)
	if len(got.PDRs) != 2 || len(got.FARs) != 2 || len(got.QERs) != 2 || len(got.URRs) != 1 || got.PDRs[0].PDI.TEID != 17 {
		t.Fatalf("established %+v", got)
	}
	if f := got.FARs[1].Forwarding; f == nil || f.Outer != nil {
		t.Fatalf("an outer header to nowhere is %+v", f)
	}
	attach := sim.NewFARBuilder().WithID(dl).WithMethod(sim.Update).WithAction(sim.ActionForward).
		WithDstInterface(ie.DstInterfaceAccess).WithTEID(42).WithDownlinkIP("198.51.100.9").BuildFAR()
	if err := c.ModifySession(s, nil, []*ie.IE{attach}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if f := b.upf.only(t).FARs[1]; f.Action != session.Forward || f.Forwarding.Outer.TEID != 42 {
		t.Fatalf("modified to %+v", f)
	}
	if err := c.DeleteSession(s); err != nil {
		t.Fatal(err)
	}
	b.upf.holdsNothing(t)
	if err := c.TeardownAssociation(); err != nil {
		t.Fatal(err)
	}
}
