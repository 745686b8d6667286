package pfcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// state is what survives a restart besides the sessions.
type state struct {
	Recovery     uint32             `json:"recovery"` // Recovery Time Stamp of ours
	Associations []associationState `json:"associations,omitempty"`
}

type associationState struct {
	Node         string                      `json:"node"`
	Addrs        []netip.Addr                `json:"addrs"`
	Recovery     uint32                      `json:"recovery"`
	Since        time.Time                   `json:"since"`
	Applications map[string][]session.Filter `json:"applications,omitempty"`
}

// save saves the state for a restart. If it fails, the next start removes the
// sessions.
func (s *Server) save() {
	st := state{Recovery: s.recovery}
	for _, a := range s.peers.Load().sorted() {
		st.Associations = append(st.Associations, associationState{
			Node: a.node, Addrs: a.addrs, Recovery: a.recovery, Since: a.since,
			Applications: *a.apps.Load(),
		})
	}
	b, err := json.Marshal(&st)
	if err == nil {
		err = s.upf.SaveState(b)
	}
	if err != nil {
		s.log.Error("PFCP associations not saved", "error", err)
	}
}

// restore takes over state and sessions. If nothing was lost we stay the same
// UPF to our peers and keep the Recovery Time Stamp. Otherwise it makes a new one
// and removes the sessions that are left: the SMFs set them up again.
func (s *Server) restore() error {
	b, err := s.upf.LoadState()
	if err != nil {
		return fmt.Errorf("load the PFCP associations: %w", err)
	}
	var st state
	if len(b) > 0 {
		if err := json.Unmarshal(b, &st); err != nil {
			return fmt.Errorf("read the PFCP associations: %w", err)
		}
	}
	ps := &peers{}
	for _, saved := range st.Associations {
		if len(saved.Addrs) == 0 {
			continue
		}
		a := newAssociation(saved.Node, saved.Recovery, saved.Addrs...)
		a.since = saved.Since
		apps := maps.Clone(saved.Applications)
		if apps == nil {
			apps = map[string][]session.Filter{}
		}
		a.apps.Store(&apps)
		ps = ps.with(a)
	}
	if s.recovery = st.Recovery; s.recovery == 0 {
		s.recovery = uint32(time.Now().Unix() + wire.Epoch)
	}
	s.peers.Store(ps)
	s.adopt(ps)
	s.save()
	return nil
}

// adopt gives the UPF's sessions to the workers. It removes sessions without an
// association: no peer can ask for them.
func (s *Server) adopt(ps *peers) {
	var orphans []*session.Session
	for one := range s.upf.Sessions() {
		a := ps.byNode[one.Node]
		if a == nil {
			orphans = append(orphans, one)
			continue
		}
		s.workerOf(one.SEID).own(one, a)
		a.sessions.Add(1)
		a.unnamed.put(one)
	}
	for _, one := range orphans {
		if err := s.upf.Drop(one.SEID); err != nil {
			s.log.Error("session without an association not deleted", "seid", one.SEID, "error", err)
			continue
		}
		resourcesOf(one).free(s.upf)
	}
	if len(orphans) > 0 {
		s.log.Warn("sessions without an association deleted", "sessions", len(orphans))
	}
}
