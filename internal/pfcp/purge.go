package pfcp

import (
	"slices"

	"github.com/culvert-net/culvert/internal/session"
)

// drop removes a session without reporting its usage.
func (w *worker) drop(seid uint64, s *session.Session) error {
	if err := w.s.upf.Drop(seid); err != nil {
		return err
	}
	resourcesOf(s).free(w.s.upf)
	of := w.owner(seid)
	of.sessions.Add(-1)
	of.unnamed.remove(s)
	w.disown(seid)
	return nil
}

// purge removes the sessions of an association, or hands them to its successor.
type purge struct {
	seids []uint64
	old   *association // which has ended
	new   *association // of the sessions that stay
	done  func()
}

// purgeStep is how many sessions are removed before requests get their turn.
const purgeStep = 16

// purgeSome does the next step of the first purge.
func (w *worker) purgeSome() {
	p := w.purges[0]
	n := min(purgeStep, len(p.seids))
	for _, seid := range p.seids[:n] {
		if w.owner(seid) != p.old {
			continue // deleted meanwhile
		}
		s := w.s.upf.Session(seid)
		if s != nil && !p.old.ends(s) {
			w.sessions.Put(w.place(seid), p.new)
			p.old.sessions.Add(-1)
			p.new.sessions.Add(1)
			if p.old.unnamed.remove(s) {
				p.new.unnamed.put(s)
			}
			continue
		}
		if err := w.drop(seid, s); err != nil {
			// No peer can ask for it again.
			w.s.log.Error("session of a lost association not deleted", "seid", seid, "error", err)
			p.old.sessions.Add(-1)
			w.disown(seid)
		}
	}
	if p.seids = p.seids[n:]; len(p.seids) == 0 {
		w.purges = slices.Delete(w.purges, 0, 1)
		p.done()
	}
}
