package pfcp

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/session"
)

// Building blocks of requests, by go-pfcp.
var (
	uplinkPDR = ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(100), ie.NewPDI(
		ie.NewSourceInterface(ie.SrcInterfaceAccess), chooseID(5), ie.NewNetworkInstance("internet")),
		ie.NewOuterHeaderRemoval(0, 0), ie.NewFARID(1))
	downlinkPDR = ie.NewCreatePDR(ie.NewPDRID(2), ie.NewPrecedence(100), ie.NewPDI(
		ie.NewSourceInterface(ie.SrcInterfaceCore), ie.NewNetworkInstance("internet"), givenUE("10.45.0.1")),
		ie.NewFARID(2))
	toCore   = ie.NewCreateFAR(ie.NewFARID(1), ie.NewApplyAction(2), forwardTo(ie.DstInterfaceCore))
	toNobody = ie.NewCreateFAR(ie.NewFARID(2), ie.NewApplyAction(12))
)

func chooseID(id uint8) *ie.IE   { return ie.NewFTEID(0x0f, 0, nil, nil, id) }
func choose() *ie.IE             { return ie.NewFTEID(0x07, 0, nil, nil, 0) }
func givenUE(addr string) *ie.IE { return ie.NewUEIPAddress(2, addr, "", 0, 0) }
func forwardTo(where uint8) *ie.IE {
	return ie.NewForwardingParameters(ie.NewDestinationInterface(where))
}

func givenTEID(teid uint32, addr string) *ie.IE {
	return ie.NewFTEID(1, teid, net.ParseIP(addr), nil, 0)
}

func (m *smf) cpFSEID(seid uint64) *ie.IE { return ie.NewFSEID(seid, m.addr.AsSlice(), nil) }

// tryEstablish sends an establishment of IEs besides Node ID and F-SEID.
func (m *smf) tryEstablish(cpSEID uint64, list ...*ie.IE) *message.SessionEstablishmentResponse {
	m.t.Helper()
	list = append([]*ie.IE{m.node(), m.cpFSEID(cpSEID)}, list...)
	return m.ask(message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0, list...)).(*message.SessionEstablishmentResponse)
}

// establish must succeed, and returns the UP SEID.
func (m *smf) establish(cpSEID uint64, list ...*ie.IE) (uint64, *message.SessionEstablishmentResponse) {
	m.t.Helper()
	answer := m.tryEstablish(cpSEID, list...)
	wantCause(m.t, answer.Cause, ie.CauseRequestAccepted)
	if answer.SEID() != cpSEID {
		m.t.Fatalf("answered to SEID %d, want %d", answer.SEID(), cpSEID)
	}
	f, err := answer.UPFSEID.FSEID()
	if err != nil {
		m.t.Fatal(err)
	}
	return f.SEID, answer
}

func (m *smf) modify(seid uint64, list ...*ie.IE) *message.SessionModificationResponse {
	m.t.Helper()
	return m.ask(message.NewSessionModificationRequest(0, 0, seid, m.next(), 0, list...)).(*message.SessionModificationResponse)
}

func (m *smf) mustModify(seid uint64, list ...*ie.IE) *message.SessionModificationResponse {
	m.t.Helper()
	answer := m.modify(seid, list...)
	wantCause(m.t, answer.Cause, ie.CauseRequestAccepted)
	return answer
}

func (m *smf) delete(seid uint64) *message.SessionDeletionResponse {
	m.t.Helper()
	return m.ask(message.NewSessionDeletionRequest(0, 0, seid, m.next(), 0)).(*message.SessionDeletionResponse)
}

