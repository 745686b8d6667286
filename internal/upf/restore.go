package upf

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/codec"
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

// restorer restores the sessions of an earlier process.
type restorer struct {
	u        *UPF
	reserved bool // Reserve was called
	// sessions is how many there were, left how many are not in the data path yet.
	sessions, left atomic.Int64
	done           chan struct{} // closed when none is left, by end
	end            func()
	// known are the sessions that Reserve has read, in parts: for the N4 server, which asks
	// for them before it handles requests.
	known atomic.Pointer[[][]pfcp.Identity]
}

// Reserve takes the TEIDs and UE addresses of the sessions of an earlier process, so that no
// other gets them, and gives up sessions whose own others have. From then on a session that
// somebody asks for is restored first.
func (u *UPF) Reserve() {
	u.restoring.reserved = true
	u.install.share.recoverWays()
	var mu sync.Mutex
	var all [][]pfcp.Identity
	u.restoring.eachShare(runtime.GOMAXPROCS(0), func(share []*store.Entry) {
		known := make([]pfcp.Identity, 0, len(share))
		for _, e := range share {
			if i, err := e.Reserve(u.restoring.takeResources); err != nil {
				u.restoring.giveUp(e, err)
			} else {
				known = append(known, i)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, known)
	})
	u.restoring.known.Store(&all)
	n := int64(u.store.Len())
	u.restoring.sessions.Store(n)
	u.restoring.left.Store(n)
	u.store.OnDemand(u.restoring.restore)
}

// Restore puts the sessions of an earlier process into the data path, which may
// hold them: what has not changed goes on. It gives up sessions that no longer fit.
// The data path is swept after it. A core is left to SMFs, where there are several.
func (u *UPF) Restore() {
	if !u.restoring.reserved {
		u.Reserve()
	}
	u.restoring.known.Store(nil)
	u.restoring.eachShare(max(1, runtime.GOMAXPROCS(0)-1), func(share []*store.Entry) {
		for _, e := range share {
			u.restoring.restore(e)
		}
	})
	u.restored = true
	u.restoring.end()
}

// eachShare calls f for shares of all sessions that exist now, in so many goroutines.
func (r *restorer) eachShare(goroutines int, f func([]*store.Entry)) {
	u := r.u
	all := u.store.All()
	var shares sync.WaitGroup
	for share := range slices.Chunk(all, len(all)/goroutines+1) {
		shares.Go(func() { f(share) })
	}
	shares.Wait()
}

// restore restores a session, unless it is.
func (r *restorer) restore(e *store.Entry) {
	if err := r.restoreSession(e); err != nil {
		_, _ = e.Reserve(r.freeResources) // which Reserve has read
		r.giveUp(e, err)
	}
}

// giveUp gives up a session of an earlier process, and what the data path has of it.
func (r *restorer) giveUp(e *store.Entry, err error) {
	u := r.u
	u.o.Logger.Error("cannot restore a session of an earlier run", "event", logevent.SessionNotRestored, "seid", e.SEID, "error", err)
	if err := u.o.DataPath.DropSession(e.SEID); err != nil {
		u.o.Logger.Error("a session that is given up is still in the data path", "event", logevent.SessionNotRestored, "seid", e.SEID, "error", err)
	}
	u.links.Leave(e.SEID)
	u.install.share.forget(e.SEID)
	u.store.Abandon(e)
}

func (r *restorer) restoreSession(e *store.Entry) error {
	u := r.u
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	s, locked, err := e.Recover()
	if !locked {
		return nil
	}
	if err == nil {
		err = r.resume(e, s)
	}
	r.left.Add(-1)
	if e.Recovered(err == nil); err != nil {
		e.Unlock() // not for the data path to go on with
		return err
	}
	u.install.unlock(e)
	return nil
}

// resume has the data path and everybody else go on with a session, which is locked.
func (r *restorer) resume(e *store.Entry, s *session.Session) error {
	u := r.u
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
func (r *restorer) takeResources(h *codec.Head) error {
	u := r.u
	if err := u.TakeUE(h.UEs); err != nil {
		return err
	}
	for i, teid := range h.TEIDs {
		if err := u.TakeTEID(teid); err != nil {
			u.FreeUE(h.UEs)
			for _, taken := range h.TEIDs[:i] {
				u.FreeTEID(taken)
			}
			return err
		}
	}
	return nil
}

// freeResources undoes takeResources.
func (r *restorer) freeResources(h *codec.Head) error {
	u := r.u
	for _, teid := range h.TEIDs {
		u.FreeTEID(teid)
	}
	u.FreeUE(h.UEs)
	return nil
}
