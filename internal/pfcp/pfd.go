package pfcp

import (
	"encoding/binary"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// pfds reads a PFD Management Request onto apps, and returns the applications
// that it changes. An application without PFDs loses those that it had; a
// request without applications is for all of them (TS 29.244 section 7.4.3.1).
func (d *decoder) pfds(l ies, apps map[string][]session.Filter) (changed []string) {
	d.each(l, func(t uint16, v []byte) {
		if t != ie.ApplicationIDsPFDs {
			return
		}
		id, filters := d.application(v)
		if d.err != nil {
			return
		}
		if len(filters) == 0 {
			delete(apps, id)
		} else {
			apps[id] = filters
		}
		changed = append(changed, id)
	})
	if len(changed) == 0 && d.err == nil {
		for id := range apps {
			changed = append(changed, id)
		}
		clear(apps)
	}
	return changed
}

func (d *decoder) application(l ies) (id string, filters []session.Filter) {
	d.each(l, func(t uint16, v []byte) {
		switch t {
		case ie.ApplicationID:
			id = string(v)
		case ie.PFDContext:
			d.each(v, func(t uint16, v []byte) {
				if t == ie.PFDContents {
					filters = append(filters, d.pfdContents(v)...)
				}
			})
		}
	})
	if id == "" {
		d.fail(missing(ie.ApplicationID))
	}
	return id, filters
}

// Flags of PFD Contents (TS 29.244 section 8.2.39).
const (
	pfdFlow      = 1 << 0 // FD
	pfdMoreFlows = 1 << 5 // AFD
)

// pfdContents are flow descriptions. URLs and domain names are refused: the data
// path cannot see them.
func (d *decoder) pfdContents(v []byte) (filters []session.Filter) {
	const t = ie.PFDContents
	if !d.need(t, v, 2) {
		return nil
	}
	flags, rest := v[0], v[2:]
	if flags&^(pfdFlow|pfdMoreFlows) != 0 || flags == 0 {
		d.fail(unsupported(t))
		return nil
	}
	text := func(from *[]byte) []byte {
		if !d.need(t, *from, 2) {
			return nil
		}
		n := 2 + int(binary.BigEndian.Uint16(*from))
		if !d.need(t, *from, n) {
			return nil
		}
		out := (*from)[2:n]
		*from = (*from)[n:]
		return out
	}
	add := func(flow []byte) {
		if d.err != nil {
			return
		}
		f, err := session.ParseFilter(string(flow))
		if err != nil {
			d.fail(&reject{cause: ie.CauseMandatoryIEIncorrect, offending: t, err: err})
			return
		}
		filters = append(filters, f)
	}
	if flags&pfdFlow != 0 {
		add(text(&rest))
	}
	if flags&pfdMoreFlows != 0 {
		for more := text(&rest); len(more) > 0 && d.err == nil; {
			add(text(&more))
		}
	}
	return filters
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