// A session's life: established with a TEID of ours, changed, deleted.
func TestSession(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	seid, answer := m.establish(77, uplinkPDR, downlinkPDR, toCore, toNobody)
	if len(answer.CreatedPDR) != 1 {
		t.Fatalf("%d created PDRs, want that of the F-TEID", len(answer.CreatedPDR))
	}
	f, err := answer.CreatedPDR[0].FTEID()
	if err != nil || f.TEID != 1 || f.IPv4Address.String() != b.upf.v4.String() || f.IPv6Address.String() != b.upf.v6.String() {
		t.Fatalf("F-TEID %+v, %v", f, err)
	}
	s := b.upf.only(t)
	want := &session.Session{
		SEID: seid, CPSEID: 77, CPAddr: m.addr, Node: m.addr.String(),
		PDRs: []session.PDR{
			{ID: 1, Precedence: 100, RemoveOuter: true, FAR: 1, PDI: session.PDI{
				Source: session.Access, NetworkInstance: "internet",
				TEID: 1, TEID4: b.upf.v4, TEID6: b.upf.v6, ChooseID: ptr[uint8](5)}},
			{ID: 2, Precedence: 100, FAR: 2, PDI: session.PDI{
				Source: session.Core, NetworkInstance: "internet", UE: []netip.Prefix{netip.MustParsePrefix("10.45.0.1/32")}}},
		},
		FARs: []session.FAR{
			{ID: 1, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Core}},
			{ID: 2, Action: session.Buffer | session.Notify},
		},
	}
	if diff := cmp.Diff(want, s, netipValues); diff != "" {
		t.Fatalf("established (-want +got):\n%s", diff)
	}
	m.mustModify(seid, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewApplyAction(2), ie.NewUpdateForwardingParameters(
		ie.NewDestinationInterface(ie.DstInterfaceAccess), ie.NewOuterHeaderCreation(0x100, 9, "192.0.2.1", "", 0, 0, 0))))
	out := b.upf.only(t).FARs[1].Forwarding.Outer
	if out == nil || out.TEID != 9 || out.Addr != netip.MustParseAddr("192.0.2.1") {
		t.Fatalf("outer header %+v", out)
	}
	if s.FARs[1].Forwarding != nil {
		t.Error("the session as it was has changed")
	}
	b.upf.consistent(t)
	wantCause(t, m.delete(seid).Cause, ie.CauseRequestAccepted)
	b.upf.holdsNothing(t)
	// Twice, as free5GC's SMF does.
	again := m.delete(seid)
	wantCause(t, again.Cause, ie.CauseSessionContextNotFound)
	if again.SEID() != 0 {
		t.Errorf("answer to a session that is not there has SEID %d", again.SEID())
	}
}

func ptr[T any](v T) *T { return &v }

var netipValues = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestFTEIDs(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	pdr := func(id uint16, fteid *ie.IE) *ie.IE {
		return ie.NewCreatePDR(ie.NewPDRID(id), ie.NewPrecedence(1),
			ie.NewPDI(ie.NewSourceInterface(ie.SrcInterfaceAccess), fteid), ie.NewFARID(1))
	}
	seid, answer := m.establish(1, pdr(1, chooseID(5)), pdr(2, chooseID(6)), pdr(3, choose()), pdr(4, chooseID(5)),
		pdr(5, givenTEID(0x1234, "10.200.0.8")), toCore)
	var ids []uint16
	var teids []uint32
	collect := func(created []*ie.IE) {
		for _, c := range created {
			id, _ := c.PDRID()
			f, err := c.FTEID()
			if err != nil {
				t.Fatal(err)
			}
			ids, teids = append(ids, id), append(teids, f.TEID)
		}
	}
	collect(answer.CreatedPDR)
	// The same CHOOSE ID in a later modification, and a given TEID that the
	// session has.
	later := m.mustModify(seid, pdr(6, chooseID(6)), pdr(7, givenTEID(0x1234, "10.200.0.8")), pdr(8, choose()))
	collect(later.CreatedPDR)
	if !slices.Equal(ids, []uint16{1, 2, 3, 4, 6, 8}) {
		t.Errorf("created PDRs %v, want those that asked, in the order of the request", ids)
	}
	if !slices.Equal(teids, []uint32{1, 2, 3, 1, 2, 4}) {
		t.Errorf("TEIDs %v", teids)
	}
	b.upf.consistent(t)
	// What another session has cannot be taken; what goes can.
	other := m.tryEstablish(2, pdr(1, givenTEID(0x1234, "10.200.0.8")), toCore)
	wantCause(t, other.Cause, ie.CauseRuleCreationModificationFailure)
	if id, err := other.FailedRuleID.FailedRuleID(); err != nil || id != 1 {
		t.Errorf("failed rule %d, %v", id, err)
	}
	m.mustModify(seid, ie.NewRemovePDR(ie.NewPDRID(5)), ie.NewRemovePDR(ie.NewPDRID(7)))
	b.upf.consistent(t)
	m.establish(2, pdr(1, givenTEID(0x1234, "10.200.0.8")), toCore)
	b.upf.consistent(t)
	// Asked for again with the same CHOOSE ID by an update: it stays.
	before := b.upf.Session(seid).PDRs[1].PDI.TEID
	m.mustModify(seid, ie.NewUpdatePDR(ie.NewPDRID(2), ie.NewPDI(ie.NewSourceInterface(ie.SrcInterfaceAccess), chooseID(6))))
	if after := b.upf.Session(seid).PDRs[1].PDI.TEID; after != before {
		t.Errorf("TEID %d became %d", before, after)
	}
	// The F-TEID must be an IPv6 one, and the UPF has no IPv6 address.
	b.upf.v6 = netip.Addr{}
	wantCause(t, m.tryEstablish(3, pdr(1, ie.NewFTEID(0x06, 0, nil, nil, 0)), toCore).Cause, ie.CauseInvalidFTEIDAllocationOption)
	b.upf.consistent(t)
}

