package pfcp

import (
	"errors"
	"net/netip"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// Report implements Reporter.
func (s *Server) Report(r session.Report, done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	if s.counters.reports.Add(1) > int64(s.cfg.MaxReports) {
		s.counters.reports.Add(-1)
		done(ErrBusy)
		return
	}
	finish := func(err error) {
		s.counters.reports.Add(-1)
		done(err)
	}
	w := s.workerOf(r.SEID)
	if !w.post(func() { w.report(r, finish) }) {
		finish(ErrBusy)
	}
}

// report sends a Session Report Request to the SMF that controls the session.
func (w *worker) report(r session.Report, done func(error)) {
	var about *session.Session
	if w.owner(r.SEID) != nil {
		about = w.s.upf.Session(r.SEID)
	}
	if about == nil {
		done(ErrNoSession)
		return
	}
	// The last CP F-SEID says who controls the session now.
	w.s.requests.send(&outgoing{
		msgType: message.MsgTypeSessionReportRequest, seid: about.CPSEID,
		to: netip.AddrPortFrom(about.CPAddr, Port), ies: reportIEs(&r, about),
		done: func(body wire.IEs, err error) {
			if err != nil || !w.post(func() { done(w.reported(r.SEID, body)) }) {
				done(causeOf(body, err))
			}
		},
	})
}

// reportIEs returns the IEs of a Session Report Request.
func reportIEs(r *session.Report, about *session.Session) []*ie.IE {
	inactive := 0
	if r.Inactive {
		inactive = 1
	}
	list := []*ie.IE{ie.NewReportType(inactive, min(1, len(r.ErrorIndications)), min(1, len(r.Usage)), min(1, len(r.DownlinkData)))}
	if len(r.DownlinkData) > 0 {
		var parts []*ie.IE
		for _, id := range r.DownlinkData {
			parts = append(parts, ie.NewPDRID(id))
		}
		for _, id := range r.DownlinkData {
			if qfi, ok := qfiOf(about, id); ok {
				// Downlink Data Service Information: QFII
				parts = append(parts, ie.New(ie.DownlinkDataServiceInformation, []byte{2, qfi}))
				break
			}
		}
		list = append(list, ie.NewDownlinkDataReport(parts...))
	}
	list = append(list, wire.NewUsageReports(ie.UsageReportWithinSessionReportRequest, r.Usage, nil)...)
	if len(r.ErrorIndications) > 0 {
		var payload []byte
		for _, peer := range r.ErrorIndications {
			pdi := session.PDI{TEID: peer.TEID}
			if peer.Addr.Is4() {
				pdi.TEID4 = peer.Addr
			} else {
				pdi.TEID6 = peer.Addr
			}
			payload = wire.AppendIE(payload, wire.NewFTEID(&pdi))
		}
		list = append(list, ie.New(ie.ErrorIndicationReport, payload))
	}
	return list
}

// qfiOf returns the QoS flow of a PDR's packets, and whether it has one.
func qfiOf(s *session.Session, pdr uint16) (uint8, bool) {
	p := s.PDR(pdr)
	if p == nil {
		return 0, false
	}
	for _, id := range p.QERs {
		if q := s.QER(id); q != nil && q.QFI != nil {
			return *q.QFI, true
		}
	}
	return 0, false
}

// reported handles the SMF's answer to a report. The answer may change buffering.
// If the SMF does not know the session, the session is removed (TS 29.244 section
// 7.2.2.4.2).
func (w *worker) reported(seid uint64, body wire.IEs) error {
	from := w.s.upf.Session(seid)
	if w.owner(seid) == nil || from == nil {
		return causeOf(body, nil) // it has been deleted
	}
	to := *from
	b := w.builder(&to, netip.Addr{}, nil)
	cause := uint8(0)
	touched := false
	w.read(netip.AddrPort{}, func() { cause, touched = b.ReportResponse(body) })
	if cause == ie.CauseSessionContextNotFound {
		w.s.warn(&w.s.complain.unknown, logevent.PFCPSessionUnknown, "SMF does not know a session: removing it", "seid", seid, "smf", from.Node)
		if err := w.drop(seid, from); err != nil {
			w.s.warn(&w.s.complain.kept, logevent.PFCPSessionNotDeleted, "session not deleted", "seid", seid, "error", err)
		}
		return errors.Join(ErrRefused, ErrNoSession)
	}
	if touched {
		w.change(from, b)
	}
	if b.Err != nil {
		return b.Err
	}
	return causeOf(body, nil)
}

// PathFailure implements Reporter.
func (s *Server) PathFailure(peer netip.Addr, smfs []string, refused func(smf string)) {
	const failure = 1 << 0 // UPFR
	for _, a := range s.named(smfs) {
		s.nodeReport(a, failure, ie.NewUserPlanePathFailureReport(wire.NewRemotePeer(peer)), func() { refused(a.node) })
	}
}

// PathRecovery implements Reporter.
func (s *Server) PathRecovery(peer netip.Addr, smfs []string) {
	const recovery = 1 << 1 // UPRR
	for _, a := range s.named(smfs) {
		s.nodeReport(a, recovery, ie.NewUserPlanePathRecoveryReport(wire.NewRemotePeer(peer)), func() {})
	}
}

// named returns the associations that Node IDs name.
func (s *Server) named(nodes []string) (list []*association) {
	ps := s.peers.Load()
	for _, node := range nodes {
		if a := ps.byNode[node]; a != nil {
			list = append(list, a)
		}
	}
	return list
}

// nodeReport sends a Node Report Request to an SMF, unless the SMF has refused or ignored
// one: TS 29.244 demands that SMFs take them, and several do not. refused is called where
// it does not.
func (s *Server) nodeReport(a *association, what uint8, report *ie.IE, refused func()) {
	if a.noNodeReports.Load() {
		refused()
		return
	}
	s.requests.send(&outgoing{
		msgType: message.MsgTypeNodeReportRequest, to: a.peer(),
		ies: []*ie.IE{wire.NewNodeID(s.cfg.NodeID), ie.NewNodeReportType(what), report},
		done: func(body wire.IEs, err error) {
			err = causeOf(body, err)
			switch {
			case err == nil, errors.Is(err, ErrStopped):
				return
			case errors.Is(err, ErrBusy), errors.Is(err, ErrNoAnswer) && a.down.Load():
				s.warn(&s.complain.refused, logevent.PFCPNodeReportFailed, "Node Report not delivered", "node", a.node, "error", err)
				return
			}
			if a.noNodeReports.CompareAndSwap(false, true) {
				s.log.Warn("SMF takes no Node Reports: it gets no more", "event", logevent.PFCPNodeReportsRefused, "node", a.node, "error", err)
			}
			refused()
		},
	})
}
