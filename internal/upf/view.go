package upf

import (
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

// View looks at a session; false: there is none.
func (u *UPF) View(seid uint64) (View, bool, error) {
	e := u.entry(seid)
	if e == nil {
		return View{}, false, nil
	}
	u.changing.RLock()
	defer u.changing.RUnlock()
	e.mu.Lock()
	defer e.mu.Unlock()
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