// The SMF of SD-Core asks for F-TEIDs with CHOOSE alone, and gives the gNB the first: the PDRs
// of an interface share one, those of another interface, network or session have others.
func TestSharedFTEIDs(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	alone := ie.New(ie.FTEID, []byte{4})
	pdr := func(id uint16, source uint8, network string) *ie.IE {
		return ie.NewCreatePDR(ie.NewPDRID(id), ie.NewPrecedence(1),
			ie.NewPDI(ie.NewSourceInterface(source), alone, ie.NewNetworkInstance(network)), ie.NewFARID(1))
	}
	teids := func(seid uint64) (list []uint32) {
		for _, p := range b.upf.Session(seid).PDRs {
			if p.PDI.TEID4 != b.upf.v4 || p.PDI.TEID6 != b.upf.v6 {
				t.Errorf("PDR %d: F-TEID at %s and %s", p.ID, p.PDI.TEID4, p.PDI.TEID6)
			}
			list = append(list, p.PDI.TEID)
		}
		return list
	}
	seid, _ := m.establish(1, pdr(1, ie.SrcInterfaceAccess, "internet"), pdr(2, ie.SrcInterfaceAccess, "internet"),
		pdr(3, ie.SrcInterfaceCore, "internet"), pdr(4, ie.SrcInterfaceAccess, "ims"), toCore)
	other, _ := m.establish(2, pdr(1, ie.SrcInterfaceAccess, "internet"), toCore)
	m.mustModify(seid, pdr(5, ie.SrcInterfaceAccess, "internet"),
		ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPDI(ie.NewSourceInterface(ie.SrcInterfaceAccess), alone, ie.NewNetworkInstance("internet"))))
	if got := teids(seid); !slices.Equal(got, []uint32{1, 1, 2, 3, 1}) {
		t.Errorf("TEIDs %v", got)
	}
	if got := teids(other); !slices.Equal(got, []uint32{4}) {
		t.Errorf("TEIDs of another session: %v", got)
	}
	b.upf.consistent(t)
}

func TestUEAddresses(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	pdr := func(id uint16, source uint8, instance string, more ...*ie.IE) *ie.IE {
		return ie.NewCreatePDR(ie.NewPDRID(id), ie.NewPrecedence(1), ie.NewPDI(append([]*ie.IE{
			ie.NewSourceInterface(source), ie.NewNetworkInstance(instance)}, more...)...), ie.NewFARID(1))
	}
	both := ie.NewUEIPAddress(0x30, "", "", 0, 0)
	seid, answer := m.establish(1, pdr(1, ie.SrcInterfaceCore, "internet", both),
		pdr(2, ie.SrcInterfaceAccess, "internet", both, choose()), toCore)
	if len(answer.CreatedPDR) != 2 {
		t.Fatalf("%d created PDRs", len(answer.CreatedPDR))
	}
	for _, c := range answer.CreatedPDR {
		ue, err := c.UEIPAddress()
		if err != nil || ue.IPv4Address.String() != "10.99.0.1" || ue.IPv6Address.String() != "2001:db8:0:1::" {
			t.Errorf("UE address %+v, %v", ue, err)
		}
	}
	b.upf.consistent(t)
	// Another PDR of the session gets the same one.
	more := m.mustModify(seid, pdr(3, ie.SrcInterfaceCore, "internet", ie.NewUEIPAddress(0x10, "", "", 0, 0)))
	if ue, err := more.CreatedPDR[0].UEIPAddress(); err != nil || ue.IPv4Address.String() != "10.99.0.1" {
		t.Errorf("UE address %+v, %v", ue, err)
	}
	b.upf.consistent(t)
	wantCause(t, m.tryEstablish(2, pdr(1, ie.SrcInterfaceCore, "empty", both), toCore).Cause, ie.CauseNoResourcesAvailable)
	// One that another session has.
	wantCause(t, m.tryEstablish(2, pdr(1, ie.SrcInterfaceCore, "internet", givenUE("10.99.0.1")), toCore).Cause,
		ie.CauseRuleCreationModificationFailure)
	b.upf.consistent(t)
	// Given, with a delegated prefix, and routes behind the UE.
	third, _ := m.establish(3, pdr(1, ie.SrcInterfaceCore, "internet",
		ie.New(ie.UEIPAddress, append(append([]byte{0x0b, 10, 46, 0, 1}, netip.MustParseAddr("2001:db8:5::1").AsSlice()...), 8)),
		ie.NewFramedRoute("192.0.2.0/24 0.0.0.0 1"), ie.NewFramedIPv6Route("2001:db8:9::/48 ::")), toCore)
	pdi := b.upf.Session(third).PDRs[0].PDI
	wantUE := []netip.Prefix{netip.MustParsePrefix("10.46.0.1/32"), netip.MustParsePrefix("2001:db8:5::/56")}
	wantRoutes := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:9::/48")}
	if !slices.Equal(pdi.UE, wantUE) || !slices.Equal(pdi.FramedRoutes, wantRoutes) {
		t.Errorf("UE %v, routes %v", pdi.UE, pdi.FramedRoutes)
	}
	wantCause(t, m.delete(seid).Cause, ie.CauseRequestAccepted)
	wantCause(t, m.delete(third).Cause, ie.CauseRequestAccepted)
	b.upf.holdsNothing(t)
}

