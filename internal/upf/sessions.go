package upf

import (
	"errors"
	"fmt"
	"iter"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/store"
	"github.com/culvert-net/culvert/internal/upf/usage"
)

func noSession(seid uint64) error { return fmt.Errorf("session %#x does not exist", seid) }

// Establish implements pfcp.UPF.
func (u *UPF) Establish(s *session.Session) error {
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	if err := u.install.config.Load().claims.check(nil, s); err != nil {
		return err
	}
	e, err := u.store.Insert(s, usage.New(s, u.o.Now()))
	if err != nil {
		return err
	}
	p, err := u.install.compile(s, e.Usage)
	if err == nil {
		err = known(u.o.DataPath.PutSession(p.rules))
	}
	if err == nil {
		if err = u.store.Save(e, s, e.Usage); err != nil {
			err = errors.Join(err, u.o.DataPath.DropSession(s.SEID))
		}
	}
	if err != nil {
		u.store.Discard(e)
		return err
	}
	u.install.share.join(s)
	defer u.install.unlock(e)
	u.store.Assign(e, p.slice)
	u.links.Join(p.rules)
	u.paths.Move(s.SEID, nil, s)
	u.behind.put(s.SEID, s)
	u.reports.schedule(e, s)
	return nil
}

// Modify implements pfcp.UPF.
func (u *UPF) Modify(from, to *session.Session, how session.Modification) ([]session.UsageReport, error) {
	e := u.store.Entry(to.SEID)
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	if e == nil || !u.install.lock(e) {
		return nil, noSession(to.SEID)
	}
	defer u.install.unlock(e)
	if err := u.install.config.Load().claims.check(from, to); err != nil {
		return nil, err
	}
	if err := u.store.Write(e); err != nil { // a crash amid this must not lose what the data path did
		return nil, err
	}
	p, err := u.install.replace(e, from, to, how, u.o.Now())
	if err != nil {
		return nil, err
	}
	if err := u.store.Save(e, to, p.usage); err != nil {
		return nil, errors.Join(err, u.install.put(e, from))
	}
	u.store.Assign(e, p.slice)
	u.links.Join(p.rules)
	u.paths.Move(to.SEID, from, to)
	u.behind.put(to.SEID, to)
	u.paths.EndMarkers(from, to, how.EndMarkers)
	u.kept.update(e, from, to, how.DropBuffered)
	u.reports.schedule(e, to)
	return p.reports, nil
}

// Delete implements pfcp.UPF.
func (u *UPF) Delete(s *session.Session, done func([]session.UsageReport, error)) {
	e := u.store.Entry(s.SEID)
	if e == nil || !e.End() {
		done(nil, noSession(s.SEID))
		return
	}
	u.install.share.end(e)
	if err := u.store.Removable(); err != nil {
		e.Revive()
		done(nil, err)
		return
	}
	// From here on nobody else looks at e.
	removed := func(counts []datapath.RuleUsage, err error) {
		if err != nil {
			e.Revive()
			done(nil, err)
			return
		}
		if err := u.store.SaveRemoval(e); err != nil {
			back := u.putBack(e, s, counts)
			if back == nil {
				done(nil, err)
				return
			}
			u.store.Owe(e.SEID, errors.Join(err, back))
		}
		var reports []session.UsageReport
		if len(s.URRs) > 0 {
			reports = e.Usage.Last(s, counts, u.o.Now())
		}
		u.forget(e, s)
		done(reports, nil)
	}
	if len(s.URRs) == 0 {
		removed(nil, u.o.DataPath.DropSession(s.SEID))
	} else if err := u.o.DataPath.RemoveSession(s.SEID, removed); err != nil {
		removed(nil, err)
	}
}

// putBack undoes the removal of a session from the data path.
func (u *UPF) putBack(e *store.Entry, s *session.Session, counts []datapath.RuleUsage) error {
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	now := u.o.Now()
	if e.Usage != nil {
		e.Usage.Collect(s, counts, now)
	}
	if err := u.install.put(e, s); err != nil {
		return err
	}
	if e.Usage != nil { // the data path counts from 0 again
		if err := u.install.collect(e, s, now); err != nil {
			return err
		}
		u.reports.relimit(e, s)
	}
	e.Revive()
	if u.install.lock(e) {
		u.reports.schedule(e, s)
		u.install.unlock(e)
	}
	return nil
}

// Drop implements pfcp.UPF.
func (u *UPF) Drop(seid uint64) error {
	e := u.store.Entry(seid)
	if e == nil || !e.End() {
		return noSession(seid)
	}
	u.install.share.end(e)
	if err := u.o.DataPath.DropSession(seid); err != nil {
		e.Revive()
		return err
	}
	if err := u.store.SaveRemoval(e); err != nil { // nobody waits for an answer
		u.store.Owe(seid, err)
	}
	u.forget(e, e.Session())
	return nil
}

// forget forgets a session that is no longer in the data path.
func (u *UPF) forget(e *store.Entry, s *session.Session) {
	u.kept.update(e, s, &session.Session{}, true)
	u.reports.wheel.Set(e, time.Time{})
	u.hosts.Watch(e.SEID, false)
	u.paths.Move(e.SEID, s, nil)
	u.behind.put(e.SEID, nil)
	u.links.Leave(e.SEID)
	u.install.share.forget(e.SEID)
	u.store.Forget(e)
}

// Session implements pfcp.UPF.
func (u *UPF) Session(seid uint64) *session.Session {
	if e := u.store.Entry(seid); e != nil {
		s, _ := e.Current()
		return s
	}
	return nil
}

// Sessions implements pfcp.UPF. The N4 server asks after Reserve, before any session changes,
// and gets what that has read.
func (u *UPF) Sessions() iter.Seq[pfcp.Identity] {
	return func(yield func(pfcp.Identity) bool) {
		if known := u.restoring.known.Swap(nil); known != nil {
			for _, part := range *known {
				for _, i := range part {
					if !yield(i) {
						return
					}
				}
			}
			return
		}
		for _, e := range u.store.All() {
			if i, exists := e.Identity(); exists && !yield(i) {
				return
			}
		}
	}
}
