package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// OverlayStatus is the node as a member of its cluster.
type OverlayStatus struct {
	Mode     string       `json:"mode"`
	Problem  string       `json:"problem,omitempty"` // why it is no member yet
	Self     overlay.Node `json:"self,omitzero"`
	SIDs     []string     `json:"sids,omitempty"` // with their behaviours
	Uplinks  []string     `json:"uplinks,omitempty"`
	MTU      int          `json:"mtu,omitempty"` // of pods
	Pods     int          `json:"pods"`
	Nodes    int          `json:"nodes"`              // others
	Problems []string     `json:"problems,omitempty"` // what cannot be as it was asked for
	// NetworkPolicy says what becomes of these.
	NetworkPolicy string `json:"network_policy"`
	// BGP sessions that there are to be, and those that are established.
	BGPSessions    int `json:"bgp_sessions,omitempty"`
	BGPEstablished int `json:"bgp_established,omitempty"`
}

// notEnforced is what there is to say of NetworkPolicy.
const notEnforced = "not enforced"

// NodeStatus is another node of the cluster.
type NodeStatus struct {
	overlay.Node
	Origin   string   `json:"origin"`             // static, kube or bgp
	Policies []string `json:"policies,omitempty"` // that lead to it
	State    string   `json:"state"`              // ready, or why not
	Problems []string `json:"problems,omitempty"` // what of it is not used
}

// Key is the node's name, or its address where only that is known.
func (s NodeStatus) Key() string { return cmp.Or(s.Name, s.Address.String()) }

// overlayStatus is nil for a node that is to be no member of a cluster. a.mu is
// held.
func (a *Agent) overlayStatus() *OverlayStatus {
	d := a.desired
	if !d.process.Overlay.IsSet() {
		return nil
	}
	s := &OverlayStatus{Mode: d.process.Overlay.Mode, MTU: a.overlay.mtu, Pods: len(a.pods.list()), Nodes: len(d.wanted.Peers), NetworkPolicy: notEnforced}
	if d.self.Name == "" {
		s.Problem = a.withTrouble(strings.Join(a.overlay.problems, "; "))
		return s
	}
	s.Self = d.self.Node()
	for _, sid := range d.self.SIDs() {
		s.SIDs = append(s.SIDs, fmt.Sprintf("%s %s", sid.SID, sid.Behavior))
	}
	for _, name := range a.overlay.uplinks {
		s.Uplinks = append(s.Uplinks, name)
	}
	slices.Sort(s.Uplinks)
	s.Problems = slices.Concat(a.overlay.problems, d.problems)
	if trouble := a.trouble(); trouble != "" {
		s.Problems = append(s.Problems, trouble)
	}
	for _, p := range d.wanted.Peers {
		for _, why := range p.Problems {
			s.Problems = append(s.Problems, fmt.Sprintf("%s: %s", cmp.Or(p.Name, p.Address.String()), why))
		}
	}
	return s
}

// Nodes are the others of the cluster.
func (a *Agent) Nodes() (out []NodeStatus, err error) {
	err = a.read(func() error {
		d := a.desired
		if !d.process.Overlay.IsSet() {
			return ErrNoCluster
		}
		told := map[string]bool{}
		for _, n := range d.nodes() {
			told[n.Name] = true
		}
		for _, p := range d.wanted.Peers {
			s := NodeStatus{Node: p.Node, Origin: config.OverlayBGP, Problems: p.Problems, State: "ready"}
			if p.Name != "" && told[p.Name] {
				s.Origin = d.process.Overlay.Mode
			}
			s.Policies, s.State = a.wayTo(p)
			out = append(out, s)
		}
		return nil
	})
	return out, err
}

// wayTo are the policies to a node, and why one of them does not lead there.
func (a *Agent) wayTo(p overlay.Peer) (names []string, state string) {
	used := map[string]bool{}
	for _, s := range a.desired.wanted.Steering {
		used[s.Policy] = true
	}
	state = "ready"
	for name, policy := range a.tables.policies {
		if policy.Endpoint != p.Address || !used[name] {
			continue
		}
		names = append(names, name)
		verdicts := a.tables.verdicts[name]
		if len(verdicts) == 0 || !slices.ContainsFunc(verdicts, func(v srpolicy.Verdict) bool { return v.Valid }) {
			state = "no way to it"
			if len(verdicts) > 0 {
				state = verdicts[0].Why
			}
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		state = strings.Join(p.Problems, "; ")
	}
	return names, state
}