// Every IE of every rule, as values.
func TestRules(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1,
		ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(7), ie.NewOuterHeaderRemoval(6, 0), ie.NewFARID(1),
			ie.NewQERID(1), ie.NewQERID(2), ie.NewURRID(1), ie.NewURRID(2),
			ie.NewPDI(ie.NewSourceInterface(ie.SrcInterfaceAccess), ie.NewNetworkInstanceFQDN("internet.mnc001"),
				ie.NewTGPPInterfaceType(ie.TGPPInterfaceTypeN33GPPAccess), givenTEID(3, "10.200.0.8"), ie.NewQFI(1), ie.NewQFI(9),
				ie.NewSDFFilter("permit out 17 from 192.0.2.0/24 53 to assigned", "\x10\xfc", "\x00\x00\x01\x00", "\x0a\xbc\xde", 99),
				ie.NewSDFFilter("permit out ip from any to assigned", "", "", "", 0))),
		ie.NewCreatePDR(ie.NewPDRID(2), ie.NewPrecedence(8), ie.NewFARID(1), ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceCore), ie.New(ie.SDFFilter, []byte{0x10, 0, 0, 0, 0, 99}))),
		ie.NewCreateFAR(ie.NewFARID(1), ie.NewApplyAction(0x12),
			ie.NewForwardingParameters(ie.NewDestinationInterface(ie.DstInterfaceCore), ie.NewNetworkInstance("n9"),
				ie.NewTGPPInterfaceType(ie.TGPPInterfaceTypeN9), ie.NewTransportLevelMarking(0x28fc),
				ie.NewOuterHeaderCreation(0x200, 0xabc, "", "2001:db8::1", 0, 0, 0)),
			ie.NewDuplicatingParameters(ie.NewDestinationInterface(ie.DstInterfaceLIFunction),
				ie.NewOuterHeaderCreation(0x400, 0, "192.0.2.9", "", 4789, 0, 0)), ie.NewBARID(3)),
		ie.NewCreateQER(ie.NewQERID(1), ie.NewGateStatus(ie.GateStatusClosed, ie.GateStatusOpen), ie.NewMBR(1000, 2000),
			ie.NewGBR(10, 20), ie.NewQFI(9), ie.NewRQI(1)),
		ie.NewCreateQER(ie.NewQERID(2), ie.NewGateStatus(ie.GateStatusOpen, ie.GateStatusClosed),
			ie.NewPacketRate(3, ie.TimeUnitMinute, 10, ie.TimeUnit6Minutes, 20)),
		ie.NewCreateURR(ie.NewURRID(1), ie.NewMeasurementMethod(0, 1, 1), ie.NewReportingTriggers(0xbf, 0x83, 0),
			ie.NewMeasurementPeriod(30*time.Second), ie.NewVolumeThreshold(7, 100, 60, 40), ie.NewVolumeQuota(1, 1000, 0, 0),
			ie.NewTimeThreshold(10*time.Second), ie.NewTimeQuota(time.Minute), ie.NewQuotaHoldingTime(2*time.Second),
			ie.NewQuotaValidityTime(time.Hour), ie.NewInactivityDetectionTime(5), ie.NewMonitoringTime(time.Unix(1.9e9, 0)),
			ie.NewSubsequentVolumeThreshold(2, 0, 5, 0), ie.NewSubsequentTimeThreshold(9*time.Second), ie.NewLinkedURRID(2),
			ie.NewMeasurementInformation(0x1b), ie.NewFARID(1)),
		ie.NewCreateURR(ie.NewURRID(2), ie.NewMeasurementMethod(1, 0, 0), ie.NewReportingTriggers(0x10, 0)),
		ie.NewCreateBAR(ie.NewBARID(3), ie.NewDownlinkDataNotificationDelay(150*time.Millisecond), ie.NewSuggestedBufferingPacketsCount(12)),
		ie.NewPDNType(ie.PDNTypeIPv4v6), ie.NewSNSSAI(1, 0x010203), ie.NewAPNDNN("internet"), ie.NewUserPlaneInactivityTimer(time.Minute),
		ie.NewUserID(1, "001010123456789", "", "", ""),
	)
	described := session.Filter{
		ID: ptr[uint32](99), Text: "permit out 17 from 192.0.2.0/24 53 to assigned", Protocol: 17,
		Remote: netip.MustParsePrefix("192.0.2.0/24"), RemotePorts: []session.PortRange{{From: 53, To: 53}},
		ToS: 0x10, ToSMask: 0xfc, SPI: ptr[uint32](256), FlowLabel: ptr[uint32](0xabcde),
	}
	want := &session.Session{
		SEID: seid, CPSEID: 1, CPAddr: m.addr, Node: m.addr.String(), PDNType: session.PDNIPv4v6,
		SNSSAI: session.SNSSAI{SST: 1, SD: 0x010203, HasSD: true}, DNN: "internet", UserID: "imsi-001010123456789",
		InactivityTimer: time.Minute,
		PDRs: []session.PDR{
			{ID: 1, Precedence: 7, RemoveOuter: true, FAR: 1, QERs: []uint32{1, 2}, URRs: []uint32{1, 2}, PDI: session.PDI{
				Source: session.Access, InterfaceType: ptr(session.TypeN3), NetworkInstance: "internet.mnc001",
				TEID: 3, TEID4: b.upf.v4, QFIs: []uint8{1, 9}, Filters: []session.Filter{
					described, {Text: "permit out ip from any to assigned", AnyProtocol: true}}}},
			{ID: 2, Precedence: 8, FAR: 1, PDI: session.PDI{Source: session.Core, Filters: []session.Filter{described}}},
		},
		FARs: []session.FAR{{ID: 1, Action: session.Forward | session.Duplicate, BAR: ptr[uint8](3),
			Forwarding: &session.Forwarding{Destination: session.Core, NetworkInstance: "n9", InterfaceType: ptr(session.TypeN9),
				ToS: 0x28, ToSMask: 0xfc, Outer: &session.OuterHeader{Addr: netip.MustParseAddr("2001:db8::1"), TEID: 0xabc}},
			Duplicates: []session.Forwarding{{Destination: session.LIFunction,
				Outer: &session.OuterHeader{Kind: session.OuterUDP, Addr: netip.MustParseAddr("192.0.2.9"), Port: 4789}}}}},
		QERs: []session.QER{
			{ID: 1, UplinkClosed: true, MBR: &session.BitRate{Uplink: 1000, Downlink: 2000}, GBR: &session.BitRate{Uplink: 10, Downlink: 20},
				QFI: ptr[uint8](9), Reflective: true},
			{ID: 2, DownlinkClosed: true, PacketRate: &session.PacketRates{
				Uplink: session.PacketRate{Packets: 10, Per: time.Minute}, Downlink: session.PacketRate{Packets: 20, Per: 6 * time.Minute}}},
		},
		URRs: []session.URR{
			{ID: 1, Volume: true, Time: true, Trigger: 0x83bf, Period: 30 * time.Second,
				VolumeThreshold: &session.Volume{Total: ptr[uint64](100), Uplink: ptr[uint64](60), Downlink: ptr[uint64](40)},
				VolumeQuota:     &session.Volume{Total: ptr[uint64](1000)},
				TimeThreshold:   10 * time.Second, TimeQuota: time.Minute, HasTimeQuota: true, QuotaHolding: 2 * time.Second,
				QuotaValidity: time.Hour, InactivityTime: 5 * time.Second, MonitoringTime: time.Unix(1.9e9, 0).UTC(),
				SubsequentVolume: &session.Volume{Uplink: ptr[uint64](5)}, SubsequentTime: 9 * time.Second, Linked: []uint32{2},
				FARForQuotaAction: ptr[uint32](1), BeforeQoS: true, Inactive: true, ImmediateStart: true, NumberOfPackets: true},
			{ID: 2, Event: true, Trigger: session.TriggerStart},
		},
		BARs: []session.BAR{{ID: 3, NotificationDelay: 150 * time.Millisecond, SuggestedCount: 12}},
	}
	if diff := cmp.Diff(want, b.upf.only(t), netipValues); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An update states only what changes; an IE without a value removes the value.
