package pfcp

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/session"
)

// spot is where an IE stands: it is put into what creates a rule, or updates one.
type spot struct {
	create, update func(part []byte) []byte
}

func around(t uint16, parts ...[]byte) func([]byte) []byte {
	return func(part []byte) []byte { return group(t, append(parts, part)...) }
}

var (
	rURRID = raw(ie.URRID, u32(1)...)

	inPDR = spot{around(ie.CreatePDR, raw(ie.PDRID, 0, 2), rPrecedence, rPDI, rFARID), around(ie.UpdatePDR, rPDRID)}
	inPDI = spot{
		func(part []byte) []byte {
			return rPDR(raw(ie.PDRID, 0, 2), rPrecedence, group(ie.PDI, rSource, part), rFARID)
		},
		func(part []byte) []byte { return group(ie.UpdatePDR, rPDRID, group(ie.PDI, rSource, part)) },
	}
	inFAR        = spot{around(ie.CreateFAR, raw(ie.FARID, u32(2)...), rAction), around(ie.UpdateFAR, rFARID)}
	inForwarding = spot{
		func(part []byte) []byte {
			return group(ie.CreateFAR, raw(ie.FARID, u32(2)...), raw(ie.ApplyAction, 2),
				group(ie.ForwardingParameters, raw(ie.DestinationInterface, 1), part))
		},
		func(part []byte) []byte {
			return group(ie.UpdateFAR, rFARID, group(ie.UpdateForwardingParameters, raw(ie.DestinationInterface, 1), part))
		},
	}
	inQER     = spot{around(ie.CreateQER, raw(ie.QERID, u32(2)...), rGate), around(ie.UpdateQER, raw(ie.QERID, u32(1)...))}
	inURR     = spot{around(ie.CreateURR, raw(ie.URRID, u32(2)...), raw(ie.MeasurementMethod, 3), raw(ie.ReportingTriggers, 2, 0)), around(ie.UpdateURR, rURRID)}
	inTrigger = spot{around(ie.CreateURR, raw(ie.URRID, u32(2)...), raw(ie.MeasurementMethod, 3)), around(ie.UpdateURR, rURRID)}
	inBAR     = spot{around(ie.CreateBAR, raw(ie.BARID, 2)), around(ie.UpdateBARWithinSessionModificationRequest, raw(ie.BARID, 1))}
	inRequest = spot{func(part []byte) []byte { return part }, func(part []byte) []byte { return part }}
)

// optionalIE is one that TS 29.244 allows and a user plane may lack.
type optionalIE struct {
	name string
	in   spot
	ie   []byte
	// refused: Cause 76, and the IE is the offending one. honoured: what it says
	// is in the session. Otherwise it changes nothing, for the reason in ignored.
	refused   bool
	offending uint16 // another one that is named
	honoured  func(*session.Session) bool
	ignored   string
	// createOnly and updateOnly IEs are in one of the requests.
	createOnly, updateOnly bool
}

// last are the rules that a case is about: of what was created the second one,
// of what was updated the only one.
func lastPDR(s *session.Session) *session.PDR { return &s.PDRs[len(s.PDRs)-1] }
func lastFAR(s *session.Session) *session.FAR { return &s.FARs[len(s.FARs)-1] }
func lastQER(s *session.Session) *session.QER { return &s.QERs[len(s.QERs)-1] }
func lastURR(s *session.Session) *session.URR { return &s.URRs[len(s.URRs)-1] }
func lastBAR(s *session.Session) *session.BAR { return &s.BARs[len(s.BARs)-1] }

const (
	notAnnounced = "section 8.2.25: an SMF does not send it to a UPF that does not announce it, and an answer to an answer there is none"
	informative  = "table 7.5.2.1-1: it says whose session this is, and requests nothing"
	unknownIE    = "section 7.6: an IE of an unknown type is ignored"
)

