package upf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
)

// compile makes what the data path is to hold of a session, and says which
// slice it is of. changing is held for reading.
func (u *UPF) compile(s *session.Session, usage *usage) (dataplane.Session, uint32, error) {
	return u.config.Load().compile(s, usage)
}

func (config *settings) compile(s *session.Session, usage *usage) (dataplane.Session, uint32, error) {
	c := compiler{s: s, instead: usage.blocked(s)}
	if i, found := matchSlice(config.Slices, s); found != nil {
		c.slice, c.index = found, config.indices[i]
	}
	out, err := c.compile()
	if err != nil {
		return out, 0, err
	}
	if usage != nil {
		usage.follow(out.Rules)
		usage.arm(s)
		for i := range out.Rules {
			b := usage.base(out.Rules[i].ID)
			out.Rules[i].RuleLimits = b.limits()
			if b.stopAt != 0 && b.stopAt < granule { // which the data path would round up
				out.Rules[i].StopAt, out.Rules[i].Action = 0, dataplane.ActionDrop
			}
		}
	}
	return out, c.index, nil
}

// Establish implements pfcp.UPF.
func (u *UPF) Establish(s *session.Session) error {
	u.changing.RLock()
	defer u.changing.RUnlock()
	if u.sessions.Add(1) > int64(u.o.Sessions) {
		u.sessions.Add(-1)
		return fmt.Errorf("%w: there are %d sessions, as many as may be", pfcp.ErrNoResources, u.o.Sessions)
	}
	e := &entry{seid: s.SEID, usage: newUsage(s, u.now()), ethernet: isEthernet(s)}
	e.mu.Lock()
	defer e.mu.Unlock()
	packed, err := u.establish(e, s)
	if err != nil {
		u.sessions.Add(-1)
		return err
	}
	for _, t := range tunnelsOf(s) {
		u.paths.use(s.SEID, t)
	}
	u.schedule(e, s)
	e.keep(packed)
	return nil
}

func (u *UPF) establish(e *entry, s *session.Session) (packed []byte, err error) {
	rules, index, err := u.compile(s, e.usage)
	if err != nil {
		return nil, err
	}
	e.slice = index
	if err := u.enter(e); err != nil {
		return nil, err
	}
	if err = resources(u.dp.PutSession(rules)); err != nil {
		e.gone = true
		u.leave(e)
		return nil, err
	}
	packed = packEntry(s, e.usage)
	if err = u.journal.append(record{recordSession, e.seid, packed}); err != nil {
		e.gone = true
		u.leave(e)
		return nil, errors.Join(err, u.dp.DropSession(s.SEID))
	}
	u.links.join(rules)
	return packed, nil
}

func (u *UPF) enter(e *entry) error {
	sh := u.shard(e.seid)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.entries.Get(e.seid) != nil {
		return fmt.Errorf("there is a session %#x", e.seid)
	}
	sh.entries.Put(e.seid, e)
	return nil
}

func (u *UPF) leave(e *entry) {
	sh := u.shard(e.seid)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.entries.Delete(e.seid)
	u.links.leave(e.seid)
}

// Modify implements pfcp.UPF.
func (u *UPF) Modify(from, to *session.Session, how pfcp.Modification) ([]session.UsageReport, error) {
	u.changing.RLock()
	defer u.changing.RUnlock()
	e := u.entry(to.SEID)
	if e == nil {
		return nil, fmt.Errorf("there is no session %#x", to.SEID)
	}
	e.lock()
	defer e.unlock()
	if e.gone {
		return nil, fmt.Errorf("there is no session %#x", to.SEID)
	}
	now := u.now()
	c, err := u.change(e, from, to, how, now)
	if err != nil {
		return nil, err
	}
	packed := packEntry(to, c.usage)
	if err := u.journal.append(record{recordSession, e.seid, packed}); err != nil {
		return nil, errors.Join(err, u.put(e, from, e.usage))
	}
	e.usage, e.slice = c.usage, c.slice
	u.links.join(c.rules)
	u.moveTunnels(from, to)
	u.endMarkers(from, to, how.EndMarkers)
	u.flush(e, to, how.DropBuffered)
	u.schedule(e, to)
	e.keep(packed)
	return c.reports, nil
}

