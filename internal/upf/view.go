package upf

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/path"
	"github.com/culvert-net/culvert/internal/upf/pool"
	"github.com/culvert-net/culvert/internal/upf/rules"
	"github.com/culvert-net/culvert/internal/upf/stats"
	"github.com/culvert-net/culvert/internal/upf/store"
	"github.com/culvert-net/culvert/internal/upf/usage"
)

// View is a session as it is now.
type View struct {
	Session *session.Session
	Slice   string // name; empty: of none
	// SliceNote says why the session belongs to no slice, or to that one although it
	// has another SD.
	SliceNote string
	Volumes   []PDRVolume // of each PDR
	// Flows are those of PDRs whose packets take SR policies, by PDR ID.
	Flows map[uint16]class.SessionFlow
	URRs  []usage.Status
	// Buffered counts the packets that are kept, and BufferedBytes their octets.
	Buffered, BufferedBytes int
	// BufferFull counts the packets that came, and were dropped because the buffer was
	// full. Once it is, the data path drops the others.
	BufferFull int
}

// PDRVolume is what a PDR has forwarded since it was created.
type PDRVolume struct {
	PDR    uint16
	Volume counter.Counter
}

// List views the sessions that match accepts, lowest SEID first, at most limit of
// them. total says how many match accepts.
func (u *UPF) List(match func(s *session.Session, slice string) bool, limit int) (views []View, total int, err error) {
	entries := u.store.All()
	slices.SortFunc(entries, func(a, b *store.Entry) int { return cmp.Compare(a.SEID, b.SEID) })
	for _, e := range entries {
		u.install.changing.RLock()
		s, index := e.Current()
		matches := s != nil && match(s, u.install.config.Load().sliceName(index))
		u.install.changing.RUnlock()
		if !matches {
			continue
		}
		if total++; total > limit {
			continue
		}
		v, exists, err := u.View(e.SEID)
		if err != nil {
			return nil, 0, err
		}
		if exists {
			views = append(views, v)
		}
	}
	return views, total, nil
}

// View views a session. exists is false if the UPF has no such session.
func (u *UPF) View(seid uint64) (v View, exists bool, err error) {
	e := u.store.Entry(seid)
	u.install.changing.RLock()
	defer u.install.changing.RUnlock()
	if e == nil || !e.Lock() {
		return View{}, false, nil
	}
	defer e.Unlock()
	config := u.install.config.Load()
	v = View{Session: e.Session(), Slice: config.sliceName(e.Slice())}
	match := rules.MatchSlice(config.Slices, v.Session)
	v.SliceNote = match.Note(config.Slices, v.Session)
	if v.Flows, err = rules.Flows(config.input(match, v.Session, e.Usage)); err != nil {
		return View{}, false, err
	}
	counts, err := u.o.DataPath.SessionUsage(seid)
	if err != nil {
		return View{}, false, err
	}
	for i := range v.Session.PDRs {
		v.Volumes = append(v.Volumes, PDRVolume{PDR: v.Session.PDRs[i].ID})
	}
	for _, r := range counts {
		if p := rules.PDR(v.Session, r.Rule); p != nil {
			i := slices.IndexFunc(v.Volumes, func(w PDRVolume) bool { return w.PDR == p.ID })
			v.Volumes[i].Volume.Packets += r.Volume.Packets
			v.Volumes[i].Volume.Bytes += r.Volume.Bytes
		}
	}
	v.URRs = e.Usage.Peek(v.Session, counts, u.o.Now())
	v.Buffered, v.BufferedBytes = e.Buffer.Size()
	v.BufferFull = e.Buffer.Full()
	return v, true, nil
}

// PDR returns the PDR that a rule of the data path was made of, or the rule itself
// if that is not known.
func (u *UPF) PDR(seid uint64, rule uint16) uint16 {
	if s := u.Session(seid); s != nil {
		if p := rules.PDR(s, rule); p != nil {
			return p.ID
		}
	}
	return rule
}

// Stats returns the counters of the UPF, which go on counting.
func (u *UPF) Stats() *stats.Counters { return &u.stats }

// Len returns how many sessions exist.
func (u *UPF) Len() int { return u.store.Len() }

// Journal returns why the journal takes no sessions, or nil.
func (u *UPF) Journal() error { return u.store.Journal() }

// Max returns how many sessions may exist.
func (u *UPF) Max() int { return u.o.Sessions }

// Peers lists the GTP-U peers that sessions send to.
func (u *UPF) Peers() []path.Peer { return u.paths.Peers() }

// Pools lists the prefixes of UE addresses.
func (u *UPF) Pools() []pool.Usage { return u.ues.Usage() }
