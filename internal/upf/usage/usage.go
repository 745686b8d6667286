package upf

import (
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
)

// usage is what is known of a session's URRs. It is kept in the journal with
// each report, so that what was counted since is found again in the data path,
// which counts on without us.
type usage struct {
	bases        []base        // by rule
	measurements []measurement // sorted by URR, as the session's are
	// pending reports were sent, and not yet taken by the SMF. Until then no
	// others are made: what would be in them is in the next.
	pending []session.UsageReport
	waiting bool // until they are taken: something is due
	// seen is when the last packet was, for the session's inactivity timer.
	seen     time.Time
	inactive bool // and that this was told
	looked   time.Time
	retry    time.Time // when reports that nobody took are sent again
}

// base is what a rule had forwarded, and refused, when that was last added to its
// URRs.
type base struct {
	rule uint16
	tally
	stopAt  uint64 // as the data path has it
	refused tally
}

// tally is a count of the data path's.
type tally struct {
	volume   dataplane.Counter
	grown    uint64 // octets, by the last look
	notifyAt uint64 // as the data path has it
}

// look says what was added since the last time. A count that is less than then
// began anew, with the data path.
func (t *tally) look(now dataplane.Counter) dataplane.Counter {
	if now.Packets < t.volume.Packets || now.Bytes < t.volume.Bytes {
		t.volume = dataplane.Counter{}
	}
	grown := dataplane.Counter{Packets: now.Packets - t.volume.Packets, Bytes: now.Bytes - t.volume.Bytes}
	t.volume, t.grown = now, grown.Bytes
	return grown
}

// measures says that something of a session is counted.
func measures(s *session.Session) bool { return len(s.URRs) > 0 || s.InactivityTimer > 0 }

func newUsage(s *session.Session, now time.Time) *usage {
	if !measures(s) {
		return nil
	}
	u := &usage{measurements: make([]measurement, len(s.URRs)), seen: now}
	for i := range s.URRs {
		u.measurements[i] = begin(&s.URRs[i], now)
	}
	return u
}

func (u *usage) clone() *usage {
	if u == nil {
		return nil
	}
	out := *u
	out.bases, out.measurements = slices.Clone(u.bases), slices.Clone(u.measurements)
	out.pending = slices.Clone(u.pending)
	return &out
}

func (u *usage) of(urr uint32) *measurement {
	return byID(u.measurements, urr, func(m *measurement) uint32 { return m.id })
}

// base of a rule; nil: it is not one of the session's.
func (u *usage) base(rule uint16) *base {
	i := slices.IndexFunc(u.bases, func(b base) bool { return b.rule == rule })
	if i < 0 {
		return nil
	}
	return &u.bases[i]
}

// collect adds what the rules forwarded since the last time, and for URRs that
// measure before QoS enforcement what that refused.
func (u *usage) collect(s *session.Session, rules []dataplane.RuleUsage, now time.Time) {
	for _, r := range rules {
		b := u.base(r.Rule)
		if b == nil {
			continue // it went before, and was counted then
		}
		grown, refused := b.look(r.Volume), b.refused.look(r.Refused)
		p := pdrOf(s, r.Rule)
		if grown.Packets+refused.Packets == 0 || p == nil {
			continue
		}
		if grown.Packets > 0 {
			u.seen, u.inactive = now, false
		}
		u.count(s, p, grown, refused, now)
	}
	u.looked = now
	for i := range u.measurements {
		if urr := byID(s.URRs, u.measurements[i].id, urrID); urr != nil {
			u.measurements[i].advance(urr, now)
		}
	}
}

// count adds what a PDR forwarded and refused to its URRs.
func (u *usage) count(s *session.Session, p *session.PDR, grown, refused dataplane.Counter, now time.Time) {
	for _, id := range p.URRs {
		m, urr := u.of(id), byID(s.URRs, id, urrID)
		if m == nil || urr == nil {
			continue
		}
		counted := grown
		if urr.BeforeQoS {
			counted.Packets += refused.Packets
			counted.Bytes += refused.Bytes
		}
		if counted.Packets > 0 {
			m.add(urr, direction(p), counted, u.looked, now)
		}
	}
}