// change takes the data path from one session to another. On an error all is as
// it was.
func (u *UPF) change(e *entry, from, to *session.Session, how pfcp.Modification, now time.Time) (planned, error) {
	if err := u.collect(e, from, now); err != nil {
		return planned{}, err
	}
	c, err := u.plan(e, from, to, how, now)
	if err != nil {
		return planned{}, err
	}
	if !how.DropBuffered {
		e.holdBack(&c.rules)
	}
	if err := resources(u.dp.PutSession(c.rules)); err != nil {
		return planned{}, err
	}
	if !e.usage.loses(c.rules.Rules) {
		return c, nil
	}
	// Once more: with what the rules that went have counted to their end.
	if err = u.collect(e, from, now); err == nil {
		c, err = u.plan(e, from, to, how, now)
	}
	if err == nil {
		err = u.limit(e, c.rules)
	}
	if err != nil {
		return planned{}, errors.Join(err, u.put(e, from, e.usage))
	}
	return c, nil
}

// limit sets the limits of the rules that a session has already.
func (u *UPF) limit(e *entry, s dataplane.Session) error {
	for _, r := range s.Rules {
		if r.RuleLimits == (dataplane.RuleLimits{}) {
			continue
		}
		if err := u.dp.SetRuleLimits(e.seid, r.ID, r.RuleLimits); err != nil {
			return err
		}
	}
	return nil
}

// planned is what a modification leads to.
type planned struct {
	reports []session.UsageReport
	usage   *usage
	rules   dataplane.Session
	slice   uint32
}

// plan changes nothing yet.
func (u *UPF) plan(e *entry, from, to *session.Session, how pfcp.Modification, now time.Time) (c planned, err error) {
	c.usage, c.reports = e.usage.change(from, to, how.Renewed, now)
	if c.usage != nil && (how.QueryAll || len(how.QueryURRs) > 0) {
		c.reports = append(c.reports, c.usage.query(to, how.QueryURRs, how.QueryAll, now)...)
	}
	c.rules, c.slice, err = u.compile(to, c.usage)
	return c, err
}

// put brings the data path to a session and its usage.
func (u *UPF) put(e *entry, s *session.Session, usage *usage) error {
	rules, index, err := u.compile(s, usage)
	if err != nil {
		return err
	}
	e.holdBack(&rules)
	if err := resources(u.dp.PutSession(rules)); err != nil {
		return err
	}
	e.slice = index
	u.links.join(rules)
	return nil
}

// collect adds what was forwarded to the URRs.
func (u *UPF) collect(e *entry, s *session.Session, now time.Time) error {
	if e.usage == nil {
		return nil
	}
	rules, err := u.dp.SessionUsage(e.seid)
	if err != nil {
		return err
	}
	e.usage.collect(s, rules, now)
	return nil
}

func (u *UPF) moveTunnels(from, to *session.Session) {
	before, after := tunnelsOf(from), tunnelsOf(to)
	for _, t := range after {
		if !slices.Contains(before, t) {
			u.paths.use(to.SEID, t)
		}
	}
	for _, t := range before {
		if !slices.Contains(after, t) {
			u.paths.leave(to.SEID, t)
		}
	}
}

// Delete implements pfcp.UPF.
func (u *UPF) Delete(s *session.Session, done func([]session.UsageReport, error)) {
	e := u.entry(s.SEID)
	if e == nil || !e.close() {
		done(nil, fmt.Errorf("there is no session %#x", s.SEID))
		return
	}
	// From here on nobody else looks at it.
	ended := func(rules []dataplane.RuleUsage, err error) {
		if err != nil {
			e.reopen()
			done(nil, err)
			return
		}
		reports := u.last(e, s, rules)
		u.removed(e, s)
		done(reports, nil)
	}
	if len(s.URRs) == 0 {
		ended(nil, u.dp.DropSession(s.SEID))
	} else if err := u.dp.RemoveSession(s.SEID, ended); err != nil {
		ended(nil, err)
	}
}

// last are the reports of a session that has forwarded its last packet.
func (u *UPF) last(e *entry, s *session.Session, rules []dataplane.RuleUsage) []session.UsageReport {
	if len(s.URRs) == 0 {
		return nil
	}
	now := u.now()
	e.usage.collect(s, rules, now)
	// With those that nobody has taken: the SMF knows them by their number.
	return append(e.usage.pending, e.usage.last(s, now)...)
}

// Drop implements pfcp.UPF.
func (u *UPF) Drop(seid uint64) error {
	e := u.entry(seid)
	if e == nil || !e.close() {
		return fmt.Errorf("there is no session %#x", seid)
	}
	if err := u.dp.DropSession(seid); err != nil {
		e.reopen()
		return err
	}
	u.removed(e, e.session())
	return nil
}

