package api

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Membership describes a machine's place in its cluster.
type Membership struct {
	Uplinks []string        // those of the configuration
	Address netip.Addr      // of this node in the underlay, if known
	Nodes   []overlay.Node  // the other nodes
	Faults  *overlay.Faults // nil: no daemon says so
}

// membershipOf asks a daemon. It is nil for a node of no cluster.
func membershipOf(a agent.Service, running *config.Config) *Membership {
	if !running.Overlay.IsSet() {
		return nil
	}
	m := &Membership{Uplinks: running.Overlay.Uplinks, Address: running.Overlay.Address}
	s, err := a.Status()
	if err != nil || s.Overlay == nil || !s.Overlay.Self.Address.IsValid() {
		return m // a node that has not joined yet has no status and no nodes
	}
	m.Address, m.Faults = s.Overlay.Self.Address, &overlay.Faults{}
	for _, p := range s.Overlay.Problems {
		if strings.HasPrefix(p, agent.ProblemOthers) {
			m.Faults.Self = append(m.Faults.Self, p)
		}
		if object, is := strings.CutPrefix(p, agent.ProblemRefused); is {
			m.Faults.Paths = append(m.Faults.Paths, object)
		}
	}
	nodes, _ := a.Nodes() // none: it is no member any more
	for _, n := range nodes {
		m.Nodes = append(m.Nodes, n.Node)
		why := n.Key() + ": " + strings.Join(n.Problems, "; ")
		switch {
		case len(n.Problems) == 0:
		case len(n.Policies) == 0:
			m.Faults.Refused = append(m.Faults.Refused, why)
		default:
			m.Faults.Partly = append(m.Faults.Partly, why)
		}
	}
	policies, _ := a.Policies() // likewise
	for _, p := range policies {
		addPaths(m.Faults, p)
	}
	return m
}

// addPaths adds a policy's paths that are not valid.
func addPaths(f *overlay.Faults, p agent.PolicyStatus) {
	isValid := func(v srpolicy.Verdict) bool { return v.Valid }
	if len(p.Paths) > 0 && !slices.ContainsFunc(p.Paths, isValid) {
		f.NoPath = append(f.NoPath, p.Name+": "+p.Paths[0].Why)
		return
	}
	for _, v := range p.Paths {
		if !v.Valid {
			f.Paths = append(f.Paths, v.Path+" of "+p.Name+": "+v.Why)
		}
	}
}
