package pfcp

import (
	"maps"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// readPFDs applies a PFD Management Request to apps and returns the applications
// that it changes. An application without PFDs loses those that it had; a
// request without applications means all of them (TS 29.244 section 7.4.3.1).
func readPFDs(d *wire.Decoder, l wire.IEs, apps map[string][]session.Filter) (changed []string) {
	for i := range d.Each(l) {
		if i.Type() != ie.ApplicationIDsPFDs {
			continue
		}
		id, filters := readApplication(i)
		if d.Err != nil {
			return changed
		}
		if len(filters) == 0 {
			delete(apps, id)
		} else {
			apps[id] = filters
		}
		changed = append(changed, id)
	}
	if len(changed) == 0 && d.Err == nil {
		for id := range apps {
			changed = append(changed, id)
		}
		clear(apps)
	}
	return changed
}

// readApplication reads one application's ID and PFDs.
func readApplication(app wire.IE) (id string, filters []session.Filter) {
	for i := range app.Each() {
		switch i.Type() {
		case ie.ApplicationID:
			id = string(i.Value())
		case ie.PFDContext:
			for i := range i.Each() {
				if i.Type() == ie.PFDContents {
					filters = append(filters, i.PFDContents()...)
				}
			}
		}
	}
	if id == "" {
		app.Fail(wire.Missing(ie.ApplicationID))
	}
	return id, filters
}

// reapply gives the sessions of a the new filters of changed applications.
func (w *worker) reapply(a *association, changed []string) {
	for seid := range w.apps {
		if w.owner(seid) != a {
			continue
		}
		from := w.s.upf.Session(seid)
		if from == nil {
			continue
		}
		to := *from
		to.PDRs = slices.Clone(from.PDRs)
		touched := false
		for i := range to.PDRs {
			pdi := &to.PDRs[i].PDI
			if !slices.Contains(changed, pdi.ApplicationID) {
				continue
			}
			filters, ok := a.filters(pdi.ApplicationID)
			if !ok {
				filters = []session.Filter{session.MatchNothing()}
			}
			pdi.Filters = filters
			touched = true
		}
		if !touched {
			continue
		}
		if _, err := w.s.upf.Modify(from, &to, session.Modification{}); err != nil {
			w.s.warn(&w.s.complain.app, logevent.PFCPPFDFailed, "session keeps the old PFDs of its application", "seid", seid, "error", err)
		}
	}
}

// pfdManagement answers a PFD Management Request: it applies all of it or nothing.
func (n *node) pfdManagement(r *nodeRequest, body wire.IEs) {
	ps := n.s.peers.Load()
	from := r.p.from.Addr()
	a := ps.find(from, body)
	if all := ps.at(from); a == nil && len(all) == 1 {
		a = all[0] // requests before release 16 have no Node ID
	}
	if a == nil {
		n.s.counters.unauthorised.Add(1)
		r.refuse(&wire.Refusal{Cause: ie.CauseNoEstablishedPFCPAssociation})
		return
	}
	var d wire.Decoder
	apps := maps.Clone(*a.apps.Load())
	changed := readPFDs(&d, body, apps)
	if d.Err != nil {
		r.refuse(d.Err)
		return
	}
	r.later()
	a.apps.Store(&apps)
	n.unsaved = true
	n.everywhere(func(w *worker, done func()) {
		w.reapply(a, changed)
		done()
	}, func() { r.reply(ie.CauseRequestAccepted, accepted, wire.NewNodeID(n.s.cfg.NodeID)) })
}
