package upf

import (
	"math"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/session"
)

// granule is what the data path counts limits in.
const granule = 256

// measurement is what one URR counts.
type measurement struct {
	id       uint32
	sequence uint32    // UR-SEQN of the next report
	start    time.Time // of what is counted now
	counted
	first, last time.Time // packets, as far as that was seen
	// firstSeen and lastSeen say that it was seen soon after.
	firstSeen, lastSeen bool

	since  time.Time // time is counted since then; zero: it is not
	period time.Time // when the next periodic report is due

	// What was used of the quotas since they were given, and when that was.
	quota     session.Measured
	quotaTime time.Duration
	given     time.Time
	exhausted bool // until there is a new quota
	holding   bool // Quota Holding Time has run out once

	traffic bool // START was told, STOPT was not
	// hosts are the UE's when they were last looked for, told those that the
	// control plane knows; sorted.
	hosts, told [][6]byte
	// before is what was counted before the Monitoring Time, until it is
	// reported; monitored says that this time has come.
	before    *counted
	split     time.Time // the Monitoring Time that came
	monitored bool
}

// counted is what a report tells.
type counted struct {
	volume, packets session.Measured
	used            time.Duration // without what is counted since `since`
}

// begin is the measurement of a new URR.
func begin(u *session.URR, now time.Time) measurement {
	m := measurement{id: u.ID, start: now, given: now}
	if u.Period > 0 {
		m.period = now.Add(u.Period)
	}
	if u.Time && u.ImmediateStart {
		m.since = now
	}
	return m
}

// precise is how late a packet may be seen for its time to be told.
const precise = 2 * time.Second

// add counts packets of a rule that were there at some time between the last
// look and now.
func (m *measurement) add(u *session.URR, d dataplane.Direction, c dataplane.Counter, looked, now time.Time) {
	if u.Inactive {
		return
	}
	grow := func(v *session.Measured, by uint64) {
		if d == dataplane.Uplink {
			v.Uplink += by
		} else {
			v.Downlink += by
		}
	}
	grow(&m.volume, c.Bytes)
	grow(&m.packets, c.Packets)
	grow(&m.quota, c.Bytes)
	soon := now.Sub(looked) < precise
	if m.first.IsZero() {
		// The first packet is told at once where something depends on it.
		m.first, m.firstSeen = now, soon || m.awaits(u)
	}
	m.last, m.lastSeen, m.holding = now, soon, false
	if u.Time && m.since.IsZero() {
		m.since = now
	}
}

// advance lets time pass: it is no longer counted some time after the last
// packet, and what comes after the Monitoring Time is counted apart.
func (m *measurement) advance(u *session.URR, now time.Time) {
	if u.InactivityTime > 0 && !m.since.IsZero() && !u.ImmediateStart {
		if end := later(m.last, m.since).Add(u.InactivityTime); !now.Before(end) {
			m.count(end)
			m.since = time.Time{}
		}
	}
	if at := u.MonitoringTime; !at.IsZero() && !m.monitored && !now.Before(at) {
		m.count(now)
		part := m.counted
		m.before, m.counted = &part, counted{}
		m.split, m.monitored = now, true
	}
}

// count settles the time up to now.
func (m *measurement) count(now time.Time) {
	if m.since.IsZero() {
		return
	}
	d := max(0, now.Sub(m.since))
	m.used += d
	m.quotaTime += d
	m.since = now
}

// elapsed is the time that was counted, up to now.
func (m *measurement) elapsed(now time.Time) time.Duration {
	if m.since.IsZero() {
		return m.used
	}
	return m.used + max(0, now.Sub(m.since))
}

func (m *measurement) quotaElapsed(now time.Time) time.Duration {
	if m.since.IsZero() {
		return m.quotaTime
	}
	return m.quotaTime + max(0, now.Sub(m.since))
}

