package usage

import (
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/rules"
)

// Usage is what is known about the usage of a session. The journal keeps it with
// each report. What the data path counts afterwards is found there after a
// restart, because the data path goes on without us.
type Usage struct {
	counts       []count       // by rule
	measurements []measurement // sorted by URR, as the session's URRs are
	// pending reports were sent, and the SMF has not taken them yet. Until then
	// no others are made: the next report has what would be in them.
	pending []session.UsageReport
	waiting bool // a report is due once the pending ones are taken
	shares  bool // the data path has the session's quotas
	quotas  []datapath.Quota
	// seen is the time of the last packet, for the session's inactivity timer.
	seen     time.Time
	inactive bool      // the SMF knows that the timer has expired
	looked   time.Time // when the counts were collected last
	retry    time.Time // when the pending reports are sent again
}

// count is what a rule had forwarded and refused when that was last added to its
// URRs.
type count struct {
	rule uint16
	tally
	stopAt  uint64 // as the data path has it
	stops   bool   // there; else it shares quotas from there on
	refused tally
}

// tally is one of the data path's counters.
type tally struct {
	volume   counter.Counter
	grown    uint64 // octets, between the last two looks
	notifyAt uint64 // as the data path has it
}

// look returns what was added since the last look. A counter that is lower than
// then was reset with the data path.
func (t *tally) look(now counter.Counter) counter.Counter {
	if now.Packets < t.volume.Packets || now.Bytes < t.volume.Bytes {
		t.volume = counter.Counter{}
	}
	grown := counter.Counter{Packets: now.Packets - t.volume.Packets, Bytes: now.Bytes - t.volume.Bytes}
	t.volume, t.grown = now, grown.Bytes
	return grown
}

// Measures says whether anything of a session is measured.
func Measures(s *session.Session) bool { return len(s.URRs) > 0 || s.InactivityTimer > 0 }

// New returns the Usage of a session that begins, or nil if nothing of it is
// measured.
func New(s *session.Session, now time.Time) *Usage {
	if !Measures(s) {
		return nil
	}
	u := &Usage{measurements: make([]measurement, len(s.URRs)), seen: now}
	for i := range s.URRs {
		urr, m := &s.URRs[i], &u.measurements[i]
		m.id, m.start, m.given = urr.ID, now, now
		if urr.Period > 0 {
			m.period = now.Add(urr.Period)
		}
		if urr.Time && urr.ImmediateStart {
			m.since = now
		}
	}
	return u
}

// Counted returns the Usage of a session of which nothing was measured until now: what its rules
// have forwarded and refused so far is counted for no URR that comes.
func Counted(of []datapath.RuleUsage, now time.Time) *Usage {
	u := &Usage{seen: now, looked: now}
	for _, r := range of {
		c := count{rule: r.Rule}
		c.look(r.Volume)
		c.refused.look(r.Refused)
		u.counts = append(u.counts, c)
	}
	return u
}