// reports makes those that are due, and the ones that are linked to them. blocks says
// that a quota ended.
func (u *usage) reports(s *session.Session, now time.Time) (out []session.UsageReport, blocks bool) {
	if len(u.pending) > 0 {
		return nil, false
	}
	causes := make([]session.Cause, len(u.measurements))
	for i := range u.measurements {
		m := &u.measurements[i]
		was := m.exhausted
		causes[i] = m.causes(&s.URRs[i], now)
		blocks = blocks || m.exhausted && !was
	}
	for i := range s.URRs {
		if s.URRs[i].Trigger&session.TriggerLinked == 0 || causes[i] != 0 {
			continue
		}
		for _, id := range s.URRs[i].Linked {
			if j := slices.IndexFunc(s.URRs, func(r session.URR) bool { return r.ID == id }); j >= 0 && causes[j]&^session.CauseLinked != 0 {
				causes[i] |= session.CauseLinked
			}
		}
	}
	for i, cause := range causes {
		if cause != 0 {
			out = append(out, u.measurements[i].report(&s.URRs[i], cause, now)...)
		}
	}
	return out, blocks
}

// due is when something of the session's usage has to be looked at next; zero:
// when packets bring it about.
func (u *usage) due(s *session.Session, now time.Time) time.Time {
	var next time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if len(u.pending) > 0 {
		return next
	}
	for i := range u.measurements {
		m := &u.measurements[i]
		at(m.due(&s.URRs[i], now))
		if m.awaits(&s.URRs[i]) && u.young(s, m.id) {
			at(now.Add(time.Second)) // the data path cannot tell yet
		}
	}
	if s.InactivityTimer > 0 && !u.inactive {
		at(u.seen.Add(s.InactivityTimer))
	}
	return next
}

// young: a rule of the URR has not forwarded enough for the data path to tell
// its next packet.
func (u *usage) young(s *session.Session, urr uint32) bool {
	return slices.ContainsFunc(u.bases, func(b base) bool {
		p := pdrOf(s, b.rule)
		return p != nil && b.volume.Bytes < granule && slices.Contains(p.URRs, urr)
	})
}

// loses says that a rule which is counted is not among these.
func (u *usage) loses(rules []dataplane.Rule) bool {
	return u != nil && slices.ContainsFunc(u.bases, func(b base) bool {
		return !slices.ContainsFunc(rules, func(r dataplane.Rule) bool { return r.ID == b.rule })
	})
}

// follow takes over which rules there are.
func (u *usage) follow(rules []dataplane.Rule) {
	u.bases = slices.DeleteFunc(u.bases, func(b base) bool {
		return !slices.ContainsFunc(rules, func(r dataplane.Rule) bool { return r.ID == b.rule })
	})
	for i := range rules {
		if u.base(rules[i].ID) == nil {
			u.bases = append(u.bases, base{rule: rules[i].ID})
		}
	}
}

// arm says at which volumes the data path tells of a rule, and stops it: those
// of the URR that is nearest. What is left of a volume is split over the rules
// that count towards it, and split again at the latest when one of them has
// used up half of its share.
func (u *usage) arm(s *session.Session) {
	for i := range u.bases {
		u.bases[i].notifyAt, u.bases[i].stopAt, u.bases[i].refused.notifyAt = 0, 0, 0
	}
	u.waiting = false
	for i := range u.measurements {
		if !s.URRs[i].Inactive {
			u.armURR(s, &s.URRs[i], &u.measurements[i])
		}
	}
}

func (u *usage) armURR(s *session.Session, urr *session.URR, m *measurement) {
	if m.exhausted {
		if urr.FARForQuotaAction == nil {
			u.each(s, urr.ID, total, func(b *base) { b.stop(b.volume.Bytes) })
		}
	} else if urr.Volume {
		limits(urr.VolumeQuota, m.quota, func(k kind, rest uint64) {
			u.split(s, urr, k, rest, func(b *base, share uint64, alone bool) {
				b.stop(b.volume.Bytes + share)
				if !alone {
					b.notify(b.volume.Bytes + share/2)
				}
			})
		})
		u.notifyEnd(s, urr, m)
	}
	if m.awaits(urr) && !u.wait() {
		u.each(s, urr.ID, total, func(b *base) {
			b.notify(b.volume.Bytes / granule * granule)
			if urr.BeforeQoS {
				b.refused.notify(b.refused.volume.Bytes / granule * granule)
			}
		})
	}
	volume, _ := m.thresholds(urr)
	if !urr.Volume || urr.Trigger&session.TriggerVolumeThreshold == 0 {
		return
	}
	limits(volume, m.volume, func(k kind, rest uint64) {
		if rest > 0 || !u.wait() {
			u.split(s, urr, k, rest, func(b *base, share uint64, _ bool) { b.notify(b.volume.Bytes + max(share, 1)) })
		}
	})
}