// close ends the use of a session; false: somebody did.
func (e *entry) close() bool {
	e.lock()
	defer e.mu.Unlock() // with its usage: it is still to be reported
	was := e.gone
	e.gone = true
	return !was
}

// reopen is for one that could not be removed.
func (e *entry) reopen() {
	e.lock()
	e.gone = false
	e.unlock()
}

// removed forgets a session that is no longer in the data path.
func (u *UPF) removed(e *entry, s *session.Session) {
	if err := u.journal.append(record{kind: recordDelete, seid: e.seid}); err != nil {
		u.stats.JournalFailed.Add(1)
		u.log.Error("a session that was deleted would be there again after a restart", "seid", e.seid, "error", err)
	}
	u.flush(e, &session.Session{}, true)
	u.wheel.set(e, time.Time{})
	u.hosts.want(e.seid, false)
	for _, t := range tunnelsOf(s) {
		u.paths.leave(e.seid, t)
	}
	u.leave(e)
	e.free()
	u.sessions.Add(-1)
}

// check looks at a session whose time has come, or of which the data path told
// something.
func (u *UPF) check(e *entry) {
	if e == nil {
		return
	}
	u.changing.RLock()
	e.lock()
	report := session.Report{SEID: e.seid}
	if !e.gone {
		s := e.session()
		report = u.examine(e, s, u.now())
		u.schedule(e, s)
	}
	e.unlock()
	u.changing.RUnlock()
	u.report(e, report)
}

func (u *UPF) examine(e *entry, s *session.Session, now time.Time) session.Report {
	report := u.downlinkData(e, now)
	if e.usage == nil {
		return report
	}
	if err := u.collect(e, s, now); err != nil {
		u.log.Error("cannot read the usage of a session", "seid", e.seid, "error", err)
		return report
	}
	if len(e.usage.pending) > 0 {
		if !e.usage.retry.IsZero() && !now.Before(e.usage.retry) {
			report.Usage, e.usage.retry = e.usage.pending, time.Time{}
		}
		return u.rearm(e, s, report, false)
	}
	var blocks bool
	report.Usage, blocks = e.usage.reports(s, now)
	if s.InactivityTimer > 0 && !e.usage.inactive && !now.Before(e.usage.seen.Add(s.InactivityTimer)) {
		e.usage.inactive, report.Inactive = true, true
	}
	e.usage.pending = report.Usage
	if len(report.Usage) > 0 || report.Inactive {
		if err := u.journal.append(usageRecord(e.seid, e.usage)); err != nil {
			u.stats.JournalFailed.Add(1)
			u.log.Error("a usage report is not kept over a restart", "seid", e.seid, "error", err)
		}
	}
	return u.rearm(e, s, report, blocks)
}

// rearm has the data path tell and stop where the usage says so now.
func (u *UPF) rearm(e *entry, s *session.Session, report session.Report, blocks bool) session.Report {
	fail := func(err error) {
		if err != nil {
			u.log.Error("cannot set the limits of a session's rules", "seid", e.seid, "error", err)
		}
	}
	if blocks {
		fail(u.put(e, s, e.usage))
		return report
	}
	before := slices.Clone(e.usage.bases)
	e.usage.arm(s)
	for i, b := range e.usage.bases {
		if b.limits() != before[i].limits() {
			fail(u.dp.SetRuleLimits(e.seid, b.rule, b.limits()))
		}
	}
	return report
}

// schedule sets the timer of a session that is not gone.
func (u *UPF) schedule(e *entry, s *session.Session) {
	if e.ethernet {
		u.hosts.want(e.seid, reportsHosts(s))
	}
	var next time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if e.buffer != nil {
		at(e.buffer.due)
	}
	if e.usage != nil {
		at(e.usage.retry)
		at(e.usage.due(s, u.now()))
	}
	u.wheel.set(e, next)
}

// How long a report waits that could not be sent, or has no answer.
const (
	retryBusy     = time.Second
	retryNoAnswer = 30 * time.Second
)

