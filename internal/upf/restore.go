package upf

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

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

// restoring is how far Restore is with the sessions of an earlier process.
type restoring struct {
	reserved bool // Reserve was called
	// sessions is how many there were, left how many are not in the data path yet.
	sessions, left atomic.Int64
	done           chan struct{} // closed when none is left
}

// Reserve takes the TEIDs and UE addresses of the sessions of an earlier process, so that no
// other gets them, and gives up sessions whose own others have. From then on whoever asks for
// a session has it restored first.
func (u *UPF) Reserve() {
	u.restoring.reserved = true
	u.install.share.recoverWays()
	u.eachShare(runtime.GOMAXPROCS(0), func(e *store.Entry) {
		s, err := e.Read()
		if err == nil {
			_, err = u.takeResources(s)
		}
		if err != nil {
			u.giveUp(e, err)
		}
	})
	n := int64(u.store.Len())
	u.restoring.sessions.Store(n)
	u.restoring.left.Store(n)
	u.store.OnDemand(u.restore)
}

// Restore puts the sessions of an earlier process into the data path, which may
// hold them: what has not changed goes on. It gives up sessions that no longer fit.
// The data path is swept after it. A core is left to SMFs, where there are several.
func (u *UPF) Restore() {
	if !u.restoring.reserved {
		u.Reserve()
	}
	u.eachShare(max(1, runtime.GOMAXPROCS(0)-1), u.restore)
	if !u.restored { // else there was nothing to restore
		u.restored = true
		close(u.restoring.done)
	}
}

// eachShare calls f for all sessions that exist now, in so many goroutines.
func (u *UPF) eachShare(goroutines int, f func(*store.Entry)) {
	all := u.store.All()
	var shares sync.WaitGroup
	for share := range slices.Chunk(all, len(all)/goroutines+1) {
		shares.Go(func() {
			for _, e := range share {
				f(e)
			}
		})
	}
	shares.Wait()
}

// restore restores a session, unless it is.
func (u *UPF) restore(e *store.Entry) {
	s, err := u.restoreSession(e)
	if s != nil {
		u.restoring.left.Add(-1)
	}
	if err != nil {
		for _, teid := range s.TEIDs() {
			u.FreeTEID(teid)
		}
		u.FreeUE(s.UEs())
		u.giveUp(e, err)
	}
}

// giveUp gives up a session of an earlier process.
func (u *UPF) giveUp(e *store.Entry, err error) {
	u.o.Logger.Error("cannot restore a session of an earlier run", "event", logevent.SessionNotRestored, "seid", e.SEID, "error", err)
	u.links.Leave(e.SEID)
	u.install.share.forget(e.SEID)
	u.store.Abandon(e)
}

// restoreSession returns what is restored, or was to be: nil, if somebody else did it.
func (u *UPF) restoreSession(e *store.Entry) (*session.Session, error) {
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	s, err := e.Recover()
	if s == nil {
		return nil, nil
	}
	defer u.install.unlock(e)
	if err == nil {
		s, err = u.restoreLocked(e, s)
	}
	e.Recovered(err == nil)
	return s, err
}

// restoreLocked has the data path and everybody else go on with a session.
func (u *UPF) restoreLocked(e *store.Entry, s *session.Session) (*session.Session, error) {
	now := u.o.Now()
	if e.Usage == nil {
		e.Usage = usage.New(s, now)
	}
	s = u.install.share.recover(e, s)
	if err := u.install.putBack(e, s); err != nil {
		return s, err
	}
	u.kept.update(e, nil, s, false)
	u.install.share.check(e)
	u.paths.Move(s.SEID, nil, s)
	u.behind.put(s.SEID, s)
	if e.Usage != nil {
		if err := u.install.collect(e, s, now); err != nil {
			return s, err
		}
		u.reports.relimit(e, s)
		e.Usage.Resume(now)
	}
	u.reports.schedule(e, s)
	return s, nil
}

// Restored says how many of the sessions of an earlier process are in the data path.
func Restored(u *UPF) (restored, of int) {
	of = int(u.restoring.sessions.Load())
	return of - int(u.restoring.left.Load()), of
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
