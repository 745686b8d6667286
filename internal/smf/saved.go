package smf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Saved is what another process needs to go on with a Client's sessions. The
// UPF must not take it for an SMF that has lost them: it goes on with the same
// Recovery Time Stamp and sequence numbers.
type Saved struct {
	UPF     netip.AddrPort `json:"upf"`
	Local   netip.AddrPort `json:"local"`
	NodeID  string         `json:"node_id"`
	Dialect Dialect        `json:"dialect"`
	Started time.Time      `json:"recovery_time_stamp"`
	// UPFStarted is the UPF's Recovery Time Stamp; zero: no association.
	UPFStarted time.Time    `json:"upf_recovery_time_stamp,omitzero"`
	Sequence   uint32       `json:"sequence"`
	Next       uint64       `json:"next_seid"`
	Groups     []SavedGroup `json:"groups"`
}

// SavedGroup is a group of which sessions are established.
type SavedGroup struct {
	Spec     Spec           `json:"spec"`
	Base     uint64         `json:"first_seid"`
	Sessions []savedSession `json:"sessions"` // those that are established
}

type savedSession struct {
	Index  int      `json:"i"`
	UPSEID uint64   `json:"up_seid"`
	UE4    uint32   `json:"ue4,omitempty"`
	UE6    uint64   `json:"ue6,omitempty"`
	Access *Created `json:"access,omitempty"`
	Core   *Created `json:"core,omitempty"`
	Peer   *Created `json:"peer,omitempty"`
	Next   *Created `json:"next,omitempty"`
}

// Save is what Restore takes.
func (c *Client) Save() *Saved {
	o := &c.options
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Saved{
		UPF: o.UPF, Local: o.Local, NodeID: o.NodeID, Dialect: o.Dialect, Started: o.Started, Sequence: c.table.sequence % (1 << 24), Next: c.nextSEID,
	}
	for _, g := range c.groups {
		sg := SavedGroup{Spec: g.spec, Base: g.base}
		for i := range g.state {
			if info := g.info(i); info.Live {
				st := &g.state[i]
				sg.Sessions = append(sg.Sessions, savedSession{
					Index: i, UPSEID: info.UPSEID, UE4: binary.BigEndian.Uint32(st.ue4[:]), UE6: binary.BigEndian.Uint64(st.ue6[:]),
					Access: info.Access, Core: info.Core, Peer: info.Peer, Next: info.Next,
				})
			}
		}
		if len(sg.Sessions) > 0 {
			s.Groups = append(s.Groups, sg)
		}
	}
	if c.associated {
		s.UPFStarted = c.upfStarted
	}
	return s
}

// Has says whether a group of that name is among the saved; s may be nil.
func (s *Saved) Has(name string) bool {
	return s != nil && slices.ContainsFunc(s.Groups, func(g SavedGroup) bool { return g.Spec.Name == name })
}

// Infos are what is known of the group's sessions.
func (g *SavedGroup) Infos() (list []Info) {
	for _, s := range g.Sessions {
		info := Info{
			Group: g.Spec.Name, Index: s.Index, Live: true, CPSEID: g.Base + uint64(s.Index), UPSEID: s.UPSEID,
			Access: s.Access, Core: s.Core, Peer: s.Peer, Next: s.Next,
		}
		if s.UE4 != 0 {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], s.UE4)
			info.UE4 = netip.AddrFrom4(a)
		}
		if s.UE6 != 0 {
			a := g.Spec.ue6(s.Index)
			binary.BigEndian.PutUint64(a[:], s.UE6)
			info.UE6 = netip.AddrFrom16(a)
		}
		list = append(list, info)
	}
	return list
}

// Restore takes over the sessions of an earlier client.
func (c *Client) Restore(s *Saved) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sg := range s.Groups {
		c.nextSEID = sg.Base
		g, err := c.add(sg.Spec)
		if err != nil {
			return err
		}
		for _, ss := range sg.Sessions {
			if ss.Index < 0 || ss.Index >= len(g.state) {
				return fmt.Errorf("session group %s has no session %d", g.spec.Name, ss.Index)
			}
			st := &g.state[ss.Index]
			st.upSEID, st.live = ss.UPSEID, true
			binary.BigEndian.PutUint32(st.ue4[:], ss.UE4)
			binary.BigEndian.PutUint64(st.ue6[:], ss.UE6)
			for to, at := range map[*fteid]*Created{&st.access: ss.Access, &st.core: ss.Core, &st.peer: ss.Peer, &st.next: ss.Next} {
				if at != nil {
					*to = c.fteid(place{at.Addr4, at.Addr6}, at.TEID)
				}
			}
		}
	}
	c.nextSEID = max(c.nextSEID, s.Next)
	c.associated, c.upfStarted = !s.UPFStarted.IsZero(), s.UPFStarted
	return nil
}