// optionalIEs are those of Create and Update PDR, PDI, FAR, QER, URR and BAR,
// and of the requests around them. Those that every UPF must have are in
// TestRules.
func optionalIEs() []optionalIE {
	mac := func(f uint8, n int) []byte { return raw(ie.MACAddress, append([]byte{f}, make([]byte, 6*n)...)...) }
	trigger := func(bits uint32) []byte {
		return raw(ie.ReportingTriggers, byte(bits), byte(bits>>8), byte(bits>>16))
	}
	info := func(bits uint8) []byte { return raw(ie.MeasurementInformation, bits) }
	return []optionalIE{
		{name: "MAR ID", in: inPDR, ie: raw(ie.MARID, 0, 1), refused: true},
		{name: "Activation Time", in: inPDR, ie: raw(ie.ActivationTime, u32(1)...), refused: true},
		{name: "Deactivation Time", in: inPDR, ie: raw(ie.DeactivationTime, u32(1)...), refused: true},
		{name: "carry-on", in: inPDR, ie: raw(ie.PacketReplicationAndDetectionCarryOnInformation, 1), refused: true},
		{name: "IP multicast", in: inPDR, ie: group(ie.IPMulticastAddressingInfo), refused: true},
		{name: "pool identity", in: inPDR, ie: raw(ie.UEIPAddressPoolIdentity, 0, 1, 'p'), refused: true},
		{name: "MPTCP applicable", in: inPDR, ie: raw(ie.MPTCPApplicableIndication, 1), refused: true},
		{name: "transport delay reporting", in: inPDR, ie: group(ie.TransportDelayReporting), refused: true},

		{name: "redundant transmission", in: inPDI, ie: group(ie.RedundantTransmissionParameters), refused: true},
		{name: "traffic endpoint", in: inPDI, ie: raw(ie.TrafficEndpointID, 1), refused: true},
		{name: "multicast in a PDI", in: inPDI, ie: group(ie.IPMulticastAddressingInfo), refused: true},
		{name: "no framed routing", in: inPDI, ie: raw(ie.FramedRouting, u32(0)...),
			honoured: func(s *session.Session) bool { return len(lastPDR(s).PDI.FramedRoutes) == 0 }},
		{name: "framed routing", in: inPDI, ie: raw(ie.FramedRouting, u32(3)...), refused: true},
		{name: "framed route", in: inPDI, ie: raw(ie.FramedRoute, []byte("192.0.2.0/24")...),
			honoured: func(s *session.Session) bool { return len(lastPDR(s).PDI.FramedRoutes) == 1 }},
		{name: "delegated prefix", in: inPDI, ie: raw(ie.UEIPAddress, append(append([]byte{9}, make([]byte, 15)...), 1, 8)...),
			honoured: func(s *session.Session) bool { return lastPDR(s).PDI.UE[0].Bits() == 56 }},
		{name: "QFI", in: inPDI, ie: raw(ie.QFI, 5),
			honoured: func(s *session.Session) bool { return lastPDR(s).PDI.QFIs[0] == 5 }},

		{name: "redundant forwarding", in: inFAR, ie: group(ie.RedundantTransmissionForwardingParameters), refused: true},
		{name: "action DFRT", in: inFAR, ie: raw(ie.ApplyAction, 0x20), refused: true},
		{name: "action EDRT", in: inFAR, ie: raw(ie.ApplyAction, 0x42), refused: true},
		{name: "action BDPN", in: inFAR, ie: raw(ie.ApplyAction, 4, 1), refused: true},
		{name: "action DDPN", in: inFAR, ie: raw(ie.ApplyAction, 4, 2), refused: true},
		{name: "redirection", in: inForwarding, ie: raw(ie.RedirectInformation, 0, 0, 0), refused: true},
		{name: "header enrichment", in: inForwarding, ie: raw(ie.HeaderEnrichment, 0, 0, 0), refused: true},
		{name: "linked traffic endpoint", in: inForwarding, ie: raw(ie.TrafficEndpointID, 1), refused: true},
		{name: "outer header with a C-TAG", in: inForwarding, ie: raw(ie.OuterHeaderCreation, 0x40, 0, 0, 0, 0), refused: true},
		{name: "outer header of N19", in: inForwarding, ie: raw(ie.OuterHeaderCreation, 1, 1, 0, 0, 0, 1, 192, 0, 2, 1), refused: true},
		{name: "proxying", in: inForwarding, ie: raw(ie.Proxying, 1), refused: true},
		{name: "DNAI", in: inForwarding, ie: raw(ie.DataNetworkAccessIdentifier, 'x'), refused: true},
		{name: "multicast forwarding", in: inForwarding, ie: group(ie.IPMulticastAddressingInfo, raw(ie.IPMulticastAddress, 0)), refused: true},
		{name: "transport level marking", in: inForwarding, ie: raw(ie.TransportLevelMarking, 0x28, 0xfc),
			honoured: func(s *session.Session) bool { return lastFAR(s).Forwarding.ToS == 0x28 }},

		{name: "QER correlation", in: inQER, ie: raw(ie.QERCorrelationID, u32(1)...), refused: true},
		{name: "flow level marking", in: inQER, ie: raw(ie.DLFlowLevelMarking, 0), refused: true},
		{name: "paging policy indicator", in: inQER, ie: raw(ie.PagingPolicyIndicator, 1),
			ignored: "section 8.2.116: a mark for the paging of idle UEs; without it the access network pages all alike"},
		{name: "averaging window", in: inQER, ie: raw(ie.AveragingWindow, u32(2000)...),
			ignored: "section 8.2.115: a rate that is kept over 200 ms is kept over the window too"},
		{name: "averaging window of 199 ms", in: inQER, ie: raw(ie.AveragingWindow, u32(199)...), refused: true},
		{name: "QER control indications", in: inQER, ie: raw(ie.QERControlIndications, 1), refused: true},
		{name: "packet rate status", in: inQER, ie: raw(ie.PacketRateStatus, 0), refused: true},
		{name: "packet rate", in: inQER, ie: raw(ie.PacketRate, 1, 0, 0, 5),
			honoured: func(s *session.Session) bool { return lastQER(s).PacketRate.Uplink.Packets == 5 }},

		{name: "DROTH", in: inTrigger, ie: trigger(session.TriggerDroppedDownlink), refused: true},
		{name: "dropped DL traffic threshold", in: inURR, ie: raw(ie.DroppedDLTrafficThreshold, append([]byte{1}, make([]byte, 8)...)...), refused: true},
		{name: "ENVCL", in: inTrigger, ie: trigger(session.TriggerEnvelopeClosure), refused: true},
		{name: "MACAR", in: inTrigger, ie: trigger(session.TriggerMACAddresses),
			honoured: func(s *session.Session) bool { return lastURR(s).Trigger == session.TriggerMACAddresses }},
		{name: "EVETH", in: inTrigger, ie: trigger(session.TriggerEventThreshold), refused: true},
		{name: "EVEQU", in: inTrigger, ie: trigger(session.TriggerEventQuota), refused: true},
		{name: "IPMJL", in: inTrigger, ie: trigger(session.TriggerIPMulticastJoin), refused: true},
		{name: "REEMR", in: inTrigger, ie: trigger(session.TriggerReportEndMarker), refused: true},
		{name: "UPINT", in: inTrigger, ie: trigger(session.TriggerUserPlaneInactive), refused: true},
		{name: "inactivity timer of a URR", in: inURR, ie: raw(ie.UserPlaneInactivityTimer, u32(9)...), refused: true},
		{name: "time quota mechanism", in: inURR, ie: raw(ie.TimeQuotaMechanism, 0, 0, 0, 0, 1), refused: true},
		{name: "aggregated URRs", in: inURR, ie: group(ie.AggregatedURRs, raw(ie.AggregatedURRID, u32(2)...)), refused: true},
		{name: "event threshold", in: inURR, ie: raw(ie.EventThreshold, u32(1)...), refused: true},
		{name: "event quota", in: inURR, ie: raw(ie.EventQuota, u32(1)...), refused: true},
		{name: "subsequent event threshold", in: inURR, ie: raw(ie.SubsequentEventThreshold, u32(1)...), refused: true},
		{name: "subsequent event quota", in: inURR, ie: raw(ie.SubsequentEventQuota, u32(1)...), refused: true},
		{name: "subsequent volume quota", in: inURR, ie: raw(ie.SubsequentVolumeQuota, append([]byte{1}, make([]byte, 8)...)...), refused: true},
		{name: "subsequent time quota", in: inURR, ie: raw(ie.SubsequentTimeQuota, u32(1)...), refused: true},
		{name: "Ethernet inactivity timer", in: inURR, ie: raw(ie.EthernetInactivityTimer, u32(1)...),
			honoured: func(s *session.Session) bool { return lastURR(s).EthernetIdle == time.Second }},
		{name: "additional monitoring time", in: inURR, ie: group(ie.AdditionalMonitoringTime, raw(ie.MonitoringTime, u32(1)...)), refused: true},
		{name: "number of reports", in: inURR, ie: raw(ie.NumberOfReports, 0, 1), refused: true},
		{name: "exempted application", in: inURR, ie: raw(ie.ApplicationID, 'x'), refused: true},
		{name: "exempted SDF filter", in: inURR, ie: raw(ie.SDFFilter, 0, 0), refused: true},
		{name: "MBQE", in: inURR, ie: info(1), honoured: func(s *session.Session) bool { return lastURR(s).BeforeQoS }},
		{name: "INAM", in: inURR, ie: info(2), honoured: func(s *session.Session) bool { return lastURR(s).Inactive }},
		{name: "RADI", in: inURR, ie: info(4), ignored: "section 8.2.68: it reduces the information about applications, and none is reported"},
		{name: "ISTM", in: inURR, ie: info(8), honoured: func(s *session.Session) bool { return lastURR(s).ImmediateStart }},
		{name: "MNOP", in: inURR, ie: info(16), honoured: func(s *session.Session) bool { return lastURR(s).NumberOfPackets }},
		{name: "SSPOC", in: inURR, ie: info(32), refused: true},
		{name: "quota validity", in: inURR, ie: raw(ie.QuotaValidityTime, u32(60)...),
			honoured: func(s *session.Session) bool { return lastURR(s).QuotaValidity == time.Minute }},
		{name: "FAR for quota action", in: inURR, ie: rFARID,
			honoured: func(s *session.Session) bool { return *lastURR(s).FARForQuotaAction == 1 }},

		{name: "notification delay", in: inBAR, ie: raw(ie.DownlinkDataNotificationDelay, 2),
			honoured: func(s *session.Session) bool { return lastBAR(s).NotificationDelay == 100*time.Millisecond }},
		{name: "suggested count", in: inBAR, ie: raw(ie.SuggestedBufferingPacketsCount, 7),
			honoured: func(s *session.Session) bool { return lastBAR(s).SuggestedCount == 7 }},
		{name: "MT-EDT", in: inBAR, ie: raw(ie.MTEDTControlInformation, 1), refused: true},
		{name: "DL Buffering Duration", in: inBAR, ie: raw(ie.DLBufferingDuration, 1), ignored: notAnnounced},

		{name: "MAR", in: inRequest, ie: group(ie.CreateMAR), refused: true},
		{name: "SRR", in: inRequest, ie: group(ie.CreateSRR), refused: true},
		{name: "traffic endpoints", in: inRequest, ie: group(ie.CreateTrafficEndpoint), refused: true},
		{name: "bridge for TSC", in: inRequest, ie: raw(ie.CreateBridgeInfoForTSC, 1), refused: true, createOnly: true},
		{name: "RDS", in: inRequest, ie: group(ie.ProvideRDSConfigurationInformation), refused: true, createOnly: true},
		{name: "ATSSS", in: inRequest, ie: group(ie.ProvideATSSSControlInformation), refused: true},
		{name: "trace", in: inRequest, ie: raw(ie.TraceInformation, 1), refused: true},
		{name: "TSC management", in: inRequest, ie: group(ie.TSCManagementInformationWithinSessionModificationRequest), refused: true, updateOnly: true},
		{name: "Ethernet context", in: inRequest, ie: group(ie.EthernetContextInformation), refused: true, updateOnly: true},
		{name: "access availability", in: inRequest, ie: group(ie.AccessAvailabilityControlInformation), refused: true, updateOnly: true},
		{name: "packet rate status query", in: inRequest, ie: group(ie.QueryPacketRateStatusWithinSessionModificationRequest), refused: true, updateOnly: true},
		{name: "pause of charging", in: inRequest, ie: raw(ie.PFCPSMReqFlags, 8), refused: true, updateOnly: true},
		{name: "FQ-CSID", in: inRequest, ie: raw(ie.FQCSID, 0), ignored: informative},
		{name: "inactivity timer", in: inRequest, ie: raw(ie.UserPlaneInactivityTimer, u32(60)...),
			honoured: func(s *session.Session) bool { return s.InactivityTimer == time.Minute }},
		{name: "of a later release", in: inURR, ie: raw(999, 1), ignored: unknownIE},

		{name: "range of MAC addresses", in: inEthernet(), ie: raw(ie.MACAddress, 5, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0),
			honoured: func(s *session.Session) bool {
				return lastPDR(s).PDI.Ethernet[0].SourceTo == [6]byte{2, 0, 0, 0, 1, 0}
			}},
		{name: "MAC address", in: inEthernet(), ie: mac(1, 1),
			honoured: func(s *session.Session) bool { return len(lastPDR(s).PDI.Ethernet) == 1 }},
		{name: "bidirectional Ethernet filter", in: inEthernet(), ie: raw(ie.EthernetFilterProperties, 1), refused: true},
	}
}

