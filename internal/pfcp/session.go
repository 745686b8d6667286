package pfcp

import (
	"net"
	"net/netip"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// deletion is a session that the user plane removes.
type deletion struct {
	conn    *conn
	from    netip.AddrPort
	key     uint64 // of the request
	h       wire.Header
	of      *association
	session *session.Session
	reports []session.UsageReport
	err     error
	times   int // the request came
}

// establish answers a Session Establishment Request.
func (w *worker) establish(p *packet, h wire.Header, body wire.IEs) {
	to := &session.Session{}
	var cpSEID uint64
	// The builder looks applications up in the association.
	of := w.s.peers.Load().find(p.from.Addr(), body)
	b := w.builder(to, p.from.Addr(), of)
	w.read(p.from, func() {
		b.Establishment(body)
		cpSEID = to.CPSEID
		if of == nil || of.keeps.Load() != nil {
			b.Fail(&wire.Refusal{Cause: ie.CauseNoEstablishedPFCPAssociation})
		}
		b.References()
	})
	if b.Err != nil {
		if b.Err.Cause == ie.CauseNoEstablishedPFCPAssociation {
			w.s.counters.unauthorised.Add(1)
		}
		w.refuse(p, h, cpSEID, b.Err)
		return
	}
	if s, a := w.repeated(b, of); s != nil {
		w.s.counters.repeated.Add(1)
		w.established(h, s, a)
		return
	}
	to.SEID, to.Node = w.newSEID(), of.node
	a := allocate(b, w.s.upf, resources{})
	if b.Err == nil {
		if err := w.s.upf.Establish(to); err != nil {
			a.got.free(w.s.upf)
			b.Fail(refusalOf(err))
		}
	}
	if b.Err != nil {
		w.s.warn(&w.s.complain.refused, logevent.PFCPSessionRefused, "session not established", "smf", of.node, "why", b.Err)
		w.refuse(p, h, cpSEID, b.Err)
		return
	}
	w.own(to.SEID, to.NamesApplications(), of)
	of.sessions.Add(1)
	of.unnamed.put(to)
	w.established(h, to, a)
}

// established answers that there is a session, with what we chose for it.
func (w *worker) established(h wire.Header, s *session.Session, a *allocation) {
	list := append([]*ie.IE{
		wire.NewNodeID(w.s.cfg.NodeID),
		accepted,
		w.s.fseid(s.SEID),
	}, a.ies()...)
	w.answer(h, s.CPSEID, ie.CauseRequestAccepted, list...)
}

// fseid returns our F-SEID, with the first of our addresses of each family.
func (s *Server) fseid(seid uint64) *ie.IE {
	var v4, v6 net.IP
	for _, a := range s.cfg.Addresses {
		if a.Is4() && v4 == nil {
			v4 = a.AsSlice()
		} else if a.Is6() && v6 == nil {
			v6 = a.AsSlice()
		}
	}
	return ie.NewFSEID(seid, v4, v6)
}

// found is the session of a request, and its association. answered: the data path has
// done what the request asks for.
type found struct {
	of       *association
	session  *session.Session
	answered bool
}

// find returns the session that a request is about, and its association. A
// peer does not find the sessions of others. The data path is kept from the session.
func (w *worker) find(p *packet, h wire.Header) (f found, ok bool) {
	of := w.owner(h.SEID)
	if of == nil || !h.HasSEID {
		return f, false
	}
	if !of.has(p.from.Addr()) {
		w.s.counters.unauthorised.Add(1)
		w.s.warn(&w.s.complain.unauthorised, logevent.PFCPUnauthorised, "request for another peer's session", "from", p.from, "seid", h.SEID, "smf", of.node)
		return f, false
	}
	if w.endsWith(of, h.SEID) { // before the data path gets it back with another association
		return f, false
	}
	f.answered = w.s.signalling.Take(h.SEID, h.Sequence)
	f.of, f.session = of, w.s.upf.Session(h.SEID)
	if f.session == nil || of.ends(f.session) { // meanwhile
		return f, false
	}
	of.unnamed.remove(f.session)
	return f, true
}

// endsWith says whether a session ends with its association.
func (w *worker) endsWith(of *association, seid uint64) bool {
	if of.keeps.Load() == nil {
		return false
	}
	s := w.s.upf.Session(seid)
	return s == nil || of.ends(s)
}

// modify answers a Session Modification Request. accepts: with Cause 1 (Request accepted) alone.
func (w *worker) modify(p *packet, h wire.Header, body wire.IEs) (accepts bool) {
	f, ok := w.find(p, h)
	if !ok {
		w.refuse(p, h, 0, &wire.Refusal{Cause: ie.CauseSessionContextNotFound})
		return false
	}
	of, from := f.of, f.session
	if f.answered {
		w.s.counters.repeated.Add(1)
		w.answer(h, from.CPSEID, ie.CauseRequestAccepted, accepted)
		return true
	}
	to := *from
	b := w.builder(&to, p.from.Addr(), of)
	w.read(p.from, func() {
		b.Modification(body)
		b.References()
	})
	reports, created := w.change(from, b)
	if b.Err != nil {
		w.refuse(p, h, from.CPSEID, b.Err)
		return false
	}
	w.own(to.SEID, to.NamesApplications(), of)
	if b.OwnsPDRs() && len(created) == 0 {
		w.s.repeat(from, &to, body)
	}
	list := append([]*ie.IE{accepted}, created...)
	list = append(list, wire.NewUsageReports(ie.UsageReportWithinSessionModificationResponse, reports, b.QueryRef)...)
	w.answer(h, to.CPSEID, ie.CauseRequestAccepted, list...)
	return len(list) == 1
}

var accepted = ie.NewCause(ie.CauseRequestAccepted)

// change replaces a session by what b has built, or does nothing. It returns
// the usage that the change reports, and the IEs of what we chose.
func (w *worker) change(from *session.Session, b *request.Builder) (reports []session.UsageReport, created []*ie.IE) {
	if b.Err != nil {
		return nil, nil
	}
	var had, got resources
	if b.OwnsPDRs() { // else the resources stay the same
		had = resourcesOf(from)
		a := allocate(b, w.s.upf, had)
		if got = a.got; b.Err != nil {
			return nil, nil
		}
		created = a.ies()
	}
	reports, err := w.s.upf.Modify(from, b.To, b.How)
	if err != nil {
		got.free(w.s.upf)
		b.Fail(refusalOf(err))
		w.s.warn(&w.s.complain.refused, logevent.PFCPSessionRefused, "session not modified", "smf", from.Node, "why", b.Err)
		return nil, nil
	}
	if b.OwnsPDRs() {
		had.without(resourcesOf(b.To)).free(w.s.upf)
	}
	return reports, created
}

// delete starts a deletion. The session is gone for all other requests at once;
// the answer waits for its last usage.
func (w *worker) delete(p *packet, h wire.Header, key uint64) {
	f, ok := w.find(p, h)
	if !ok {
		w.refuse(p, h, 0, &wire.Refusal{Cause: ie.CauseSessionContextNotFound})
		return
	}
	d := &deletion{conn: p.conn, from: p.from, key: key, h: h, of: f.of, session: f.session, times: 1}
	w.disown(h.SEID)
	w.going[key] = d
	w.s.upf.Delete(f.session, func(reports []session.UsageReport, err error) {
		d.reports, d.err = reports, err
		w.goneMu.Lock()
		w.gone = append(w.gone, d)
		w.goneMu.Unlock()
		select {
		case w.some <- struct{}{}:
		default: // a signal waits already
		}
	})
}

// deleted answers the deletions that the user plane has finished.
func (w *worker) deleted() {
	w.goneMu.Lock()
	list := w.gone
	w.gone = nil
	w.goneMu.Unlock()
	for _, d := range list {
		if d.err != nil {
			w.own(d.session.SEID, d.session.NamesApplications(), d.of)
			if d.of.keeps.Load() != nil { // its purge has passed the session by
				w.purges = append(w.purges, &purge{seids: []uint64{d.h.SEID}, old: d.of, done: func() {}})
			}
			w.refuse(&packet{conn: d.conn, from: d.from}, d.h, d.session.CPSEID, refusalOf(d.err))
		} else {
			resourcesOf(d.session).free(w.s.upf)
			d.of.sessions.Add(-1)
			list := append([]*ie.IE{accepted},
				wire.NewUsageReports(ie.UsageReportWithinSessionDeletionResponse, d.reports, nil)...)
			w.answer(d.h, d.session.CPSEID, ie.CauseRequestAccepted, list...)
		}
		delete(w.going, d.key)
		w.answers.keep(d.key, w.scratch, time.Now())
		for range d.times {
			w.out.add(d.conn, net.UDPAddrFromAddrPort(d.from), w.scratch)
		}
	}
}