// renew begins what an SMF has given anew. A quota counts from the last report
// on (TS 29.244 section 5.2.2.2.1).
func (m *measurement) renew(volume, duration, validity bool, now time.Time) {
	m.count(now)
	if volume {
		m.quota = m.volume
		if m.before != nil {
			m.quota.Uplink += m.before.volume.Uplink
			m.quota.Downlink += m.before.volume.Downlink
		}
	}
	if duration {
		m.quotaTime = m.used
	}
	if volume || duration {
		m.exhausted, m.holding = false, false
	}
	if volume || duration || validity {
		m.given = now
	}
}

// thresholds that hold now.
func (m *measurement) thresholds(u *session.URR) (*session.Volume, time.Duration) {
	volume, duration := u.VolumeThreshold, u.TimeThreshold
	if m.monitored && u.SubsequentVolume != nil {
		volume = u.SubsequentVolume
	}
	if m.monitored && u.SubsequentTime > 0 {
		duration = u.SubsequentTime
	}
	return volume, duration
}

// left is the least that is left of a volume, and never less than 0; ok says
// that there is a limit.
func left(limit *session.Volume, used session.Measured) (least uint64, ok bool) {
	least = math.MaxUint64
	limits(limit, used, func(_ kind, rest uint64) { least, ok = min(least, rest), true })
	return least, ok
}

// kind is what a limit of a volume is of.
type kind uint8

const (
	total kind = iota
	uplink
	downlink
)

// counts says whether packets of a direction are of a kind.
func (k kind) counts(d dataplane.Direction) bool {
	return k == total || (k == uplink) == (d == dataplane.Uplink)
}

// limits calls f with what is left of each limit.
func limits(limit *session.Volume, used session.Measured, f func(kind, uint64)) {
	if limit == nil {
		return
	}
	rest := func(k kind, limit *uint64, used uint64) {
		if limit != nil {
			f(k, *limit-min(*limit, used))
		}
	}
	rest(total, limit.Total, used.Total())
	rest(uplink, limit.Uplink, used.Uplink)
	rest(downlink, limit.Downlink, used.Downlink)
}

// causes says why the URR has to be reported now, and marks what is told once.
func (m *measurement) causes(u *session.URR, now time.Time) session.Cause {
	var out session.Cause
	told := func(trigger uint32, cause session.Cause) {
		if u.Trigger&trigger != 0 {
			out |= cause
		}
	}
	volume, duration := m.thresholds(u)
	if rest, limited := left(volume, m.volume); u.Volume && limited && rest == 0 {
		told(session.TriggerVolumeThreshold, session.CauseVolumeThreshold)
	}
	if u.Time && duration > 0 && m.elapsed(now) >= duration {
		told(session.TriggerTimeThreshold, session.CauseTimeThreshold)
	}
	if !m.period.IsZero() && !now.Before(m.period) {
		for !now.Before(m.period) {
			m.period = m.period.Add(u.Period)
		}
		told(session.TriggerPeriodic, session.CausePeriodic)
	}
	m.traffics(u, now, told)
	if !slices.Equal(m.hosts, m.told) {
		told(session.TriggerMACAddresses, session.CauseMACAddresses)
	}
	if !m.exhausted {
		m.quotas(u, now, told)
	}
	return out
}

// quotas ends the quota that is used up, or whose time is over.
func (m *measurement) quotas(u *session.URR, now time.Time, told func(uint32, session.Cause)) {
	end := func(trigger uint32, cause session.Cause) {
		m.exhausted = true
		told(trigger, cause)
	}
	if rest, limited := left(u.VolumeQuota, m.quota); u.Volume && limited && rest < granule {
		end(session.TriggerVolumeQuota, session.CauseVolumeQuota)
	}
	if u.Time && u.HasTimeQuota && m.quotaElapsed(now) >= u.TimeQuota {
		end(session.TriggerTimeQuota, session.CauseTimeQuota)
	}
	if u.QuotaValidity > 0 && !now.Before(m.given.Add(u.QuotaValidity)) {
		end(session.TriggerQuotaValidity, session.CauseQuotaValidity)
	}
	if u.QuotaHolding > 0 && !m.holding && !now.Before(later(m.last, m.given).Add(u.QuotaHolding)) {
		m.holding = true
		end(session.TriggerQuotaHolding, session.CauseQuotaHolding)
	}
}