// notifyEnd has the end of a quota told when it comes, and not only by the
// packet behind it that is dropped.
func (u *usage) notifyEnd(s *session.Session, urr *session.URR, m *measurement) {
	limits(urr.VolumeQuota, m.quota, func(k kind, _ uint64) {
		u.each(s, urr.ID, k, func(b *base) { b.notify(b.stopAt) })
	})
}

// wait says that nothing can be reported now, and notes that something is to be.
func (u *usage) wait() bool {
	u.waiting = u.waiting || len(u.pending) > 0
	return len(u.pending) > 0
}

// each calls f for the rules whose packets a limit of a URR counts.
func (u *usage) each(s *session.Session, urr uint32, k kind, f func(*base)) {
	for i := range u.bases {
		p := pdrOf(s, u.bases[i].rule)
		if p != nil && k.counts(direction(p)) && slices.Contains(p.URRs, urr) {
			f(&u.bases[i])
		}
	}
}

// split gives each of the rules its share, and what they refuse where that counts.
// What is too little to split goes to the one that used most of late.
func (u *usage) split(s *session.Session, urr *session.URR, k kind, rest uint64, f func(b *base, share uint64, alone bool)) {
	n := uint64(0)
	var busiest *base
	u.each(s, urr.ID, k, func(b *base) {
		if n++; busiest == nil || b.grown > busiest.grown {
			busiest = b
		}
		if urr.BeforeQoS && b.refused.grown > 0 {
			n++
		}
	})
	u.each(s, urr.ID, k, func(b *base) {
		share := rest / n
		if urr.BeforeQoS {
			b.refused.notify(b.refused.volume.Bytes + b.refused.allowance(share))
		}
		if share < granule {
			share = 0
			if b == busiest {
				share = rest
			}
		}
		f(b, share, n == 1)
	})
}

// farthest is how far ahead it is asked to be told of what is refused: less than
// the data path can see.
const farthest = 1 << 36

// allowance is when to look again at what is refused, of a share: half of it, so
// that the rest can be split anew; at once where nothing was refused of late, which
// has no share.
func (t *tally) allowance(share uint64) uint64 {
	if t.grown == 0 {
		return 1
	}
	return min(max(share/2, 1), farthest)
}

func (t *tally) notify(at uint64) {
	if t.notifyAt == 0 || at < t.notifyAt {
		t.notifyAt = max(at, 1)
	}
}

// limits are the data path's.
func (b *base) limits() dataplane.RuleLimits {
	return dataplane.RuleLimits{NotifyAt: b.notifyAt, StopAt: b.stopAt, RefusedNotifyAt: b.refused.notifyAt}
}

// stop rounds down to what the data path counts in: it would round up, and so
// exceed a quota.
func (b *base) stop(at uint64) {
	at = max(at/granule*granule, 1)
	if b.stopAt == 0 || at < b.stopAt {
		b.stopAt = at
	}
}

// blocked are the PDRs whose quota is used up, with the FAR that holds for them
// then, where there is one.
func (u *usage) blocked(s *session.Session) map[uint16]uint32 {
	var out map[uint16]uint32
	if u == nil {
		return nil
	}
	for i := range u.measurements {
		if !u.measurements[i].exhausted || s.URRs[i].FARForQuotaAction == nil {
			continue
		}
		for j := range s.PDRs {
			if slices.Contains(s.PDRs[j].URRs, s.URRs[i].ID) {
				if out == nil {
					out = map[uint16]uint32{}
				}
				out[s.PDRs[j].ID] = *s.URRs[i].FARForQuotaAction
			}
		}
	}
	return out
}

