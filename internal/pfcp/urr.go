package pfcp

import (
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// triggers are the Reporting Triggers that the user plane can have.
const triggers = session.TriggerPeriodic | session.TriggerVolumeThreshold | session.TriggerTimeThreshold |
	session.TriggerQuotaHolding | session.TriggerStart | session.TriggerStop | session.TriggerLinked |
	session.TriggerVolumeQuota | session.TriggerTimeQuota | session.TriggerQuotaValidity

func (b *builder) urr(l wire.IEs, u update) {
	id := idIn(&b.Decoder, l, ie.URRID, 4)
	r := rule(&b.Decoder, b.urrs(), id, u, RuleURR, urrID)
	if r == nil {
		return
	}
	r.ID = id
	var hasMethod, hasTriggers, hasLinked bool
	renewed := Renewed{URR: id}
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.MeasurementMethod:
			method := b.U8(t, v)
			r.Time, r.Volume, r.Event = method&1 != 0, method&2 != 0, method&4 != 0
			if method&7 == 0 {
				b.Fail(wire.Incorrect(t))
			}
			hasMethod = true
		case ie.ReportingTriggers:
			r.Trigger = b.reportingTriggers(v)
			hasTriggers = true
		case ie.LinkedURRID:
			r.Linked = b.appendID(t, v, r.Linked, &hasLinked, u)
		case ie.MeasurementInformation:
			b.measurementInformation(r, v, u)
		case ie.FARID: // FAR ID for Quota Action
			b.quotaAction(r, v, u)
		default:
			b.urrTimes(r, t, v, u, &renewed)
			b.urrVolumes(r, t, v, u, &renewed)
		}
	})
	switch {
	case u == changes:
	case !hasMethod:
		b.Fail(wire.Missing(ie.MeasurementMethod))
	case !hasTriggers:
		b.Fail(wire.Missing(ie.ReportingTriggers))
	}
	if u == changes && renewed != (Renewed{URR: id}) {
		b.how.Renewed = append(b.how.Renewed, renewed)
	}
}

// reportingTriggers has two octets, or three since release 16.
func (b *builder) reportingTriggers(v []byte) uint32 {
	const t = ie.ReportingTriggers
	if !b.Need(t, v, 2) {
		return 0
	}
	value := uint32(v[0]) | uint32(v[1])<<8
	if len(v) > 2 {
		value |= uint32(v[2]) << 16
	}
	allowed := triggers
	if b.features.Ethernet {
		allowed |= session.TriggerMACAddresses
	}
	if value&^allowed != 0 || (value&session.TriggerQuotaValidity != 0 && !b.features.QuotaValidity) {
		b.Fail(wire.Unsupported(t))
	}
	return value
}

func (b *builder) measurementInformation(r *session.URR, v []byte, u update) {
	const (
		t        = ie.MeasurementInformation
		before   = 1 << 0 // MBQE
		inactive = 1 << 1 // INAM
		reduced  = 1 << 2 // RADI: less of what an application is; there is no more
		start    = 1 << 3 // ISTM
		packets  = 1 << 4 // MNOP
	)
	r.BeforeQoS, r.Inactive, r.ImmediateStart, r.NumberOfPackets = false, false, false, false
	if u.clears(v) {
		return
	}
	info := b.U8(t, v)
	r.BeforeQoS = info&before != 0
	r.Inactive = info&inactive != 0
	r.ImmediateStart = info&start != 0
	r.NumberOfPackets = info&packets != 0
	if r.NumberOfPackets && !b.features.NumberOfPackets || info&^(before|inactive|reduced|start|packets) != 0 {
		b.Fail(wire.Unsupported(t))
	}
}

func (b *builder) quotaAction(r *session.URR, v []byte, u update) {
	r.FARForQuotaAction = nil
	if u.clears(v) {
		return
	}
	if !b.features.QuotaAction {
		b.Fail(wire.Unsupported(ie.FARID))
	}
	far := b.U32(ie.FARID, v)
	r.FARForQuotaAction = &far
}

// urrTimes are the parts of a URR that are times.
func (b *builder) urrTimes(r *session.URR, t uint16, v []byte, u update, renewed *Renewed) {
	duration := func(dst *time.Duration) {
		*dst = 0
		if !u.clears(v) {
			*dst = b.Seconds(t, v)
		}
	}
	switch t {
	case ie.MeasurementPeriod:
		duration(&r.Period)
	case ie.TimeThreshold:
		duration(&r.TimeThreshold)
		renewed.TimeThreshold = true
	case ie.TimeQuota:
		duration(&r.TimeQuota)
		r.HasTimeQuota = !u.clears(v)
		renewed.TimeQuota = true
	case ie.QuotaHoldingTime:
		duration(&r.QuotaHolding)
	case ie.QuotaValidityTime:
		duration(&r.QuotaValidity)
		renewed.QuotaValidity = true
		if r.QuotaValidity > 0 && !b.features.QuotaValidity {
			b.Fail(wire.Unsupported(t))
		}
	case ie.EthernetInactivityTimer:
		duration(&r.EthernetIdle)
		if r.EthernetIdle > 0 && !b.features.Ethernet {
			b.Fail(wire.Unsupported(t))
		}
	case ie.InactivityDetectionTime:
		duration(&r.InactivityTime)
	case ie.SubsequentTimeThreshold:
		duration(&r.SubsequentTime)
	case ie.MonitoringTime:
		r.MonitoringTime = time.Time{}
		if !u.clears(v) {
			r.MonitoringTime = b.Time(t, v)
		}
	case ie.TimeQuotaMechanism, ie.SubsequentTimeQuota,
		ie.AdditionalMonitoringTime, ie.UserPlaneInactivityTimer:
		if !u.clears(v) {
			b.Fail(wire.Unsupported(t))
		}
	}
}

// urrVolumes are the parts of a URR that are volumes, and what is not there.
func (b *builder) urrVolumes(r *session.URR, t uint16, v []byte, u update, renewed *Renewed) {
	volume := func(dst **session.Volume) {
		*dst = nil
		if !u.clears(v) {
			*dst = b.Volume(t, v)
		}
	}
	switch t {
	case ie.VolumeThreshold:
		volume(&r.VolumeThreshold)
		renewed.VolumeThreshold = true
	case ie.VolumeQuota:
		volume(&r.VolumeQuota)
		renewed.VolumeQuota = true
	case ie.SubsequentVolumeThreshold:
		volume(&r.SubsequentVolume)
	case ie.DroppedDLTrafficThreshold:
		if u.clears(v) || !b.Need(t, v, 1+8*int(v[0]&1)+8*int(v[0]>>1&1)) {
			return
		}
		b.Fail(wire.Unsupported(t))
	case ie.SubsequentVolumeQuota, ie.EventQuota, ie.EventThreshold, ie.SubsequentEventQuota,
		ie.SubsequentEventThreshold, ie.NumberOfReports, ie.AggregatedURRs,
		ie.ApplicationID, ie.SDFFilter: // that a quota's end exempts
		if !u.clears(v) {
			b.Fail(wire.Unsupported(t))
		}
	}
}
