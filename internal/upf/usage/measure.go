package usage

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
)

// measurement is what one URR counts.
type measurement struct {
	id       uint32
	sequence uint32    // UR-SEQN of the next report
	start    time.Time // of the next report
	counted
	first, last time.Time // packet, when we noticed it
	// firstSeen and lastSeen say that we noticed the packet soon enough for its
	// time to be reported.
	firstSeen, lastSeen bool

	since  time.Time // time counts since then; zero: it does not count
	period time.Time // when the next periodic report is due

	// What was used of the quotas since the SMF gave them, and when it did.
	quota     session.Measured
	quotaTime time.Duration
	given     time.Time
	exhausted bool // until the SMF gives a new quota
	holding   bool // the Quota Holding Time has expired

	traffic bool // START was reported, STOPT was not
	// hosts are the UE's hosts that the data path knows, reported those that the
	// control plane knows. Both are sorted.
	hosts, reported [][6]byte
	// before is what was counted before the Monitoring Time, until it is
	// reported.
	before    *counted
	split     time.Time // the Monitoring Time that has passed
	monitored bool      // it has passed
}

// counted is what a report contains.
type counted struct {
	volume, packets session.Measured
	used            time.Duration // up to the measurement's since
}

// precise is how late we may notice a packet for its time to be reported.
const precise = 2 * time.Second