func TestUpdates(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody,
		ie.NewCreateQER(ie.NewQERID(1), ie.NewGateStatus(0, 0), ie.NewMBR(1000, 2000), ie.NewGBR(1, 2)),
		ie.NewCreateURR(ie.NewURRID(1), ie.NewMeasurementMethod(0, 1, 0), ie.NewReportingTriggers(2, 0), ie.NewVolumeThreshold(1, 5, 0, 0)),
		ie.NewCreateBAR(ie.NewBARID(1), ie.NewSuggestedBufferingPacketsCount(3)))
	gone := func(t uint16) *ie.IE { return ie.New(t, nil) }
	m.mustModify(seid,
		ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3), ie.NewQERID(1), gone(ie.OuterHeaderRemoval)),
		ie.NewUpdateQER(ie.NewQERID(1), ie.NewMBR(7, 8), gone(ie.GBR)),
		ie.NewUpdateURR(ie.NewURRID(1), ie.NewVolumeThreshold(1, 5, 0, 0), ie.NewVolumeQuota(1, 9, 0, 0)),
		ie.NewUpdateBARWithinSessionModificationRequest(ie.NewBARID(1), ie.NewSuggestedBufferingPacketsCount(4)),
		ie.NewUpdateFAR(ie.NewFARID(1), ie.NewBARID(1)),
		m.cpFSEID(99))
	s := b.upf.only(t)
	if p := s.PDRs[0]; p.Precedence != 3 || p.RemoveOuter || !slices.Equal(p.QERs, []uint32{1}) || p.PDI.TEID == 0 || p.FAR != 1 {
		t.Errorf("PDR %+v", p)
	}
	if q := s.QERs[0]; q.MBR == nil || q.MBR.Uplink != 7 || q.GBR != nil {
		t.Errorf("QER %+v", q)
	}
	if u := s.URRs[0]; !u.Volume || *u.VolumeThreshold.Total != 5 || *u.VolumeQuota.Total != 9 {
		t.Errorf("URR %+v", u)
	}
	if s.BARs[0].SuggestedCount != 4 || s.FARs[0].BAR == nil || s.CPSEID != 99 {
		t.Errorf("BAR %+v, FAR %+v, CP SEID %d", s.BARs[0], s.FARs[0], s.CPSEID)
	}
	how := b.upf.changes[len(b.upf.changes)-1]
	if diff := cmp.Diff([]session.Renewed{{URR: 1, VolumeThreshold: true, VolumeQuota: true}}, how.Renewed); diff != "" {
		t.Errorf("renewed (-want +got):\n%s", diff)
	}
	// Answers go to the new SEID.
	answer := m.mustModify(seid, ie.NewPFCPSMReqFlags(1<<0|1<<2),
		ie.NewUpdateFAR(ie.NewFARID(2), ie.NewApplyAction(2), ie.NewUpdateForwardingParameters(
			ie.NewDestinationInterface(0), ie.NewOuterHeaderCreation(0x100, 4, "192.0.2.4", "", 0, 0, 0), ie.NewPFCPSMReqFlags(1<<1))))
	if answer.SEID() != 99 {
		t.Errorf("answered to SEID %d", answer.SEID())
	}
	how = b.upf.changes[len(b.upf.changes)-1]
	if diff := cmp.Diff(session.Modification{QueryAll: true, DropBuffered: true, EndMarkers: []uint32{2}}, how); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// An empty IE removes what an earlier one set (section 5.6.3).
	m.mustModify(seid, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewUpdateForwardingParameters(ie.NewTransportLevelMarking(0x28fc))))
	had := b.upf.only(t).FAR(2).Forwarding.ToSMask
	m.mustModify(seid, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewUpdateForwardingParameters(ie.New(ie.TransportLevelMarking, nil))))
	if has := b.upf.only(t).FAR(2).Forwarding.ToSMask; had == 0 || has != 0 {
		t.Errorf("marking %#x, after its removal %#x", had, has)
	}
	// Removal makes place; what refers to it must go too.
	m.mustModify(seid, ie.NewRemovePDR(ie.NewPDRID(2)), ie.NewRemoveFAR(ie.NewFARID(2)), ie.NewRemoveURR(ie.NewURRID(1)),
		ie.NewCreateFAR(ie.NewFARID(2), ie.NewApplyAction(1)), ie.NewCreatePDR(ie.NewPDRID(2), ie.NewPrecedence(1),
			ie.NewPDI(ie.NewSourceInterface(1), givenUE("10.45.0.2")), ie.NewFARID(2)))
	s = b.upf.only(t)
	if len(s.PDRs) != 2 || s.PDRs[1].Precedence != 1 || s.FARs[1].Action != session.Drop || len(s.URRs) != 0 {
		t.Errorf("%+v", s)
	}
	b.upf.consistent(t)
}

