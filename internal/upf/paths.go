package upf

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/path"
	"github.com/culvert-net/culvert/internal/upf/store"
)

// peering tells SMFs what GTP-U peers do.
type peering struct {
	dp      DataPath
	store   *store.Store
	paths   *path.Paths
	reports *reporter
	log     *slog.Logger
	now     func() time.Time
}

// sessionsOn returns the sessions that send to a GTP-U peer by the Node IDs of their
// SMFs, and how many there are.
func (p *peering) sessionsOn(peer netip.Addr) (bySMF map[string][]uint64, count int) {
	bySMF = map[string][]uint64{}
	for _, seid := range p.paths.Users(peer) {
		if e := p.store.Entry(seid); e != nil {
			if i, exists := e.Identity(); exists {
				bySMF[i.Node] = append(bySMF[i.Node], seid)
				count++
			}
		}
	}
	return bySMF, count
}

// pathFailed tells the log and the SMFs concerned that a GTP-U peer has stopped answering.
func (p *peering) pathFailed(peer netip.Addr) {
	bySMF, count := p.sessionsOn(peer)
	smfs := slices.Sorted(maps.Keys(bySMF))
	p.log.Warn("GTP-U path has failed: the peer does not answer Echo Requests", "event", logevent.GTPUPathFailed, "peer", peer, "sessions", count, "smfs", smfs)
	p.reports.announce(func(r pfcp.Reporter) {
		r.PathFailure(peer, smfs, func(smf string) { go p.indicatePath(peer, smf, bySMF[smf]) })
	})
}

// pathRecovered tells the log and the SMFs concerned that a GTP-U peer answers again.
func (p *peering) pathRecovered(peer netip.Addr) {
	bySMF, count := p.sessionsOn(peer)
	smfs := slices.Sorted(maps.Keys(bySMF))
	p.log.Info("GTP-U path works again", "event", logevent.GTPUPathRecovered, "peer", peer, "sessions", count, "smfs", smfs)
	p.reports.announce(func(r pfcp.Reporter) { r.PathRecovery(peer, smfs) })
}

// fromSMF takes a G-PDU that came to a socket, by an interface without the data path: from
// SMFs only, which answer router solicitations of UEs so. It says whether it took it.
func (p *peering) fromSMF(r path.Received) bool {
	to := p.reports.to.Load()
	if to == nil || !(*to).IsSMF(r.From, r.In) {
		return false
	}
	if err := p.dp.InjectGTPU(r.Message, r.TOS, r.TTL); err != nil {
		p.log.Debug("G-PDU of an SMF not taken", "from", r.From, "error", err)
		return false
	}
	return true
}

// endMarker takes an End Marker for a session that sends it on, from peers of the session
// only: others must not end what the next node waits for.
func (p *peering) endMarker(r path.Received) bool {
	e := p.store.Entry(p.dp.SessionOf(r.TEID))
	if e == nil {
		return false
	}
	s, _ := e.Current()
	if s == nil || !p.paths.TakesEndMarkers(s, r.From) {
		return false
	}
	if err := p.dp.InjectGTPU(r.Message, r.TOS, r.TTL); err != nil {
		p.log.Debug("End Marker not sent on", "from", r.From, "error", err)
		return false
	}
	return true
}

// Sessions of a failed path are reported so many at once, then there is a pause.
const (
	indicateAtOnce = 64
	indicatePause  = 20 * time.Millisecond
)

// indicatePath reports a failed path to an SMF that takes no Node Reports: for each of
// its sessions, as if the peer did not know the F-TEID any more. SMFs then release the
// tunnel, and the UE is paged. So this is for peers only that have answered Echo Requests
// before: others may forward what they get.
func (p *peering) indicatePath(peer netip.Addr, smf string, seids []uint64) {
	if _, answered := p.paths.Failed(peer); !answered {
		p.log.Warn("SMF is not told of a failed GTP-U path: it takes no Node Reports, and the peer has never answered an Echo Request", "event", logevent.GTPUPathUnreported,
			"peer", peer, "smf", smf, "sessions", len(seids))
		return
	}
	p.log.Warn("SMF takes no Node Reports: the sessions of a failed GTP-U path are reported to it by Error Indication Reports", "event", logevent.GTPUPathIndicated,
		"peer", peer, "smf", smf, "sessions", len(seids))
	slices.Sort(seids)
	for n, seid := range seids {
		if n%indicateAtOnce == indicateAtOnce-1 {
			time.Sleep(indicatePause)
		}
		if failed, _ := p.paths.Failed(peer); !failed {
			return // it answers again, or no session sends there any more
		}
		p.indicateTunnels(seid, peer)
	}
}

// indicateTunnels reports the tunnels to a peer that a session forwards to now.
func (p *peering) indicateTunnels(seid uint64, peer netip.Addr) {
	e := p.store.Entry(seid)
	if e == nil {
		return
	}
	s, _ := e.Current()
	if s == nil {
		return
	}
	report := session.Report{SEID: seid}
	for i := range s.FARs {
		far := &s.FARs[i]
		to, is := path.TunnelOf(far)
		if is && to.Addr == peer && far.Action&session.Forward != 0 && far.Forwarding.Destination != session.CPFunction &&
			!slices.Contains(report.ErrorIndications, to) {
			report.ErrorIndications = append(report.ErrorIndications, to)
		}
	}
	if len(report.ErrorIndications) > 0 && e.Indicate(p.now(), indicationPause) {
		p.reports.send(e, report)
	}
}
