package upf

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/lan"
	"github.com/culvert-net/culvert/internal/upf/stats"
	"github.com/culvert-net/culvert/internal/upf/store"
	"github.com/culvert-net/culvert/internal/upf/usage"
	"github.com/culvert-net/culvert/internal/upf/wheel"
)

// How long a report waits that could not be sent, or has no answer.
const (
	retryBusy     = time.Second
	retryNoAnswer = 30 * time.Second
)

// refusedPause is how long an SMF gets no other Downlink Data Report of a session after it has
// refused one.
const refusedPause = 5 * time.Second

// indicationPause is how long an SMF gets no other report of an Error Indication
// for a session.
const indicationPause = 5 * time.Second

// reporter looks at sessions when it is time, and reports to their SMFs.
type reporter struct {
	install *installer
	store   *store.Store
	hosts   *lan.Hosts
	wheel   wheel.Wheel[store.Entry, *store.Entry]
	to      atomic.Pointer[pfcp.Reporter]
	stats   *stats.Counters
	log     *slog.Logger
	now     func() time.Time

	unwritten atomic.Bool // the last usage report is not in the journal
}

// announce calls f with who sends to the SMFs, once there is one.
func (r *reporter) announce(f func(pfcp.Reporter)) {
	if to := r.to.Load(); to != nil {
		f(*to)
	}
}

// schedule sets the timer of a session, which is locked.
func (r *reporter) schedule(e *store.Entry, s *session.Session) {
	if e.Ethernet {
		r.hosts.Watch(e.SEID, usage.ReportsHosts(s))
	}
	var next time.Time
	if e.Buffer != nil {
		next = e.Buffer.Due()
	}
	if e.Usage != nil {
		if due := e.Usage.Due(s, r.now()); next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	r.wheel.Set(e, next)
}

// check looks at a session whose time has come, or about which the data path
// notified us. e may be nil.
func (r *reporter) check(e *store.Entry) {
	if e == nil {
		return
	}
	report := session.Report{SEID: e.SEID}
	r.install.changing.RLock()
	if r.install.lock(e) {
		s, now := e.Session(), r.now()
		report.DownlinkData = e.Buffer.Report(now)
		r.examine(e, s, now, &report)
		r.schedule(e, s)
		r.install.unlock(e)
	}
	r.install.changing.RUnlock()
	r.send(e, report)
}

// examine reports what is due of a session's usage, and sets its limits anew.
func (r *reporter) examine(e *store.Entry, s *session.Session, now time.Time, report *session.Report) {
	if e.Usage == nil {
		return
	}
	if err := r.install.collect(e, s, now); err != nil {
		r.log.Error("cannot read the usage of a session", "event", logevent.SessionUsageUnread, "seid", e.SEID, "error", err)
		return
	}
	found := e.Usage.Examine(s, now)
	report.Usage, report.Inactive = found.Reports, found.Inactive
	if found.Changed {
		err := r.store.SaveUsage(e)
		if err != nil {
			r.stats.JournalFailed.Add(1)
		}
		if failed := err != nil; r.unwritten.Swap(failed) != failed && failed { // the first of many
			r.log.Error("usage reports are not in the journal: a restart loses them", "event", logevent.SessionReportUnsaved, "seid", e.SEID, "error", err)
		}
	}
	if found.Blocked {
		r.limitsFailed(e, r.install.put(e, s))
		return
	}
	r.relimit(e, s)
}

// relimit has the data path notify and stop where the usage says so now.
func (r *reporter) relimit(e *store.Entry, s *session.Session) {
	e.Usage.Relimit(s, func(rule uint16, l datapath.RuleLimits) {
		r.limitsFailed(e, r.install.dp.SetRuleLimits(e.SEID, rule, l))
	}, func(q []datapath.Quota) { r.limitsFailed(e, r.install.dp.SetQuotas(e.SEID, q)) })
}

func (r *reporter) limitsFailed(e *store.Entry, err error) {
	if err != nil {
		r.log.Error("cannot set the limits of a session's rules", "event", logevent.SessionLimitFailed, "seid", e.SEID, "error", err)
	}
}

// send sends a report, unless it is empty. e is not locked.
func (r *reporter) send(e *store.Entry, report session.Report) {
	if len(report.Usage)+len(report.DownlinkData)+len(report.ErrorIndications) == 0 && !report.Inactive {
		return
	}
	r.stats.UsageReports.Add(uint64(len(report.Usage)))
	r.stats.DownlinkDataReports.Add(uint64(min(1, len(report.DownlinkData))))
	r.stats.ErrorReports.Add(uint64(len(report.ErrorIndications)))
	if report.Inactive {
		r.stats.InactivityReports.Add(1)
	}
	to := r.to.Load()
	if to == nil {
		r.answered(e, report, pfcp.ErrNoAnswer)
		return
	}
	(*to).Report(report, func(err error) { r.answered(e, report, err) })
}

// answered goes on when the SMF has taken a report (nil), or has not.
func (r *reporter) answered(e *store.Entry, report session.Report, err error) {
	if err != nil {
		r.stats.ReportsFailed.Add(1)
	}
	if !e.Lock() {
		return
	}
	defer e.Unlock()
	now := r.now()
	final := err == nil || errors.Is(err, pfcp.ErrRefused) || errors.Is(err, pfcp.ErrNoSession)
	if len(report.Usage) > 0 && e.Usage != nil {
		switch {
		case final:
			e.Usage.Taken(now)
			if r.store.SaveTaken(e) != nil {
				r.stats.JournalFailed.Add(1)
			}
		case errors.Is(err, pfcp.ErrBusy):
			e.Usage.Retry(now.Add(retryBusy))
		default:
			e.Usage.Retry(now.Add(retryNoAnswer))
		}
	}
	switch {
	case e.Buffer == nil || len(report.DownlinkData) == 0:
	case errors.Is(err, pfcp.ErrRefused):
		e.Buffer.Refused(now.Add(refusedPause))
	case !final:
		e.Buffer.Retry(report.DownlinkData, now.Add(retryBusy))
	}
	if report.Inactive && !final && e.Usage != nil {
		e.Usage.Active(now)
	}
	r.schedule(e, e.Session())
}

// errorIndicated reports to the SMFs of sessions that these send to an F-TEID which
// its peer does not know. A peer may send an Error Indication for each packet.
func (r *reporter) errorIndicated(sessions []uint64, to session.PeerTEID) {
	for _, seid := range sessions {
		if e := r.store.Entry(seid); e != nil && e.Indicate(r.now(), indicationPause) {
			r.send(e, session.Report{SEID: seid, ErrorIndications: []session.PeerTEID{to}})
		}
	}
}

// lookForHosts reports hosts behind Ethernet sessions that come and go.
func (r *reporter) lookForHosts() {
	err := r.hosts.Look(r.install.dp.Stations, func(seid uint64, hosts []dataplane.Station) {
		e := r.store.Entry(seid)
		if e == nil || !e.Lock() {
			return
		}
		news := e.Usage != nil && e.Usage.SetHosts(e.Session(), hosts)
		e.Unlock()
		if news {
			r.check(e)
		}
	})
	if err != nil {
		r.log.Error("cannot read the hosts behind Ethernet sessions", "event", logevent.SessionHostsUnread, "error", err)
	}
}