// stopAfter is without packets when traffic has stopped, where the SMF does not
// say it.
const stopAfter = time.Minute

// quiet is how long no packet comes once traffic has stopped.
func quiet(u *session.URR) time.Duration {
	if u.InactivityTime > 0 {
		return u.InactivityTime
	}
	return stopAfter
}

// traffics tells the start and the stop of traffic.
func (m *measurement) traffics(u *session.URR, now time.Time, told func(uint32, session.Cause)) {
	if u.Trigger&(session.TriggerStart|session.TriggerStop) == 0 || m.last.IsZero() {
		return
	}
	silent := !now.Before(m.last.Add(quiet(u)))
	switch {
	case !m.traffic && !silent:
		m.traffic = true
		told(session.TriggerStart, session.CauseStart)
	case m.traffic && silent:
		m.traffic = false
		told(session.TriggerStop, session.CauseStop)
	}
}

// awaits says that the next packet has to be told at once: what it begins
// depends on its time.
func (m *measurement) awaits(u *session.URR) bool {
	return !u.Inactive && (u.Time && m.since.IsZero() || u.Trigger&session.TriggerStart != 0 && !m.traffic)
}

// due is when causes or advance have something to do next, unless packets bring
// it about; zero: never.
func (m *measurement) due(u *session.URR, now time.Time) time.Time {
	var next time.Time
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	// What depends on the last packet is looked at more often, since only
	// then it is known when that was.
	idle := func(d time.Duration, since time.Time) {
		at(earlier(since.Add(d), now.Add(max(d/8, time.Second/2))))
	}
	if !m.period.IsZero() {
		at(m.period)
	}
	if _, d := m.thresholds(u); u.Time && d > 0 && !m.since.IsZero() && u.Trigger&session.TriggerTimeThreshold != 0 {
		at(m.since.Add(d - m.used))
	}
	if u.InactivityTime > 0 && !m.since.IsZero() && !u.ImmediateStart {
		idle(u.InactivityTime, later(m.last, m.since))
	}
	if !u.MonitoringTime.IsZero() && !m.monitored {
		at(u.MonitoringTime)
	}
	if m.traffic {
		idle(quiet(u), m.last)
	}
	if m.exhausted {
		return next
	}
	if u.Time && u.HasTimeQuota && !m.since.IsZero() {
		at(m.since.Add(u.TimeQuota - m.quotaTime))
	}
	if u.QuotaValidity > 0 {
		at(m.given.Add(u.QuotaValidity))
	}
	if u.QuotaHolding > 0 && !m.holding {
		idle(u.QuotaHolding, later(m.last, m.given))
	}
	return next
}

// report is what was counted, in two parts if the Monitoring Time was in
// between, and begins anew.
func (m *measurement) report(u *session.URR, cause session.Cause, now time.Time) []session.UsageReport {
	m.count(now)
	var out []session.UsageReport
	one := func(c counted, from, to time.Time) *session.UsageReport {
		out = append(out, session.UsageReport{
			URR: u.ID, Sequence: m.sequence, Cause: cause, Start: from, End: to,
			Volume: c.volume, Packets: c.packets, Duration: c.used, HasVolume: u.Volume, HasDuration: u.Time,
		})
		m.sequence++
		return &out[len(out)-1]
	}
	start := m.start
	if m.before != nil {
		one(*m.before, start, m.split).BeforeMonitoring = true
		start = m.split
	}
	if r := one(m.counted, start, now); m.before != nil {
		r.AfterMonitoring = true
	}
	end := &out[len(out)-1]
	end.Detected, end.Removed = without(m.hosts, m.told), without(m.told, m.hosts)
	m.told = m.hosts
	if !m.first.IsZero() {
		if m.firstSeen {
			end.First = m.first
		}
		if m.lastSeen {
			end.Last = m.last
		}
	}
	m.counted, m.before, m.start, m.first = counted{}, nil, now, time.Time{}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