func inEthernet() spot {
	filter := func(part []byte) []byte { return group(ie.EthernetPacketFilter, part) }
	return spot{
		func(part []byte) []byte { return inPDI.create(filter(part)) },
		func(part []byte) []byte { return inPDI.update(filter(part)) },
	}
}

// Whatever an SMF asks for is done, or the request is refused as a whole, with
// the IE that is to blame.
func TestOptionalIEs(t *testing.T) {
	for _, c := range optionalIEs() {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, func(_ *Config, u *fakeUPF) { u.features.Ethernet = true })
			m := b.smf(2)
			m.associate()
			if !c.updateOnly {
				c.judge(t, m.establishSound(c.in.create(c.ie)))
				if c.refused {
					b.upf.holdsNothing(t)
				} else {
					c.look(t, b.upf.only(t))
					m.delete(b.upf.only(t).SEID)
				}
			}
			if c.createOnly {
				return
			}
			if got := m.establishSound(); got.cause != ie.CauseRequestAccepted {
				t.Fatalf("a sound session: answered %+v", got)
			}
			before := b.upf.only(t)
			m.sendRaw(rawMessage(message.MsgTypeSessionModificationRequest, &before.SEID, m.next(), c.in.update(c.ie)))
			c.judge(t, refusal(t, m.receiveRaw(patience)))
			after := b.upf.only(t)
			if c.refused && after != before {
				t.Errorf("a refused modification changed the session: %+v", after)
			}
			if !c.refused {
				c.look(t, after)
			}
		})
	}
}

