package request

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// Causes that go-pfcp has no name for (TS 29.244 table 8.2.1-1).
const (
	CauseUnknownPredefinedRule uint8 = 80
	CauseUnknownApplication    uint8 = 81
)

// The rules of a session.
var (
	pdrs = &ruleType[session.PDR, uint16]{
		kind: session.RulePDR, idIE: ie.PDRID, octets: 2,
		list: func(s *session.Session) *[]session.PDR { return &s.PDRs },
		id:   func(p *session.PDR) *uint16 { return &p.ID },
		ies:  pdrIEs,
	}
	fars = &ruleType[session.FAR, uint32]{
		kind: session.RuleFAR, idIE: ie.FARID, octets: 4,
		list: func(s *session.Session) *[]session.FAR { return &s.FARs },
		id:   func(f *session.FAR) *uint32 { return &f.ID },
		ies:  farIEs, after: checkFAR,
	}
	qers = &ruleType[session.QER, uint32]{
		kind: session.RuleQER, idIE: ie.QERID, octets: 4,
		list: func(s *session.Session) *[]session.QER { return &s.QERs },
		id:   func(q *session.QER) *uint32 { return &q.ID },
		ies:  qerIEs,
	}
	urrs = &ruleType[session.URR, uint32]{
		kind: session.RuleURR, idIE: ie.URRID, octets: 4,
		list: func(s *session.Session) *[]session.URR { return &s.URRs },
		id:   func(r *session.URR) *uint32 { return &r.ID },
		ies:  urrIEs, after: noteRenewed,
	}
	bars = &ruleType[session.BAR, uint8]{
		kind: session.RuleBAR, idIE: ie.BARID, octets: 1,
		list: func(s *session.Session) *[]session.BAR { return &s.BARs },
		id:   func(r *session.BAR) *uint8 { return &r.ID },
		ies:  barIEs,
	}
)

// appendID appends an ID to a list that has each ID once.
func appendID(x in, ids []uint32) []uint32 {
	if id := x.U32(); !slices.Contains(ids, id) {
		ids = append(ids, id)
	}
	return ids
}

// Without predefined rules and MARs a PDR must name a FAR.
var pdrIEs = newGroup(nil, []row[*session.PDR]{
	{ie.Precedence, mandatory, func(x in, p *session.PDR) { p.Precedence = x.U32() }, nil},
	{ie.PDI, mandatory | once, readPDI, nil},
	{ie.FARID, mandatory, func(x in, p *session.PDR) { p.FAR = x.U32() }, nil},
	{ie.OuterHeaderRemoval, 0, func(x in, p *session.PDR) {
		p.RemoveOuter = true
		if what := x.U8(); what == 5 || (what > 6 && what != 9) { // VLAN tags
			x.Unsupported()
		}
	}, func(p *session.PDR) { p.RemoveOuter = false }},
	{ie.QERID, list, func(x in, p *session.PDR) { p.QERs = appendID(x, p.QERs) }, func(p *session.PDR) { p.QERs = nil }},
	{ie.URRID, list, func(x in, p *session.PDR) { p.URRs = appendID(x, p.URRs) }, func(p *session.PDR) { p.URRs = nil }},
	{ie.ActivatePredefinedRules, 0, refusePredefined, nil},
	{ie.DeactivatePredefinedRules, 0, refusePredefined, nil},
	{ie.MARID, 0, nil, nil},
	{ie.ActivationTime, 0, nil, nil},
	{ie.DeactivationTime, 0, nil, nil},
	{ie.IPMulticastAddressingInfo, 0, nil, nil},
	{ie.TransportDelayReporting, 0, nil, nil},
	{ie.PacketReplicationAndDetectionCarryOnInformation, 0, nil, nil},
	{ie.UEIPAddressPoolIdentity, 0, nil, nil},
	{ie.MPTCPApplicableIndication, 0, nil, nil},
}...)

func refusePredefined(x in, p *session.PDR) {
	x.Fail(&wire.Refusal{Cause: CauseUnknownPredefinedRule, Offending: x.Type,
		Rule: &wire.RuleID{Kind: session.RulePDR, ID: uint32(p.ID)}})
}

var qerIEs = newGroup(nil, []row[*session.QER]{
	{ie.GateStatus, mandatory, func(x in, q *session.QER) {
		gate := x.U8()
		q.DownlinkClosed, q.UplinkClosed = gate&3 != 0, gate>>2&3 != 0
	}, nil},
	{ie.MBR, 0, func(x in, q *session.QER) { q.MBR = x.BitRate() }, func(q *session.QER) { q.MBR = nil }},
	{ie.GBR, 0, func(x in, q *session.QER) { q.GBR = x.BitRate() }, func(q *session.QER) { q.GBR = nil }},
	{ie.PacketRate, 0, func(x in, q *session.QER) {
		if x.feature(x.b.Features.PacketRate) {
			q.PacketRate = x.PacketRate()
		}
	}, func(q *session.QER) { q.PacketRate = nil }},
	{ie.QFI, 0, func(x in, q *session.QER) { q.QFI = new(x.U8() & 0x3f) }, func(q *session.QER) { q.QFI = nil }},
	{ie.RQI, 0, func(x in, q *session.QER) { q.Reflective = x.U8()&1 != 0 }, func(q *session.QER) { q.Reflective = false }},
	{ie.AveragingWindow, removable, readAveragingWindow, nil},
	{ie.QERCorrelationID, removable, nil, nil}, // a limit that sessions share
	{ie.DLFlowLevelMarking, removable, nil, nil},
	{ie.PacketRateStatus, removable, nil, nil},
	{ie.PagingPolicyIndicator, removable, nil, nil},
	{ie.QERControlIndications, removable, nil, nil},
}...)

// meterWindow is how much of the past the data path measures a rate over
// (docs/reference/semantics.md section 7, "Meter").
const meterWindow = 64 * time.Millisecond

// readAveragingWindow: a rate that is kept over a short time is kept over a
// longer one too.
func readAveragingWindow(x in, _ *session.QER) {
	if time.Duration(x.U32())*time.Millisecond < meterWindow {
		x.Unsupported()
	}
}

var barIEs = newGroup(nil, []row[*session.BAR]{
	{ie.DownlinkDataNotificationDelay, 0, func(x in, r *session.BAR) {
		r.NotificationDelay = time.Duration(x.U8()) * 50 * time.Millisecond
		x.feature(r.NotificationDelay == 0 || x.b.Features.NotificationDelay)
	}, func(r *session.BAR) { r.NotificationDelay = 0 }},
	{ie.SuggestedBufferingPacketsCount, 0, func(x in, r *session.BAR) { r.SuggestedCount = uint16(x.U8()) },
		func(r *session.BAR) { r.SuggestedCount = 0 }},
	{ie.DLBufferingSuggestedPacketCount, 0, func(x in, r *session.BAR) { // in a Session Report Response
		r.SuggestedCount = uint16(x.U8())
		if len(x.Value) > 1 {
			r.SuggestedCount = binary.BigEndian.Uint16(x.Value)
		}
	}, nil},
	{ie.MTEDTControlInformation, 0, nil, nil},
}...)
