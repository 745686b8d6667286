package upf

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/path"
)

// sessionsOn returns the sessions that send to a GTP-U peer by the Node IDs of their
// SMFs, and how many there are.
func (u *UPF) sessionsOn(peer netip.Addr) (bySMF map[string][]uint64, count int) {
	bySMF = map[string][]uint64{}
	for _, seid := range u.paths.Users(peer) {
		if e := u.store.Entry(seid); e != nil {
			if i, exists := e.Identity(); exists {
				bySMF[i.Node] = append(bySMF[i.Node], seid)
				count++
			}
		}
	}
	return bySMF, count
}

// pathFailed tells the log and the SMFs concerned that a GTP-U peer has stopped answering.
func (u *UPF) pathFailed(peer netip.Addr) {
	bySMF, count := u.sessionsOn(peer)
	smfs := slices.Sorted(maps.Keys(bySMF))
	u.o.Logger.Warn("GTP-U path has failed: the peer does not answer Echo Requests", "peer", peer, "sessions", count, "smfs", smfs)
	u.reports.announce(func(r pfcp.Reporter) {
		r.PathFailure(peer, smfs, func(smf string) { go u.indicatePath(peer, smf, bySMF[smf]) })
	})
}

// pathRecovered tells the log and the SMFs concerned that a GTP-U peer answers again.
func (u *UPF) pathRecovered(peer netip.Addr) {
	bySMF, count := u.sessionsOn(peer)
	smfs := slices.Sorted(maps.Keys(bySMF))
	u.o.Logger.Info("GTP-U path works again", "peer", peer, "sessions", count, "smfs", smfs)
	u.reports.announce(func(r pfcp.Reporter) { r.PathRecovery(peer, smfs) })
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
func (u *UPF) indicatePath(peer netip.Addr, smf string, seids []uint64) {
	if _, answered := u.paths.Failed(peer); !answered {
		u.o.Logger.Warn("SMF is not told of a failed GTP-U path: it takes no Node Reports, and the peer has never answered an Echo Request",
			"peer", peer, "smf", smf, "sessions", len(seids))
		return
	}
	u.o.Logger.Warn("SMF takes no Node Reports: the sessions of a failed GTP-U path are reported to it by Error Indication Reports",
		"peer", peer, "smf", smf, "sessions", len(seids))
	slices.Sort(seids)
	for n, seid := range seids {
		if n%indicateAtOnce == indicateAtOnce-1 {
			time.Sleep(indicatePause)
		}
		if failed, _ := u.paths.Failed(peer); !failed {
			return // it answers again, or no session sends there any more
		}
		u.indicateTunnels(seid, peer)
	}
}

// indicateTunnels reports the tunnels to a peer that a session forwards to now.
func (u *UPF) indicateTunnels(seid uint64, peer netip.Addr) {
	e := u.store.Entry(seid)
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
	if len(report.ErrorIndications) > 0 && e.Indicate(u.o.Now(), indicationPause) {
		u.reports.send(e, report)
	}
}