// change goes over to other URRs, and returns the last reports of those that
// are gone.
func (u *usage) change(from, to *session.Session, renewed []pfcp.Renewed, now time.Time) (*usage, []session.UsageReport) {
	next := newUsage(to, now)
	if u == nil {
		return next, nil
	}
	if next == nil {
		next = &usage{}
	}
	next.bases, next.pending, next.seen, next.inactive = slices.Clone(u.bases), slices.Clone(u.pending), u.seen, u.inactive
	next.looked, next.retry = u.looked, u.retry
	var out []session.UsageReport
	for i := range u.measurements {
		m := u.measurements[i]
		urr := byID(to.URRs, m.id, urrID)
		if urr == nil {
			out = append(out, m.report(&from.URRs[i], session.CauseTermination, now)...)
			continue
		}
		was := &from.URRs[i]
		if urr.Period != was.Period {
			m.period = begin(urr, now).period
		}
		if !urr.MonitoringTime.Equal(was.MonitoringTime) {
			m.monitored = false
		}
		if urr.Inactive != was.Inactive {
			m.count(now)
			m.since = time.Time{}
		}
		*next.of(m.id) = m
	}
	for _, r := range renewed {
		if m := next.of(r.URR); m != nil {
			m.renew(r.VolumeQuota, r.TimeQuota, r.QuotaValidity, now)
		}
	}
	if next.nothing() && !measures(to) {
		return nil, out
	}
	return next, out
}

// nothing is left to be told.
func (u *usage) nothing() bool { return len(u.measurements) == 0 && len(u.pending) == 0 }

// query reports what was asked for.
func (u *usage) query(s *session.Session, urrs []uint32, all bool, now time.Time) []session.UsageReport {
	var out []session.UsageReport
	for i := range u.measurements {
		if m := &u.measurements[i]; all || slices.Contains(urrs, m.id) {
			out = append(out, m.report(&s.URRs[i], session.CauseImmediate, now)...)
		}
	}
	return out
}

// last reports everything: the session goes.
func (u *usage) last(s *session.Session, now time.Time) []session.UsageReport {
	var out []session.UsageReport
	for i := range u.measurements {
		out = append(out, u.measurements[i].report(&s.URRs[i], session.CauseTermination, now)...)
	}
	return out
}

func (c *codec) counter(v *dataplane.Counter) {
	num(c, &v.Packets)
	num(c, &v.Bytes)
}

func (c *codec) tally(t *tally) {
	c.counter(&t.volume)
	num(c, &t.grown)
	num(c, &t.notifyAt)
}

func (c *codec) measured(v *session.Measured) {
	num(c, &v.Uplink)
	num(c, &v.Downlink)
}

func (c *codec) usage(u *usage) {
	list(c, &u.bases, func(c *codec, b *base) {
		num(c, &b.rule)
		c.tally(&b.tally)
		num(c, &b.stopAt)
		c.tally(&b.refused)
	})
	list(c, &u.measurements, (*codec).measurement)
	list(c, &u.pending, (*codec).report)
	for _, t := range []*time.Time{&u.seen, &u.looked, &u.retry} {
		c.time(t)
	}
	c.flag(&u.inactive)
	c.flag(&u.waiting)
}

func (c *codec) measurement(m *measurement) {
	num(c, &m.id)
	num(c, &m.sequence)
	c.counted(&m.counted)
	for _, t := range []*time.Time{&m.start, &m.first, &m.last, &m.since, &m.period, &m.given, &m.split} {
		c.time(t)
	}
	c.measured(&m.quota)
	num(c, &m.quotaTime)
	for _, f := range []*bool{&m.exhausted, &m.holding, &m.traffic, &m.monitored, &m.firstSeen, &m.lastSeen} {
		c.flag(f)
	}
	optional(c, &m.before, (*codec).counted)
	list(c, &m.hosts, (*codec).mac)
	list(c, &m.told, (*codec).mac)
}

func (c *codec) mac(a *[6]byte) {
	for i := range a {
		num(c, &a[i])
	}
}

func (c *codec) counted(v *counted) {
	c.measured(&v.volume)
	c.measured(&v.packets)
	num(c, &v.used)
}

func (c *codec) report(r *session.UsageReport) {
	num(c, &r.URR)
	num(c, &r.Sequence)
	num(c, &r.Cause)
	for _, t := range []*time.Time{&r.Start, &r.End, &r.First, &r.Last} {
		c.time(t)
	}
	c.measured(&r.Volume)
	c.measured(&r.Packets)
	num(c, &r.Duration)
	for _, f := range []*bool{&r.HasVolume, &r.HasDuration, &r.AfterMonitoring, &r.BeforeMonitoring} {
		c.flag(f)
	}
	list(c, &r.Detected, (*codec).mac)
	list(c, &r.Removed, (*codec).mac)
}