// A refused modification leaves everything as it was.
func TestRefusedModification(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody)
	before := b.upf.only(t)
	teids := len(b.upf.teids)
	newPDR := ie.NewCreatePDR(ie.NewPDRID(9), ie.NewPrecedence(1),
		ie.NewPDI(ie.NewSourceInterface(0), choose(), givenUE("10.45.0.9")), ie.NewFARID(1))
	failed := func(answer *message.SessionModificationResponse, kind session.RuleKind, id uint32) {
		t.Helper()
		wantCause(t, answer.Cause, ie.CauseRuleCreationModificationFailure)
		if answer.FailedRuleID == nil || answer.FailedRuleID.Payload[0] != uint8(kind) {
			t.Errorf("failed rule %v, want %s %d", answer.FailedRuleID, kind, id)
		} else if got, err := answer.FailedRuleID.FailedRuleID(); err != nil || got != id {
			t.Errorf("failed rule %d (%v), want %s %d", got, err, kind, id)
		}
	}
	failed(m.modify(seid, newPDR, ie.NewUpdateFAR(ie.NewFARID(7), ie.NewApplyAction(1))), session.RuleFAR, 7)
	failed(m.modify(seid, newPDR, ie.NewUpdateQER(ie.NewQERID(7), ie.NewGateStatus(0, 0))), session.RuleQER, 7)
	failed(m.modify(seid, newPDR, ie.NewRemoveURR(ie.NewURRID(70000))), session.RuleURR, 70000)
	failed(m.modify(seid, newPDR, ie.NewQueryURR(ie.NewURRID(8))), session.RuleURR, 8)
	failed(m.modify(seid, newPDR, ie.NewUpdateBARWithinSessionModificationRequest(ie.NewBARID(7))), session.RuleBAR, 7)
	failed(m.modify(seid, newPDR, ie.NewUpdatePDR(ie.NewPDRID(7), ie.NewFARID(1))), session.RulePDR, 7)
	failed(m.modify(seid, newPDR, uplinkPDR), session.RulePDR, 1)
	failed(m.modify(seid, newPDR, ie.NewRemoveFAR(ie.NewFARID(2))), session.RulePDR, 2)
	failed(m.modify(seid, newPDR, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewBARID(4))), session.RuleFAR, 2)
	failed(m.modify(seid, newPDR, ie.NewUpdatePDR(ie.NewPDRID(2), ie.NewURRID(4))), session.RulePDR, 2)
	for _, value := range []string{"", "\x01", "\x01\x00\x00\x00\x00\x01"} {
		outer := ie.NewUpdateForwardingParameters(ie.New(ie.OuterHeaderCreation, []byte(value)))
		answer := m.modify(seid, newPDR, ie.NewUpdateFAR(ie.NewFARID(1), outer))
		if wantCause(t, answer.Cause, ie.CauseInvalidLength); answer.OffendingIE == nil {
			t.Errorf("Outer Header Creation %x: no offending IE", value)
		} else if got, err := answer.OffendingIE.OffendingIE(); err != nil || got != ie.OuterHeaderCreation {
			t.Errorf("Outer Header Creation %x: offending IE %d (%v)", value, got, err)
		}
	}
	for _, refusal := range []struct {
		err   error
		cause uint8
	}{
		{ErrNoResources, ie.CauseNoResourcesAvailable},
		{&session.RuleError{Kind: session.RuleQER, ID: 3, Err: ErrUnsupported}, ie.CauseServiceNotSupported},
		{errors.New("the kernel is out of sorts"), ie.CauseSystemFailure},
	} {
		b.upf.refuse = refusal.err
		wantCause(t, m.modify(seid, newPDR).Cause, refusal.cause)
		wantCause(t, m.tryEstablish(2, uplinkPDR, toCore).Cause, refusal.cause)
		b.upf.refuse = nil
	}
	if b.upf.only(t) != before || len(b.upf.teids) != teids {
		t.Error("something has changed")
	}
	b.upf.consistent(t)
	m.mustModify(seid, newPDR)
}

