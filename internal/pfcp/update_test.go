package pfcp

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// The SMF of Open5GS (2.7.5) sends Source Interface, 3GPP Interface Type and SDF Filters alone where
// the filters of a QoS flow change: whose packets they are stays.
func TestFiltersAlone(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	n3, n6 := ie.New(ie.TGPPInterfaceType, []byte{11}), ie.New(ie.TGPPInterfaceType, []byte{17})
	filter := func(flow string, id uint32) *ie.IE { return ie.NewSDFFilter(flow, "", "", "", id) }
	first, second := "permit out 17 from 10.99.0.1 5000 to assigned", "permit out 17 from 10.99.0.1 5001 to assigned"
	network, ue := ie.NewNetworkInstance("internet"), ie.NewUEIPAddress(2, "10.45.0.2", "", 0, 0)
	seid, _ := m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody,
		ie.NewCreatePDR(ie.NewPDRID(3), ie.NewPrecedence(1), ie.NewPDI(ie.NewSourceInterface(1), network, ue, n6, filter(first, 1)), ie.NewFARID(2)),
		ie.NewCreatePDR(ie.NewPDRID(4), ie.NewPrecedence(1), ie.NewPDI(ie.NewSourceInterface(0), chooseID(5), network, ue, n3, filter("", 1), ie.NewQFI(2)),
			ie.NewOuterHeaderRemoval(6, 0), ie.NewFARID(1)))
	whose := func(id uint16) session.PDI {
		pdi := b.upf.Session(seid).PDR(id).PDI
		pdi.Filters = nil
		return pdi
	}
	down, up := whose(3), whose(4)
	m.mustModify(seid,
		ie.NewUpdatePDR(ie.NewPDRID(3), ie.NewPDI(ie.NewSourceInterface(1), n6, filter(first, 1), filter(second, 2))),
		ie.NewUpdatePDR(ie.NewPDRID(4), ie.NewPDI(ie.NewSourceInterface(0), n3, filter("", 1), filter("", 2))))
	if got := whose(3); !reflect.DeepEqual(got, down) {
		t.Errorf("downlink: %+v became %+v", down, got)
	}
	if got := whose(4); !reflect.DeepEqual(got, up) {
		t.Errorf("uplink: %+v became %+v", up, got)
	}
	for _, id := range []uint16{3, 4} {
		if n := len(b.upf.Session(seid).PDR(id).PDI.Filters); n != 2 {
			t.Errorf("PDR %d has %d filters, want 2", id, n)
		}
	}
	b.upf.consistent(t)
	// A PDI that says whose packets it is about replaces the old one: it has no QFI.
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(4), ie.NewPDI(ie.NewSourceInterface(0), chooseID(5), network)))
	if got := whose(4); got.TEID != up.TEID || got.QFIs != nil || got.UE != nil {
		t.Errorf("replaced: %+v", got)
	}
	b.upf.consistent(t)
}

// A request may remove a URR and make one with its ID, and query the one that goes.
func TestURRTakesAnID(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	urr := func(id uint32) *ie.IE {
		return ie.NewCreateURR(ie.NewURRID(id), ie.NewMeasurementMethod(0, 1, 0), ie.NewReportingTriggers(2, 0))
	}
	seid, _ := m.establish(1, uplinkPDR, toCore, urr(1), urr(2))
	m.mustModify(seid, urr(3), ie.NewRemoveURR(ie.NewURRID(1)), urr(1), ie.NewRemoveURR(ie.NewURRID(2)), ie.NewQueryURR(ie.NewURRID(2)))
	if diff := cmp.Diff(session.Modification{ReplacedURRs: []uint32{1}}, b.upf.changes[0]); diff != "" {
		t.Error(diff)
	}
}
