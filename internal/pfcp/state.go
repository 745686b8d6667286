package pfcp

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/session"
)

// What survives a restart besides the sessions: the stamps, and an
// associationState by Node ID.
const (
	serverKey      = "server"
	associationKey = "association " // and the Node ID
)

type associationState struct {
	Node         string                      `json:"node"`
	Addrs        []netip.Addr                `json:"addrs"`
	Recovery     uint32                      `json:"recovery"`
	Since        time.Time                   `json:"since"`
	Lapsed       bool                        `json:"lapsed,omitempty"`
	Applications map[string][]session.Filter `json:"applications,omitempty"`
}

// saved is an association as it was saved: neither value changes.
type saved struct {
	of   *association
	apps *map[string][]session.Filter
}

// save saves for a restart what has changed. It returns false if some of that is not
// saved: the next save tries again.
func (n *node) save() bool {
	whole := true
	if !n.stamped {
		n.stamped = n.s.saveStamps(n.s.stamps.Load())
		whole = n.stamped
	}
	now := n.s.peers.Load().byNode
	for node := range n.saved {
		if now[node] != nil {
			continue
		}
		if n.s.saveState(associationKey+node, nil) {
			delete(n.saved, node)
		} else {
			whole = false
		}
	}
	for node, a := range now {
		is := saved{a, a.apps.Load()}
		if n.saved[node] == is {
			continue
		}
		if n.s.saveState(associationKey+node, &associationState{Node: node, Addrs: a.addrs, Recovery: a.recovery, Since: a.since, Lapsed: a.lapsed, Applications: *is.apps}) {
			n.saved[node] = is
		} else {
			whole = false
		}
	}
	return whole
}

// saveState saves one value, or forgets it if it is nil.
func (s *Server) saveState(key string, value any) bool {
	var b []byte
	var err error
	if value != nil {
		b, err = json.Marshal(value)
	}
	if err == nil {
		err = s.upf.SaveState(key, b)
	}
	if err != nil {
		s.warn(&s.complain.unsaved, logevent.PFCPStateUnsaved, "PFCP associations not saved", "error", err)
	}
	return err == nil
}

// Restore takes over state and sessions of a user plane. If nothing was lost we stay the same
// UPF to our peers and keep the Recovery Time Stamp. Otherwise it makes a new one
// and removes the sessions that are left: the SMFs set them up again.
func (s *Server) Restore(upf UPF) error {
	s.upf, s.features = upf, upf.Features()
	all, err := s.upf.LoadState()
	if err != nil {
		return fmt.Errorf("load the PFCP associations: %w", err)
	}
	own := &stamps{}
	ps := &peers{}
	for key, b := range all {
		if key == serverKey {
			err = json.Unmarshal(b, own)
		} else if strings.HasPrefix(key, associationKey) {
			var state associationState
			if err = json.Unmarshal(b, &state); err == nil && len(state.Addrs) > 0 {
				a := state.association()
				ps = ps.with(a)
				s.node.saved[a.node] = saved{a, a.apps.Load()}
			}
		}
		if err != nil {
			return fmt.Errorf("read the PFCP associations: %w", err)
		}
	}
	if s.node.stamped = own.Own != 0; !s.node.stamped {
		own, ps = &stamps{Own: newStamp()}, &peers{}
	}
	s.stamps.Store(own)
	s.writeStampFile(own, s.node.stamped)
	s.peers.Store(ps)
	s.adopt(ps)
	s.share()
	s.node.unsaved = !s.node.save()
	return nil
}

// association is an association that was saved.
func (s *associationState) association() *association {
	a := newAssociation(s.Node, s.Recovery, s.Addrs...)
	a.since, a.lapsed = s.Since, s.Lapsed
	if s.Applications != nil {
		a.apps.Store(&s.Applications)
	}
	return a
}

// adopt gives the UPF's sessions to the workers. It removes sessions without an
// association: no peer can ask for them.
func (s *Server) adopt(ps *peers) {
	var orphans []uint64
	unnamed := map[*association][]restored{}
	for one := range s.upf.Sessions() {
		a := ps.byNode[one.Node]
		if a == nil {
			orphans = append(orphans, one.SEID)
			continue
		}
		s.workerOf(one.SEID).own(one.SEID, one.Applications, a)
		a.sessions.Add(1)
		unnamed[a] = append(unnamed[a], restored{keyOf(one.CPSEID, one.CPAddr), one.SEID})
	}
	for a, all := range unnamed {
		a.unnamed.fill(all)
	}
	for _, seid := range orphans {
		had := resourcesOf(s.upf.Session(seid))
		if err := s.upf.Drop(seid); err != nil {
			s.log.Error("session without an association not deleted", "event", logevent.PFCPOrphanNotRemoved, "seid", seid, "error", err)
			continue
		}
		had.free(s.upf)
	}
	if len(orphans) > 0 {
		s.log.Warn("sessions without an association deleted", "event", logevent.PFCPOrphansRemoved, "sessions", len(orphans))
	}
}
