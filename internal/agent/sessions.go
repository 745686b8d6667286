package agent

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/upf"
)

// defaultSessions is how many are listed where nobody says how many.
const defaultSessions = 1000

// userPlane is the user plane function, once SMFs are answered.
func (c *core) userPlane() (*userPlane, error) {
	var u *userPlane
	err := c.read(func() error {
		if u = c.upf; u == nil || u.server == nil {
			return ErrNotUPF
		}
		return nil
	})
	return u, err
}

// Slices are those of the configuration, with what their sessions sent and got.
func (a *Agent) Slices() ([]SliceStatus, error) {
	var counted []upf.SliceStatus
	if u, err := a.core.userPlane(); err == nil {
		if counted, err = u.upf.Slices(); err != nil {
			return nil, err
		}
	}
	return each(a.core, func(r desired.Resource, v slice.Slice) (SliceStatus, error) {
		s := SliceStatus{Slice: v, Origin: r.Origin}
		if i := slices.IndexFunc(counted, func(c upf.SliceStatus) bool { return c.Name == v.Name }); i >= 0 {
			s.Sessions, s.Uplink, s.Downlink = counted[i].Sessions, Counter(counted[i].Uplink), Counter(counted[i].Downlink)
		}
		return s, nil
	})
}

// Associations are those with SMFs.
func (a *Agent) Associations() ([]AssociationStatus, error) {
	u, err := a.core.userPlane()
	if err != nil {
		return nil, err
	}
	var out []AssociationStatus
	for _, v := range u.server.Associations() {
		out = append(out, AssociationStatus(v))
	}
	return out, nil
}

// Sessions are those that the filter means, lowest SEID first.
func (a *Agent) Sessions(f SessionFilter) (list []SessionStatus, total int, err error) {
	u, err := a.core.userPlane()
	if err != nil {
		return nil, 0, err
	}
	if f.SEID != nil {
		v, there, err := u.upf.View(*f.SEID)
		if err == nil && !there {
			err = fmt.Errorf("%w: there is no session %#x", ErrNotFound, *f.SEID)
		}
		if err != nil {
			return nil, 0, err
		}
		one, err := wholeSession(v)
		return []SessionStatus{one}, 1, err
	}
	if f.Limit == 0 {
		f.Limit = defaultSessions
	}
	views, total, err := u.upf.List(f.match, f.Limit)
	for _, v := range views {
		list = append(list, sessionStatus(v))
	}
	return list, total, err
}

func (f SessionFilter) match(s *session.Session, name string) bool {
	if f.Slice != "" && f.Slice != name || f.Association != "" && f.Association != s.Node {
		return false
	}
	ue, teid := !f.UE.IsValid(), f.TEID == 0
	for i := range s.PDRs {
		p := &s.PDRs[i].PDI
		teid = teid || p.TEID == f.TEID
		for _, prefix := range slices.Concat(p.UE, p.FramedRoutes) {
			ue = ue || prefix.Contains(f.UE)
		}
	}
	return ue && teid
}

func sessionStatus(v upf.View) SessionStatus {
	s := v.Session
	out := SessionStatus{
		SEID: s.SEID, CPSEID: s.CPSEID, Association: s.Node, Slice: v.Slice, DNN: s.DNN, Buffered: v.Buffered,
	}
	for i := range s.PDRs {
		p := &s.PDRs[i].PDI
		for _, prefix := range p.UE {
			if !slices.Contains(out.UE, prefix) {
				out.UE = append(out.UE, prefix)
			}
		}
		if p.TEID != 0 && !slices.Contains(out.TEIDs, p.TEID) {
			out.TEIDs = append(out.TEIDs, p.TEID)
		}
		to := &out.Downlink
		if p.Source == session.Access {
			to = &out.Uplink
		}
		to.Packets += v.Volumes[i].Volume.Packets
		to.Bytes += v.Volumes[i].Volume.Bytes
	}
	return out
}

// wholeSession adds what the SMF said, and what each rule counted.
func wholeSession(v upf.View) (SessionStatus, error) {
	out := sessionStatus(v)
	for _, p := range v.Volumes {
		out.PDRs = append(out.PDRs, PDRStatus{p.PDR, Counter(p.Volume)})
	}
	for _, u := range v.URRs {
		out.URRs = append(out.URRs, URRStatus{u.URR, u.Sequence, u.Volume.Uplink, u.Volume.Downlink, u.Exhausted})
	}
	var err error
	out.Rules, err = json.Marshal(v.Session)
	return out, err
}

// status is nil for a node that is no user plane function, or not yet.
func (u *userPlane) status() *UPFStatus {
	if u == nil || u.server == nil {
		return nil
	}
	s := &UPFStatus{
		Sessions: u.upf.Len(), MaxSessions: u.upf.Max(), Associations: len(u.server.Associations()),
		Buffered: int(u.upf.Stats().BufferedNow.Load()),
	}
	for _, p := range u.upf.Pools() {
		s.Pools = append(s.Pools, PoolStatus(p))
	}
	for _, p := range u.upf.Peers() {
		s.Peers = append(s.Peers, PeerStatus(p))
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return a.Addr.Compare(b.Addr) })
	return s
}

// pdrOf is the PDR that a rule of the data path is of.
func (u *userPlane) pdrOf(seid uint64, rule uint16) uint16 {
	if u == nil {
		return rule
	}
	return u.upf.PDR(seid, rule)
}