// find returns the first element of a list that is meant, or nil.
func find[T any](list []T, meant func(*T) bool) *T {
	for i := range list {
		if meant(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// measurementOf returns the measurement of a URR, or nil.
func (u *Usage) measurementOf(urr uint32) *measurement {
	return find(u.measurements, func(m *measurement) bool { return m.id == urr })
}

// countOf returns the count of a rule, or nil.
func (u *Usage) countOf(rule uint16) *count {
	return find(u.counts, func(c *count) bool { return c.rule == rule })
}

// Collect adds to the URRs what the rules forwarded since the last time and, for
// URRs that measure before QoS enforcement, what the rules refused.
func (u *Usage) Collect(s *session.Session, of []datapath.RuleUsage, now time.Time) {
	for _, r := range of {
		c := u.countOf(r.Rule)
		if c == nil {
			continue // an earlier modification removed and counted it
		}
		grown, refused := c.look(r.Volume), c.refused.look(r.Refused)
		p := rules.PDR(s, r.Rule)
		if grown.Packets+refused.Packets == 0 || p == nil {
			continue
		}
		if grown.Packets > 0 {
			u.seen, u.inactive = now, false
		}
		u.add(s, p, grown, refused, now)
	}
	u.looked = now
	for i := range u.measurements {
		if urr := s.URR(u.measurements[i].id); urr != nil {
			u.measurements[i].advance(urr, now)
		}
	}
}

// add counts what a PDR forwarded and refused for each of its URRs.
func (u *Usage) add(s *session.Session, p *session.PDR, grown, refused counter.Counter, now time.Time) {
	for _, id := range p.URRs {
		m, urr := u.measurementOf(id), s.URR(id)
		if m == nil || urr == nil {
			continue
		}
		counted := grown
		if urr.BeforeQoS {
			counted.Packets += refused.Packets
			counted.Bytes += refused.Bytes
		}
		if counted.Packets > 0 {
			m.add(urr, rules.Direction(p), counted, u.looked, now)
		}
	}
}

// Finding is what Examine found.
type Finding struct {
	Reports  []session.UsageReport // to send
	Inactive bool                  // the session's inactivity timer has expired
	Blocked  bool                  // a quota is used up since the last time
	Changed  bool                  // the journal has to keep the Usage
}

// Examine looks for what is due, after Collect. The reports that it finds are
// pending until Taken.
func (u *Usage) Examine(s *session.Session, now time.Time) (f Finding) {
	if len(u.pending) > 0 {
		if !u.retry.IsZero() && !now.Before(u.retry) {
			f.Reports, u.retry = u.pending, time.Time{}
		}
		return f
	}
	f.Reports, f.Blocked = u.dueReports(s, now)
	if s.InactivityTimer > 0 && !u.inactive && !now.Before(u.seen.Add(s.InactivityTimer)) {
		u.inactive, f.Inactive = true, true
	}
	u.pending = f.Reports
	f.Changed = len(f.Reports) > 0 || f.Inactive
	return f
}

// dueReports makes the reports that are due, and those of URRs linked to them.
// blocked says that a quota ended.
func (u *Usage) dueReports(s *session.Session, now time.Time) (out []session.UsageReport, blocked bool) {
	causes := make([]session.Cause, len(u.measurements))
	for i := range u.measurements {
		m := &u.measurements[i]
		was := m.exhausted
		causes[i] = m.causes(&s.URRs[i], now)
		blocked = blocked || m.exhausted && !was
	}
	for i := range s.URRs {
		if s.URRs[i].Trigger&session.TriggerLinked == 0 || causes[i] != 0 {
			continue
		}
		for j := range s.URRs {
			if causes[j]&^session.CauseLinked != 0 && slices.Contains(s.URRs[i].Linked, s.URRs[j].ID) {
				causes[i] |= session.CauseLinked
			}
		}
	}
	for i, cause := range causes {
		if cause != 0 {
			out = append(out, u.measurements[i].report(&s.URRs[i], cause, now)...)
		}
	}
	return out, blocked
}

// Due is when Examine has something to do next, unless packets bring it about.
// The zero time means never.
func (u *Usage) Due(s *session.Session, now time.Time) time.Time {
	next := u.retry
	if len(u.pending) > 0 {
		return next
	}
	for i := range u.measurements {
		m := &u.measurements[i]
		next = sooner(next, m.due(&s.URRs[i], now))
		if m.awaits(&s.URRs[i]) && u.young(s, m.id) {
			next = sooner(next, now.Add(time.Second)) // the data path cannot notify yet
		}
	}
	switch {
	case s.InactivityTimer == 0:
	case !u.inactive:
		next = sooner(next, u.seen.Add(s.InactivityTimer))
	case slices.ContainsFunc(u.counts, count.young):
		next = sooner(next, now.Add(s.InactivityTimer))
	}
	return next
}

// young says that a rule has not forwarded enough yet for the data path to notify us of its next
// packet.
func (c count) young() bool { return c.volume.Bytes < granule }

// young says so of a rule of a URR.
func (u *Usage) young(s *session.Session, urr uint32) bool {
	return slices.ContainsFunc(u.counts, func(c count) bool {
		p := rules.PDR(s, c.rule)
		return p != nil && c.young() && slices.Contains(p.URRs, urr)
	})
}

// Retry sends the pending reports again at a time.
func (u *Usage) Retry(at time.Time) { u.retry = at }

// Taken notes that the SMF has taken the pending reports, or never will. What
// waited for that is due at once.
func (u *Usage) Taken(now time.Time) {
	u.Settle()
	u.retry = time.Time{}
	if u.waiting {
		u.retry = now
	}
}

// Settle forgets the pending reports, as the journal of an earlier process says.
func (u *Usage) Settle() { u.pending = nil }

// Resume sends the pending reports of an earlier process again: nobody knows
// whether the SMF has taken them.
func (u *Usage) Resume(now time.Time) {
	if len(u.pending) > 0 {
		u.retry = now
	}
}

// Active starts the session's inactivity timer anew.
func (u *Usage) Active(now time.Time) { u.inactive, u.seen = false, now }

// Change returns the Usage of a session after a modification, and the last reports
// of URRs that are gone, or were made anew with the same ID. It does not change u, which
// may be nil, as may be the result.
func (u *Usage) Change(from, to *session.Session, how session.Modification, now time.Time) (*Usage, []session.UsageReport) {
	next := New(to, now)
	if u == nil {
		return next, nil
	}
	if next == nil {
		next = &Usage{}
	}
	next.counts, next.pending, next.seen, next.inactive = slices.Clone(u.counts), slices.Clone(u.pending), u.seen, u.inactive
	next.looked, next.retry = u.looked, u.retry
	if to.InactivityTimer != from.InactivityTimer {
		next.Active(now)
	}
	var out []session.UsageReport
	for i := range u.measurements {
		m, was := u.measurements[i], &from.URRs[i]
		urr := to.URR(m.id)
		if urr == nil || slices.Contains(how.ReplacedURRs, m.id) {
			out = append(out, m.report(was, session.CauseTermination, now)...)
			continue
		}
		changed := next.measurementOf(m.id)
		if urr.Period != was.Period {
			m.period = changed.period
		}
		if !urr.MonitoringTime.Equal(was.MonitoringTime) {
			m.monitored = false
		}
		if urr.Inactive != was.Inactive {
			m.countTime(now)
			m.since = time.Time{}
		}
		*changed = m
	}
	for _, r := range how.Renewed {
		if m := next.measurementOf(r.URR); m != nil {
			m.renew(r, now)
		}
	}
	if len(next.measurements) == 0 && len(next.pending) == 0 && !Measures(to) {
		return nil, out
	}
	return next, out
}

// Query reports the URRs that the SMF asks for.
func (u *Usage) Query(s *session.Session, urrs []uint32, all bool, now time.Time) []session.UsageReport {
	var out []session.UsageReport
	for i := range u.measurements {
		if m := &u.measurements[i]; all || slices.Contains(urrs, m.id) {
			out = append(out, m.report(&s.URRs[i], session.CauseImmediate, now)...)
		}
	}
	return out
}

// Last reports everything, as the session ends. Reports that the SMF has not taken
// are among them: it recognizes them by their sequence number.
func (u *Usage) Last(s *session.Session, of []datapath.RuleUsage, now time.Time) []session.UsageReport {
	u.Collect(s, of, now)
	out := u.pending
	for i := range u.measurements {
		out = append(out, u.measurements[i].report(&s.URRs[i], session.CauseTermination, now)...)
	}
	return out
}

// Status is what a URR has measured since its last report.
type Status struct {
	URR       uint32
	Sequence  uint32 // of the next report
	Volume    session.Measured
	Exhausted bool // its quota is used up
}

// Peek returns the status of each URR, with what the rules forwarded up to now. It
// changes nothing. u may be nil.
func (u *Usage) Peek(s *session.Session, of []datapath.RuleUsage, now time.Time) (out []Status) {
	if u == nil {
		return nil
	}
	next := *u
	next.counts, next.measurements = slices.Clone(u.counts), slices.Clone(u.measurements)
	next.Collect(s, of, now)
	for _, m := range next.measurements {
		out = append(out, Status{m.id, m.sequence, m.volume, m.exhausted})
	}
	return out
}
