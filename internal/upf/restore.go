package upf

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/store"
	"github.com/culvert-net/culvert/internal/upf/usage"
)

// NewTEID implements pfcp.UPF.
func (u *UPF) NewTEID() (uint32, error) {
	teid, err := u.o.DataPath.NewTEID()
	return teid, known(err)
}

// TakeTEID implements pfcp.UPF.
func (u *UPF) TakeTEID(teid uint32) error {
	return known(u.o.DataPath.TakeTEID(teid))
}

// FreeTEID implements pfcp.UPF.
func (u *UPF) FreeTEID(teid uint32) { u.o.DataPath.FreeTEID(teid) }

// NewUE implements pfcp.UPF.
func (u *UPF) NewUE(instance string, v4, v6 bool) ([]netip.Prefix, error) {
	return u.ues.Allocate(instance, v4, v6)
}

// TakeUE implements pfcp.UPF.
func (u *UPF) TakeUE(list []netip.Prefix) error { return u.ues.Take(list) }

// FreeUE implements pfcp.UPF.
func (u *UPF) FreeUE(list []netip.Prefix) { u.ues.Free(list) }

// Restore puts the sessions of an earlier process into the data path, which may
// hold them: what has not changed goes on. It gives up sessions that no longer fit.
// The data path is swept after it. Every core takes a share of the sessions.
func (u *UPF) Restore() {
	u.restored = true
	u.install.share.recoverWays()
	all, cores := u.store.All(), runtime.GOMAXPROCS(0)
	var shares sync.WaitGroup
	for share := range slices.Chunk(all, len(all)/cores+1) {
		shares.Go(func() {
			for _, e := range share {
				if err := u.restoreSession(e); err != nil {
					u.o.Logger.Error("cannot restore a session of an earlier run", "event", logevent.SessionNotRestored, "seid", e.SEID, "error", err)
					u.links.Leave(e.SEID)
					u.install.share.forget(e.SEID)
					u.store.Abandon(e)
				}
			}
		})
	}
	shares.Wait()
}

func (u *UPF) restoreSession(e *store.Entry) error {
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	s, err := e.Recover()
	if err != nil {
		return err
	}
	defer u.install.unlock(e)
	now := u.o.Now()
	if e.Usage == nil {
		e.Usage = usage.New(s, now)
	}
	s = u.install.share.recover(e, s)
	undo, err := u.takeResources(s)
	if err != nil {
		return err
	}
	if err := u.install.putBack(e, s); err != nil {
		undo()
		return err
	}
	u.kept.update(e, nil, s, false)
	u.install.share.check(e)
	u.paths.Move(s.SEID, nil, s)
	u.behind.put(s.SEID, s)
	if e.Usage != nil {
		if err := u.install.collect(e, s, now); err != nil {
			return err
		}
		u.reports.relimit(e, s)
		e.Usage.Resume(now)
	}
	u.reports.schedule(e, s)
	return nil
}

// takeResources takes a session's TEIDs and UE addresses, all or none.
func (u *UPF) takeResources(s *session.Session) (undo func(), err error) {
	ues := s.UEs()
	if err := u.TakeUE(ues); err != nil {
		return nil, err
	}
	var teids []uint32
	undo = func() {
		for _, t := range teids {
			u.FreeTEID(t)
		}
		u.FreeUE(ues)
	}
	for _, teid := range s.TEIDs() {
		if err := u.TakeTEID(teid); err != nil {
			undo()
			return nil, err
		}
		teids = append(teids, teid)
	}
	return undo, nil
}
