package pfcp

import (
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/session"
)

// drop removes a session of this worker without reporting its usage; s is what the user
// plane has of it, maybe nothing. After an error the session stays as it is.
func (w *worker) drop(seid uint64, s *session.Session) error {
	of := w.owner(seid)
	if s != nil {
		if err := w.s.upf.Drop(seid); err != nil {
			return err
		}
		resourcesOf(s).free(w.s.upf)
		of.unnamed.remove(s)
	}
	of.sessions.Add(-1)
	w.disown(seid)
	return nil
}

// purge removes the sessions of an association, or hands them to its successor.
type purge struct {
	seids []uint64
	old   *association // which has ended
	new   *association // of the sessions that stay; nil: none does
	done  func()
	// failed are sessions that the user plane has not removed, for the reason err.
	failed []uint64
	err    error
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
		if s != nil && p.new != nil && !p.old.ends(s) {
			w.sessions.Put(w.place(seid), p.new)
			p.old.sessions.Add(-1)
			p.new.sessions.Add(1)
			if p.old.unnamed.remove(s) {
				p.new.unnamed.put(s)
			}
			continue
		}
		if err := w.drop(seid, s); err != nil {
			p.failed, p.err = append(p.failed, seid), err
			continue
		}
		p.old.purged.Add(1)
	}
	if p.seids = p.seids[n:]; len(p.seids) > 0 {
		return
	}
	w.purges = slices.Delete(w.purges, 0, 1)
	p.done()
	if len(p.failed) > 0 {
		// No peer can ask for them again: they are ours to remove.
		w.s.log.Error("sessions of a lost association not deleted: trying again", "event", logevent.PFCPSessionsNotRemoved, "sessions", len(p.failed), "error", p.err)
		again := &purge{seids: p.failed, old: p.old, new: p.new, done: func() {}}
		time.AfterFunc(w.s.cfg.RetryAfter, func() {
			w.tasks <- func() { w.purges = append(w.purges, again) }
		})
	}
}