// The SMF of SD-Core removes a QER once for each PDR that had it. Only that is tolerated.
func TestRepeatedRemoval(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	qer := func(id uint32) *ie.IE { return ie.NewCreateQER(ie.NewQERID(id), ie.NewGateStatus(0, 0)) }
	seid, _ := m.establish(1, uplinkPDR, downlinkPDR, toCore, toNobody, qer(1), qer(2))
	remove := func(ids ...uint32) uint8 {
		var list []*ie.IE
		for _, id := range ids {
			list = append(list, ie.NewRemoveQER(ie.NewQERID(id)))
		}
		cause, err := m.modify(seid, list...).Cause.Cause()
		if err != nil {
			t.Fatal(err)
		}
		return cause
	}
	for _, tt := range []struct {
		ids         []uint32
		cause, left uint8
	}{
		{[]uint32{3, 3}, ie.CauseRuleCreationModificationFailure, 2},
		{[]uint32{1, 1, 3}, ie.CauseRuleCreationModificationFailure, 2},
		{[]uint32{1, 1}, ie.CauseRequestAccepted, 1},
		{[]uint32{1}, ie.CauseRuleCreationModificationFailure, 1},
	} {
		if cause, left := remove(tt.ids...), len(b.upf.only(t).QERs); cause != tt.cause || left != int(tt.left) {
			t.Errorf("QERs %v removed: Cause %d, %d left; want %d, %d", tt.ids, cause, left, tt.cause, tt.left)
		}
	}
}

