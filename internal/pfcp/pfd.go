package pfcp

import (
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// pfds reads a PFD Management Request onto apps, and returns the applications
// that it changes. An application without PFDs loses those that it had; a
// request without applications is for all of them (TS 29.244 section 7.4.3.1).
func readPFDs(d *wire.Decoder, l wire.IEs, apps map[string][]session.Filter) (changed []string) {
	d.Each(l, func(i wire.IE) {
		if i.Type != ie.ApplicationIDsPFDs {
			return
		}
		id, filters := readApplication(i)
		if d.Err != nil {
			return
		}
		if len(filters) == 0 {
			delete(apps, id)
		} else {
			apps[id] = filters
		}
		changed = append(changed, id)
	})
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
	app.Each(func(i wire.IE) {
		switch i.Type {
		case ie.ApplicationID:
			id = string(i.Value)
		case ie.PFDContext:
			i.Each(func(i wire.IE) {
				if i.Type == ie.PFDContents {
					filters = append(filters, i.PFDContents()...)
				}
			})
		}
	})
	if id == "" {
		app.Fail(wire.Missing(ie.ApplicationID))
	}
	return id, filters
}

// reapply gives the sessions of a their applications' filters again.
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
		if _, err := w.s.upf.Modify(from, &to, Modification{}); err != nil {
			w.s.warn(&w.s.complain.app, "session keeps its application's old PFDs", "seid", seid, "error", err)
		}
	}
}
