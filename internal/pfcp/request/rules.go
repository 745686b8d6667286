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
		ies:  urrIEs, after: noteNew,
	}
	bars = &ruleType[session.BAR, uint8]{
		kind: session.RuleBAR, idIE: ie.BARID, octets: 1,
		list: func(s *session.Session) *[]session.BAR { return &s.BARs },
		id:   func(r *session.BAR) *uint8 { return &r.ID },
		ies:  barIEs,
	}
)

// appendID appends an ID to a list that has each ID once.
func appendID(i wire.IE, ids []uint32) []uint32 {
	if id := i.U32(); !slices.Contains(ids, id) {
		ids = append(ids, id)
	}
	return ids
}

// Without predefined rules and MARs a PDR must name a FAR.
var pdrIEs = newGroup(nil, []row[*session.PDR]{
	{ie.Precedence, mandatory, func(_ *Builder, i wire.IE, p *session.PDR) { p.Precedence = i.U32() }, nil},
	{ie.PDI, mandatory | once, readPDI, nil},
	{ie.FARID, mandatory, func(_ *Builder, i wire.IE, p *session.PDR) { p.FAR = i.U32() }, nil},
	{ie.OuterHeaderRemoval, 0, func(_ *Builder, i wire.IE, p *session.PDR) {
		p.RemoveOuter = true
		if what := i.U8(); what == 5 || (what > 6 && what != 9) { // VLAN tags
			i.Unsupported()
		}
	}, func(p *session.PDR) { p.RemoveOuter = false }},
	{ie.QERID, list, func(_ *Builder, i wire.IE, p *session.PDR) { p.QERs = appendID(i, p.QERs) }, func(p *session.PDR) { p.QERs = nil }},
	{ie.URRID, list, func(_ *Builder, i wire.IE, p *session.PDR) { p.URRs = appendID(i, p.URRs) }, func(p *session.PDR) { p.URRs = nil }},
	{ie.ActivatePredefinedRules, 0, refusePredefined, nil},
	{ie.DeactivatePredefinedRules, 0, refusePredefined, nil},
}, refused[*session.PDR](0,
	ie.MARID, ie.ActivationTime, ie.DeactivationTime, ie.IPMulticastAddressingInfo, ie.TransportDelayReporting,
	ie.PacketReplicationAndDetectionCarryOnInformation, ie.UEIPAddressPoolIdentity, ie.MPTCPApplicableIndication,
))

func refusePredefined(_ *Builder, i wire.IE, p *session.PDR) {
	i.Fail(&wire.Refusal{Cause: CauseUnknownPredefinedRule, Offending: i.Type(),
		Rule: &session.RuleError{Kind: session.RulePDR, ID: uint32(p.ID)}})
}

var qerIEs = newGroup(nil, []row[*session.QER]{
	{ie.GateStatus, mandatory, func(_ *Builder, i wire.IE, q *session.QER) {
		gate := i.U8()
		q.DownlinkClosed, q.UplinkClosed = gate&3 != 0, gate>>2&3 != 0
	}, nil},
	{ie.MBR, 0, func(_ *Builder, i wire.IE, q *session.QER) { q.MBR = i.BitRate() }, func(q *session.QER) { q.MBR = nil }},
	{ie.GBR, 0, func(_ *Builder, i wire.IE, q *session.QER) { q.GBR = i.BitRate() }, func(q *session.QER) { q.GBR = nil }},
	{ie.PacketRate, 0, func(b *Builder, i wire.IE, q *session.QER) {
		if i.Supported(b.Features.PacketRate) {
			q.PacketRate = i.PacketRate()
		}
	}, func(q *session.QER) { q.PacketRate = nil }},
	{ie.QFI, 0, func(_ *Builder, i wire.IE, q *session.QER) { q.QFI = new(i.U8() & 0x3f) }, func(q *session.QER) { q.QFI = nil }},
	{ie.RQI, 0, func(_ *Builder, i wire.IE, q *session.QER) { q.Reflective = i.U8()&1 != 0 }, func(q *session.QER) { q.Reflective = false }},
	{ie.AveragingWindow, removable, func(_ *Builder, i wire.IE, _ *session.QER) {
		// A rate that is kept over a short time is kept over a longer one too.
		i.Supported(time.Duration(i.U32())*time.Millisecond >= meterWindow)
	}, nil},
}, refused[*session.QER](removable,
	ie.QERCorrelationID, // a limit that sessions share
	ie.DLFlowLevelMarking, ie.PacketRateStatus, ie.QERControlIndications,
))

// meterWindow is how much of the past the data path measures a rate over at most
// (docs/reference/semantics.md section 7, "Meter").
const meterWindow = 200 * time.Millisecond

var barIEs = newGroup(nil, []row[*session.BAR]{
	{ie.DownlinkDataNotificationDelay, 0, func(b *Builder, i wire.IE, r *session.BAR) {
		r.NotificationDelay = time.Duration(i.U8()) * 50 * time.Millisecond
		i.Supported(r.NotificationDelay == 0 || b.Features.NotificationDelay)
	}, func(r *session.BAR) { r.NotificationDelay = 0 }},
	{ie.SuggestedBufferingPacketsCount, 0, func(_ *Builder, i wire.IE, r *session.BAR) { r.SuggestedCount = uint16(i.U8()) },
		func(r *session.BAR) { r.SuggestedCount = 0 }},
	{ie.DLBufferingSuggestedPacketCount, 0, func(_ *Builder, i wire.IE, r *session.BAR) { // in a Session Report Response
		r.SuggestedCount = uint16(i.U8())
		if len(i.Value()) > 1 {
			r.SuggestedCount = binary.BigEndian.Uint16(i.Value())
		}
	}, nil},
}, refused[*session.BAR](0, ie.MTEDTControlInformation))
