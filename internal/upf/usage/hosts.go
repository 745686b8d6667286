package usage

import (
	"bytes"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/session"
)

// ReportsHosts says whether a URR of a session reports the hosts behind the UE
// (MACAR, TS 23.501 section 5.6.10.2).
func ReportsHosts(s *session.Session) bool {
	return slices.ContainsFunc(s.URRs, func(r session.URR) bool { return r.Trigger&session.TriggerMACAddresses != 0 })
}

// SetHosts notes the hosts behind an Ethernet session, as the data path knows
// them. news says that there is something to report.
func (u *Usage) SetHosts(s *session.Session, list []dataplane.Station) (news bool) {
	for i := range u.measurements {
		urr, m := &s.URRs[i], &u.measurements[i]
		if urr.Trigger&session.TriggerMACAddresses == 0 {
			continue
		}
		m.hosts = nil
		for _, h := range list {
			if urr.EthernetIdle == 0 || h.Idle < urr.EthernetIdle {
				m.hosts = append(m.hosts, h.MAC)
			}
		}
		slices.SortFunc(m.hosts, compareMACs)
		m.hosts = slices.Compact(m.hosts) // a session that moves has a host on two links
		news = news || !slices.Equal(m.hosts, m.reported)
	}
	return news
}

func compareMACs(a, b [6]byte) int { return bytes.Compare(a[:], b[:]) }

// without returns those of a that b does not have. Both are sorted.
func without(a, b [][6]byte) (out [][6]byte) {
	for _, mac := range a {
		if _, has := slices.BinarySearchFunc(b, mac, compareMACs); !has {
			out = append(out, mac)
		}
	}
	return out
}
