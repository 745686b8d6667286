package request

import (
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// value is the row of an IE that sets one field of a URR.
func value[V any](ieType uint16, read func(wire.IE) V, field func(*session.URR) *V) row[*session.URR] {
	return row[*session.URR]{ieType, 0,
		func(_ *Builder, i wire.IE, r *session.URR) { *field(r) = read(i) }, func(r *session.URR) { *field(r) = *new(V) }}
}

var urrIEs = newGroup(nil, []row[*session.URR]{
	{ie.MeasurementMethod, mandatory, func(_ *Builder, i wire.IE, r *session.URR) {
		method := i.U8()
		r.Time, r.Volume, r.Event = method&1 != 0, method&2 != 0, method&4 != 0
		if method&7 == 0 {
			i.Incorrect()
		}
	}, nil},
	{ie.ReportingTriggers, mandatory, readTriggers, nil},
	{ie.LinkedURRID, list, func(_ *Builder, i wire.IE, r *session.URR) { r.Linked = appendID(i, r.Linked) }, func(r *session.URR) { r.Linked = nil }},
	{ie.MeasurementInformation, 0, readInformation, func(r *session.URR) {
		r.BeforeQoS, r.Inactive, r.ImmediateStart, r.NumberOfPackets = false, false, false, false
	}},
	{ie.FARID, 0, func(b *Builder, i wire.IE, r *session.URR) { // FAR ID for Quota Action
		i.Supported(b.Features.QuotaAction)
		r.FARForQuotaAction = new(i.U32())
	}, func(r *session.URR) { r.FARForQuotaAction = nil }},

	value(ie.MeasurementPeriod, wire.IE.Seconds, func(r *session.URR) *time.Duration { return &r.Period }),
	value(ie.TimeThreshold, wire.IE.Seconds, func(r *session.URR) *time.Duration { return &r.TimeThreshold }),
	{ie.TimeQuota, 0, func(_ *Builder, i wire.IE, r *session.URR) { r.TimeQuota, r.HasTimeQuota = i.Seconds(), true },
		func(r *session.URR) { r.TimeQuota, r.HasTimeQuota = 0, false }},
	value(ie.QuotaHoldingTime, wire.IE.Seconds, func(r *session.URR) *time.Duration { return &r.QuotaHolding }),
	{ie.QuotaValidityTime, 0, func(b *Builder, i wire.IE, r *session.URR) {
		r.QuotaValidity = i.Seconds()
		i.Supported(r.QuotaValidity == 0 || b.Features.QuotaValidity)
	}, func(r *session.URR) { r.QuotaValidity = 0 }},
	{ie.EthernetInactivityTimer, 0, func(b *Builder, i wire.IE, r *session.URR) {
		r.EthernetIdle = i.Seconds()
		i.Supported(r.EthernetIdle == 0 || b.Features.Ethernet)
	}, func(r *session.URR) { r.EthernetIdle = 0 }},
	value(ie.InactivityDetectionTime, wire.IE.Seconds, func(r *session.URR) *time.Duration { return &r.InactivityTime }),
	value(ie.SubsequentTimeThreshold, wire.IE.Seconds, func(r *session.URR) *time.Duration { return &r.SubsequentTime }),
	value(ie.MonitoringTime, wire.IE.Time, func(r *session.URR) *time.Time { return &r.MonitoringTime }),

	value(ie.VolumeThreshold, wire.IE.Volume, func(r *session.URR) **session.Volume { return &r.VolumeThreshold }),
	value(ie.VolumeQuota, wire.IE.Volume, func(r *session.URR) **session.Volume { return &r.VolumeQuota }),
	value(ie.SubsequentVolumeThreshold, wire.IE.Volume, func(r *session.URR) **session.Volume { return &r.SubsequentVolume }),
	{ie.DroppedDLTrafficThreshold, removable, func(_ *Builder, i wire.IE, _ *session.URR) {
		if flags := i.U8(); i.Need(1 + 8*int(flags&1) + 8*int(flags>>1&1)) {
			i.Unsupported()
		}
	}, nil},
}, refused[*session.URR](removable,
	ie.TimeQuotaMechanism, ie.SubsequentTimeQuota, ie.AdditionalMonitoringTime, ie.UserPlaneInactivityTimer,
	ie.SubsequentVolumeQuota, ie.EventQuota, ie.EventThreshold, ie.SubsequentEventQuota, ie.SubsequentEventThreshold,
	ie.NumberOfReports, ie.AggregatedURRs,
	ie.ApplicationID, ie.SDFFilter, // exempt from the end of a quota
))

// noteNew notes which values of a URR an update gives again, and whether the URR takes the ID of
// one that the request removes.
func noteNew(b *Builder, r *session.URR, u update, s seen) {
	if u == create && slices.Contains(b.removed, removed{session.RuleURR, r.ID}) {
		b.How.ReplacedURRs = append(b.How.ReplacedURRs, r.ID)
	}
	renewed := session.Renewed{
		URR:             r.ID,
		VolumeThreshold: urrIEs.has(s, ie.VolumeThreshold),
		TimeThreshold:   urrIEs.has(s, ie.TimeThreshold),
		VolumeQuota:     urrIEs.has(s, ie.VolumeQuota),
		TimeQuota:       urrIEs.has(s, ie.TimeQuota),
		QuotaValidity:   urrIEs.has(s, ie.QuotaValidityTime),
	}
	if u == changes && renewed != (session.Renewed{URR: r.ID}) {
		b.How.Renewed = append(b.How.Renewed, renewed)
	}
}

// triggers are the Reporting Triggers of every user plane.
const triggers = session.TriggerPeriodic | session.TriggerVolumeThreshold | session.TriggerTimeThreshold |
	session.TriggerQuotaHolding | session.TriggerStart | session.TriggerStop | session.TriggerLinked |
	session.TriggerVolumeQuota | session.TriggerTimeQuota | session.TriggerQuotaValidity

// readTriggers reads Reporting Triggers: two octets, or three since release 16.
func readTriggers(b *Builder, i wire.IE, r *session.URR) {
	if !i.Need(2) {
		return
	}
	r.Trigger = uint32(i.Value()[0]) | uint32(i.Value()[1])<<8
	if len(i.Value()) > 2 {
		r.Trigger |= uint32(i.Value()[2]) << 16
	}
	allowed := triggers
	if b.Features.Ethernet {
		allowed |= session.TriggerMACAddresses
	}
	if r.Trigger&^allowed != 0 || (r.Trigger&session.TriggerQuotaValidity != 0 && !b.Features.QuotaValidity) {
		i.Unsupported()
	}
}

// readInformation reads Measurement Information.
func readInformation(b *Builder, i wire.IE, r *session.URR) {
	const (
		before   = 1 << 0 // MBQE
		inactive = 1 << 1 // INAM
		reduced  = 1 << 2 // RADI: less about applications; we report no more anyway
		start    = 1 << 3 // ISTM
		packets  = 1 << 4 // MNOP
	)
	info := i.U8()
	r.BeforeQoS = info&before != 0
	r.Inactive = info&inactive != 0
	r.ImmediateStart = info&start != 0
	r.NumberOfPackets = info&packets != 0
	if r.NumberOfPackets && !b.Features.NumberOfPackets || info&^(before|inactive|reduced|start|packets) != 0 {
		i.Unsupported()
	}
}