// establishSound asks for a session with one rule of each kind, and more.
func (m *smf) establishSound(more ...[]byte) answered {
	m.t.Helper()
	zero := uint64(0)
	sound := [][]byte{marshalIE(m.node()), marshalIE(m.cpFSEID(1)), soundPDR, rFAR, qer(), urr(), group(ie.CreateBAR, raw(ie.BARID, 1))}
	m.sendRaw(rawMessage(message.MsgTypeSessionEstablishmentRequest, &zero, m.next(), append(sound, more...)...))
	return refusal(m.t, m.receiveRaw(patience))
}

func (c *optionalIE) judge(t *testing.T, got answered) {
	t.Helper()
	want := answered{cause: ie.CauseRequestAccepted}
	if c.refused {
		want = answered{ie.CauseServiceNotSupported, binary.BigEndian.Uint16(c.ie)}
	}
	if c.offending != 0 {
		want.offending = c.offending
	}
	if got != want {
		t.Fatalf("answered %+v, want %+v", got, want)
	}
}

func (c *optionalIE) look(t *testing.T, s *session.Session) {
	t.Helper()
	if c.honoured == nil && c.ignored == "" {
		t.Fatal("a case must say what is done, or why nothing is")
	}
	if c.honoured != nil && !c.honoured(s) {
		t.Errorf("accepted, and not done: %+v", s)
	}
}