// report sends what there is to tell, without e.mu.
func (u *UPF) report(e *entry, r session.Report) {
	if len(r.Usage)+len(r.DownlinkData)+len(r.ErrorIndications) == 0 && !r.Inactive {
		return
	}
	u.stats.UsageReports.Add(uint64(len(r.Usage)))
	u.stats.DownlinkDataReports.Add(uint64(min(1, len(r.DownlinkData))))
	u.stats.ErrorReports.Add(uint64(len(r.ErrorIndications)))
	if r.Inactive {
		u.stats.InactivityReports.Add(1)
	}
	reporter := u.reporter.Load()
	if reporter == nil {
		u.reported(e, r, pfcp.ErrNoAnswer)
		return
	}
	(*reporter).Report(r, func(err error) { u.reported(e, r, err) })
}

// reported goes on when the SMF has taken a report, or has not.
func (u *UPF) reported(e *entry, r session.Report, err error) {
	if err != nil {
		u.stats.ReportsFailed.Add(1)
	}
	e.lock()
	defer e.unlock()
	if e.gone {
		return
	}
	final := err == nil || errors.Is(err, pfcp.ErrRefused) || errors.Is(err, pfcp.ErrNoSession)
	if len(r.Usage) > 0 && e.usage != nil {
		u.taken(e, final, err)
	}
	if b := e.buffer; b != nil && len(r.DownlinkData) > 0 && !final {
		b.report, b.due = r.DownlinkData, u.now().Add(retryBusy)
	}
	if r.Inactive && !final && e.usage != nil {
		e.usage.inactive = false
		e.usage.seen = u.now()
	}
	u.schedule(e, e.session())
}

func (u *UPF) taken(e *entry, final bool, err error) {
	if !final {
		e.usage.retry = u.now().Add(retryNoAnswer)
		if errors.Is(err, pfcp.ErrBusy) {
			e.usage.retry = u.now().Add(retryBusy)
		}
		return
	}
	e.usage.pending, e.usage.retry = nil, time.Time{}
	if err := u.journal.append(record{kind: recordTaken, seid: e.seid}); err != nil {
		u.stats.JournalFailed.Add(1)
	}
	if e.usage.waiting {
		e.usage.retry = u.now() // look again at once
	}
}

// Restore puts the sessions of an earlier process into the data path, which
// may hold them: what did not change goes on. What does not fit any more is
// lost. It comes before the data path is swept.
func (u *UPF) Restore() {
	u.restored = true
	for _, e := range u.entries() {
		if err := u.restore(e); err != nil {
			u.log.Error("a session of an earlier run cannot be put again", "seid", e.seid, "error", err)
			u.lost = true
			u.leave(e)
			e.free()
			u.sessions.Add(-1)
			if err := u.journal.append(record{kind: recordDelete, seid: e.seid}); err != nil {
				u.stats.JournalFailed.Add(1)
			}
		}
	}
}

func (u *UPF) restore(e *entry) error {
	u.changing.RLock()
	defer u.changing.RUnlock()
	e.lock()
	defer e.unlock()
	s := e.session()
	if e.usage == nil {
		e.usage = newUsage(s, u.now())
	}
	undo, err := u.claim(s)
	if err != nil {
		return err
	}
	if err := u.put(e, s, e.usage); err != nil {
		undo()
		return err
	}
	for _, t := range tunnelsOf(s) {
		u.paths.use(s.SEID, t)
	}
	if e.usage != nil {
		if err := u.collect(e, s, u.now()); err != nil {
			return err
		}
		u.rearm(e, s, session.Report{}, false)
		if len(e.usage.pending) > 0 {
			e.usage.retry = u.now() // the answer may have come to the earlier process, or to nobody
		}
	}
	u.schedule(e, s)
	return nil
}

// claim takes a session's TEIDs and UE addresses.
func (u *UPF) claim(s *session.Session) (undo func(), err error) {
	var teids []uint32
	var ues []netip.Prefix
	undo = func() {
		for _, t := range teids {
			u.FreeTEID(t)
		}
		u.FreeUE(ues)
	}
	for i := range s.PDRs {
		p := &s.PDRs[i].PDI
		if p.TEID != 0 && !slices.Contains(teids, p.TEID) {
			if err := u.TakeTEID(p.TEID); err != nil {
				undo()
				return nil, err
			}
			teids = append(teids, p.TEID)
		}
		for _, ue := range p.UE {
			if slices.Contains(ues, ue) {
				continue
			}
			if err := u.TakeUE([]netip.Prefix{ue}); err != nil {
				undo()
				return nil, err
			}
			ues = append(ues, ue)
		}
	}
	return undo, nil
}
