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
	done           chan struct{} // closed when none is left, by end
	end            func()
}

// Reserve takes the TEIDs and UE addresses of the sessions of an earlier process, so that no
// other gets them, and gives up sessions whose own others have. From then on whoever asks for
// a session has it restored first.
func (u *UPF) Reserve() {
	u.restoring.reserved = true
	u.install.share.recoverWays()
	u.eachShare(runtime.GOMAXPROCS(0), func(e *store.Entry) {
		if err := e.Read(u.takeResources); err != nil {
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
	u.restored = true
	u.restoring.end()
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
	if err := u.restoreSession(e); err != nil {
		_ = e.Read(u.freeResources) // Reserve has read it
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

func (u *UPF) restoreSession(e *store.Entry) error {
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	s, locked, err := e.Recover()
	if !locked {
		return nil
	}
	if err == nil {
		err = u.resume(e, s)
	}
	u.restoring.left.Add(-1)
	if e.Recovered(err == nil); err != nil {
		e.Unlock() // giveUp takes it from the data path
		return err
	}
	u.install.unlock(e)
	return nil
}

// resume has the data path and everybody else go on with a session, which is locked.
func (u *UPF) resume(e *store.Entry, s *session.Session) error {
	now := u.o.Now()
	if e.Usage == nil {
		e.Usage = usage.New(s, now)
	}
	s = u.install.share.recover(e, s)
	if err := u.install.putBack(e, s); err != nil {
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

// Restored says how many of the sessions of an earlier process are in the data path.
func Restored(u *UPF) (restored, of int) {
	of = int(u.restoring.sessions.Load())
	return of - int(u.restoring.left.Load()), of
}

// takeResources takes a session's TEIDs and UE addresses, all or none.
func (u *UPF) takeResources(s *session.Session) error {
	ues, teids := s.UEs(), s.TEIDs()
	if err := u.TakeUE(ues); err != nil {
		return err
	}
	for i, teid := range teids {
		if err := u.TakeTEID(teid); err != nil {
			u.FreeUE(ues)
			for _, taken := range teids[:i] {
				u.FreeTEID(taken)
			}
			return err
		}
	}
	return nil
}

// freeResources undoes takeResources.
func (u *UPF) freeResources(s *session.Session) error {
	for _, teid := range s.TEIDs() {
		u.FreeTEID(teid)
	}
	u.FreeUE(s.UEs())
	return nil
}