// add counts packets that a rule forwarded between looked and now.
func (m *measurement) add(u *session.URR, d datapath.Direction, c counter.Counter, looked, now time.Time) {
	if u.Inactive {
		return
	}
	grow := func(v *session.Measured, by uint64) {
		if d == datapath.Uplink {
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
		// Where something depends on the first packet, the data path notifies us
		// of it at once.
		m.first, m.firstSeen = now, soon || m.awaits(u)
	}
	m.last, m.lastSeen, m.holding = now, soon, false
	if u.Time && m.since.IsZero() {
		m.since = now
	}
}

// advance lets time pass. Time stops counting an Inactivity Detection Time after
// the last packet. What comes after the Monitoring Time is counted apart.
func (m *measurement) advance(u *session.URR, now time.Time) {
	if u.InactivityTime > 0 && !m.since.IsZero() && !u.ImmediateStart {
		if end := later(m.last, m.since).Add(u.InactivityTime); !now.Before(end) {
			m.countTime(end)
			m.since = time.Time{}
		}
	}
	if at := u.MonitoringTime; !at.IsZero() && !m.monitored && !now.Before(at) {
		m.countTime(now)
		part := m.counted
		m.before, m.counted = &part, counted{}
		m.split, m.monitored = now, true
	}
}

// countTime adds the time up to now.
func (m *measurement) countTime(now time.Time) {
	if m.since.IsZero() {
		return
	}
	d := max(0, now.Sub(m.since))
	m.used += d
	m.quotaTime += d
	m.since = now
}

// elapsed returns the time that counts, up to now, on top of what is used up to
// since.
func (m *measurement) elapsed(used time.Duration, now time.Time) time.Duration {
	if m.since.IsZero() {
		return used
	}
	return used + max(0, now.Sub(m.since))
}

// renew begins the quotas that the SMF has given again. A quota counts from the
// last report on (TS 29.244 section 5.2.2.2.1).
func (m *measurement) renew(r session.Renewed, now time.Time) {
	m.countTime(now)
	if r.VolumeQuota {
		m.quota = m.volume
		if m.before != nil {
			m.quota.Uplink += m.before.volume.Uplink
			m.quota.Downlink += m.before.volume.Downlink
		}
	}
	if r.TimeQuota {
		m.quotaTime = m.used
	}
	if r.VolumeQuota || r.TimeQuota || r.QuotaValidity { // if another quota is used up, that ends it again
		m.exhausted, m.holding, m.given = false, false, now
	}
}

// thresholds returns the thresholds that apply now.
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

// left returns the least that is left of a volume. limited says whether there is a
// limit at all.
func left(limit *session.Volume, used session.Measured) (least uint64, limited bool) {
	least = math.MaxUint64
	limits(limit, used, func(_ kind, rest uint64) { least, limited = min(least, rest), true })
	return least, limited
}

// kind is which packets a limit on volume counts.
type kind uint8

const (
	total kind = iota
	uplink
	downlink
)

// limits calls f with what is left of each limit, never less than 0.
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

// causes says why the URR is to be reported now; 0: it is not. It notes what is
// reported only once.
func (m *measurement) causes(u *session.URR, now time.Time) session.Cause {
	var out session.Cause
	report := func(trigger uint32, cause session.Cause) {
		if u.Trigger&trigger != 0 {
			out |= cause
		}
	}
	volume, duration := m.thresholds(u)
	if rest, limited := left(volume, m.volume); u.Volume && limited && rest == 0 {
		report(session.TriggerVolumeThreshold, session.CauseVolumeThreshold)
	}
	if u.Time && duration > 0 && m.elapsed(m.used, now) >= duration {
		report(session.TriggerTimeThreshold, session.CauseTimeThreshold)
	}
	if !m.period.IsZero() && !now.Before(m.period) {
		for !now.Before(m.period) {
			m.period = m.period.Add(u.Period)
		}
		report(session.TriggerPeriodic, session.CausePeriodic)
	}
	m.startStop(u, now, report)
	if !slices.Equal(m.hosts, m.reported) {
		report(session.TriggerMACAddresses, session.CauseMACAddresses)
	}
	if !m.exhausted {
		m.endQuotas(u, now, report)
	}
	return out
}

// endQuotas ends a quota that is used up or has expired.
func (m *measurement) endQuotas(u *session.URR, now time.Time, report func(uint32, session.Cause)) {
	end := func(trigger uint32, cause session.Cause) {
		m.exhausted = true
		report(trigger, cause)
	}
	if rest, limited := left(u.VolumeQuota, m.quota); u.Volume && limited && rest == 0 {
		end(session.TriggerVolumeQuota, session.CauseVolumeQuota)
	}
	if u.Time && u.HasTimeQuota && m.elapsed(m.quotaTime, now) >= u.TimeQuota {
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

// stopAfter is how long no packet comes once traffic has stopped, unless the SMF
// says how long.
const stopAfter = time.Minute

// startStop reports the start and the stop of traffic.
func (m *measurement) startStop(u *session.URR, now time.Time, report func(uint32, session.Cause)) {
	if u.Trigger&(session.TriggerStart|session.TriggerStop) == 0 || m.last.IsZero() {
		return
	}
	silent := !now.Before(m.last.Add(cmp.Or(u.InactivityTime, stopAfter)))
	switch {
	case !m.traffic && !silent:
		m.traffic = true
		report(session.TriggerStart, session.CauseStart)
	case m.traffic && silent:
		m.traffic = false
		report(session.TriggerStop, session.CauseStop)
	}
}

// awaits says that the data path has to notify us of the next packet at once: what
// begins with it depends on its time.
func (m *measurement) awaits(u *session.URR) bool {
	return !u.Inactive && (u.Time && m.since.IsZero() || u.Trigger&session.TriggerStart != 0 && !m.traffic)
}

// due is when causes or advance have something to do next, unless packets bring it
// about. The zero time means never.
func (m *measurement) due(u *session.URR, now time.Time) time.Time {
	var next time.Time
	at := func(t time.Time) { next = sooner(next, t) }
	// What depends on the last packet needs a look more often: we learn only then
	// when that packet came.
	idle := func(d time.Duration, since time.Time) {
		at(sooner(since.Add(d), now.Add(max(d/8, time.Second/2))))
	}
	at(m.period)
	if _, d := m.thresholds(u); u.Time && d > 0 && !m.since.IsZero() && u.Trigger&session.TriggerTimeThreshold != 0 {
		at(m.since.Add(d - m.used))
	}
	if u.InactivityTime > 0 && !m.since.IsZero() && !u.ImmediateStart {
		idle(u.InactivityTime, later(m.last, m.since))
	}
	if !m.monitored {
		at(u.MonitoringTime)
	}
	if m.traffic {
		idle(cmp.Or(u.InactivityTime, stopAfter), m.last)
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

// report returns what was counted, in two parts if the Monitoring Time was in
// between, and begins to count anew.
func (m *measurement) report(u *session.URR, cause session.Cause, now time.Time) []session.UsageReport {
	m.countTime(now)
	var out []session.UsageReport
	one := func(c counted, from, to time.Time) *session.UsageReport {
		out = append(out, session.UsageReport{
			URR: u.ID, Sequence: m.sequence, Cause: cause, Start: from, End: to,
			Volume: c.volume, Packets: c.packets, Duration: c.used, HasVolume: u.Volume, HasPackets: u.Volume && u.NumberOfPackets, HasDuration: u.Time,
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
	end.Detected, end.Removed = without(m.hosts, m.reported), without(m.reported, m.hosts)
	m.reported = m.hosts
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

// sooner returns the earlier of two times. The zero time is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