// Usage comes back where it was asked for.
func TestUsageReports(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	urr := ie.NewCreateURR(ie.NewURRID(4), ie.NewMeasurementMethod(0, 1, 1), ie.NewReportingTriggers(2, 0))
	seid, _ := m.establish(1, uplinkPDR, toCore, urr)
	report := session.UsageReport{
		URR: 4, Sequence: 3, Cause: session.CauseImmediate, Start: time.Unix(1.8e9, 0), End: time.Unix(1.8e9+9, 0),
		First: time.Unix(1.8e9+1, 0), Last: time.Unix(1.8e9+8, 0),
		Volume: session.Measured{Uplink: 10, Downlink: 20}, Packets: session.Measured{Uplink: 1, Downlink: 2},
		Duration: 9 * time.Second, HasVolume: true, HasPackets: true, HasDuration: true,
	}
	b.upf.reports = []session.UsageReport{report}
	answer := m.mustModify(seid, ie.NewQueryURR(ie.NewURRID(4)), ie.NewQueryURRReference(0x55))
	if how := b.upf.changes[0]; !slices.Equal(how.QueryURRs, []uint32{4}) {
		t.Errorf("asked for %+v", how)
	}
	check := func(got []*ie.IE, trigger uint8) {
		t.Helper()
		if len(got) != 1 {
			t.Fatalf("%d usage reports", len(got))
		}
		id, err1 := got[0].URRID()
		seqn, err2 := got[0].URSEQN()
		why, err3 := got[0].UsageReportTrigger()
		volume, err4 := got[0].VolumeMeasurement()
		duration, err5 := got[0].DurationMeasurement()
		start, err6 := got[0].StartTime()
		last, err7 := got[0].TimeOfLastPacket()
		if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
			t.Fatal(err)
		}
		if id != 4 || seqn != 3 || why[trigger/8]>>(trigger%8)&1 != 1 || duration != 9*time.Second ||
			!start.Equal(report.Start) || !last.Equal(report.Last) {
			t.Errorf("reported %d %d %x %v %v %v", id, seqn, why, duration, start, last)
		}
		if volume.TotalVolume != 30 || volume.UplinkVolume != 10 || volume.DownlinkVolume != 20 ||
			volume.TotalNumberOfPackets != 3 || volume.UplinkNumberOfPackets != 1 || volume.DownlinkNumberOfPackets != 2 {
			t.Errorf("measured %+v", volume)
		}
	}
	check(answer.UsageReport, 7)
	if ref, err := answer.UsageReport[0].QueryURRReference(); err != nil || ref != 0x55 {
		t.Errorf("query reference %#x, %v", ref, err)
	}
	report.Cause = session.CauseTermination
	b.upf.reports = []session.UsageReport{report}
	last := m.delete(seid)
	wantCause(t, last.Cause, ie.CauseRequestAccepted)
	check(last.UsageReport, 11)
}
