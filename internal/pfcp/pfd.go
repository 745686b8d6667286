package pfcp

import (
	"encoding/binary"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// pfds reads a PFD Management Request onto apps, and returns the applications
// that it changes. An application without PFDs loses those that it had; a
// request without applications is for all of them (TS 29.244 section 7.4.3.1).
func readPFDs(d *wire.Decoder, l wire.IEs, apps map[string][]session.Filter) (changed []string) {
	d.Each(l, func(t uint16, v []byte) {
		if t != ie.ApplicationIDsPFDs {
			return
		}
		id, filters := readApplication(d, v)
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

func readApplication(d *wire.Decoder, l wire.IEs) (id string, filters []session.Filter) {
	d.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.ApplicationID:
			id = string(v)
		case ie.PFDContext:
			d.Each(v, func(t uint16, v []byte) {
				if t == ie.PFDContents {
					filters = append(filters, readPFDContents(d, v)...)
				}
			})
		}
	})
	if id == "" {
		d.Fail(wire.Missing(ie.ApplicationID))
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
func readPFDContents(d *wire.Decoder, v []byte) (filters []session.Filter) {
	const t = ie.PFDContents
	if !d.Need(t, v, 2) {
		return nil
	}
	flags, rest := v[0], v[2:]
	if flags&^(pfdFlow|pfdMoreFlows) != 0 || flags == 0 {
		d.Fail(wire.Unsupported(t))
		return nil
	}
	text := func(from *[]byte) []byte {
		if !d.Need(t, *from, 2) {
			return nil
		}
		n := 2 + int(binary.BigEndian.Uint16(*from))
		if !d.Need(t, *from, n) {
			return nil
		}
		out := (*from)[2:n]
		*from = (*from)[n:]
		return out
	}
	add := func(flow []byte) {
		if d.Err != nil {
			return
		}
		f, err := session.ParseFilter(string(flow))
		if err != nil {
			d.Fail(&wire.Refusal{Cause: ie.CauseMandatoryIEIncorrect, Offending: t, Err: err})
			return
		}
		filters = append(filters, f)
	}
	if flags&pfdFlow != 0 {
		add(text(&rest))
	}
	if flags&pfdMoreFlows != 0 {
		for more := text(&rest); len(more) > 0 && d.Err == nil; {
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
