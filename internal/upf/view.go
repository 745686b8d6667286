package upf

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/session"
)

// View is a session as it is now.
type View struct {
	Session *session.Session
	Slice   string // empty: of none
	// Volumes are what each PDR forwarded since it was created.
	Volumes []PDRVolume
	URRs    []URRView
	// Buffered packets, and their octets.
	Buffered, BufferedBytes int
}

// PDRVolume is what a PDR forwarded.
type PDRVolume struct {
	PDR    uint16
	Volume dataplane.Counter
}

// URRView is what a URR has counted since its last report.
type URRView struct {
	URR       uint32
	Sequence  uint32 // of the next report
	Volume    session.Measured
	Exhausted bool
}

// List looks at the sessions that match says, lowest SEID first, limit of them
// at most. total is how many match.
func (u *UPF) List(match func(s *session.Session, slice string) bool, limit int) (views []View, total int, err error) {
	entries := u.entries()
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.seid, b.seid) })
	for _, e := range entries {
		u.changing.RLock()
		e.mu.Lock()
		there := !e.gone && match(e.session(), u.sliceName(e.slice))
		e.mu.Unlock()
		u.changing.RUnlock()
		if !there {
			continue
		}
		if total++; total > limit {
			continue
		}
		v, ok, err := u.View(e.seid)
		if err != nil {
			return nil, 0, err
		}
		if ok {
			views = append(views, v)
		}
	}
	return views, total, nil
}

// View looks at a session; false: there is none.
func (u *UPF) View(seid uint64) (View, bool, error) {
	e := u.entry(seid)
	if e == nil {
		return View{}, false, nil
	}
	u.changing.RLock()
	defer u.changing.RUnlock()
	e.lock()
	defer e.unlock()
	if e.gone {
		return View{}, false, nil
	}
	v := View{Session: e.session(), Slice: u.sliceName(e.slice)}
	rules, err := u.dp.SessionUsage(seid)
	if err != nil {
		return View{}, false, err
	}
	for i := range v.Session.PDRs {
		v.Volumes = append(v.Volumes, PDRVolume{PDR: v.Session.PDRs[i].ID})
	}
	for _, r := range rules {
		if p := pdrOf(v.Session, r.Rule); p != nil {
			i := slices.IndexFunc(v.Volumes, func(w PDRVolume) bool { return w.PDR == p.ID })
			v.Volumes[i].Volume.Packets += r.Volume.Packets
			v.Volumes[i].Volume.Bytes += r.Volume.Bytes
		}
	}
	if e.usage != nil {
		now := e.usage.clone() // looking changes nothing
		now.collect(v.Session, rules, u.now())
		for _, m := range now.measurements {
			v.URRs = append(v.URRs, URRView{m.id, m.sequence, m.volume, m.exhausted})
		}
	}
	if e.buffer != nil {
		v.Buffered, v.BufferedBytes = len(e.buffer.frames), e.buffer.bytes
	}
	return v, true, nil
}

// PDR is the one that a rule of the data path was made of.
func (u *UPF) PDR(seid uint64, rule uint16) uint16 {
	if s := u.Session(seid); s != nil {
		if p := pdrOf(s, rule); p != nil {
			return p.ID
		}
	}
	return rule
}

// sliceName is empty for index 0. changing is held.
func (u *UPF) sliceName(index uint32) string {
	config := u.config.Load()
	if i := slices.Index(config.indices, index); index != 0 && i >= 0 {
		return config.Slices[i].Name
	}
	return ""
}

// Peers are the GTP-U peers that sessions send to.
func (u *UPF) Peers() []PeerStatus { return u.paths.status() }

// Pools are the prefixes of UE addresses.
func (u *UPF) Pools() []PoolUsage { return u.ues.usage() }
