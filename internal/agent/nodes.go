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

// overlayStatus is nil for a node that is to be no member of a cluster. silence is
// why the Kubernetes API says nothing. mu is held.
func (c *core) overlayStatus(silence string) *OverlayStatus {
	g := c.goal
	if !g.Desired.Process.Overlay.IsSet() {
		return nil
	}
	s := &OverlayStatus{
		Mode: g.Desired.Process.Overlay.Mode, MTU: c.overlay.MTU(), Pods: len(c.pods.List()), Nodes: len(g.Wanted.Peers), NetworkPolicy: notEnforced,
	}
	if g.Self.Name == "" {
		s.Problem = withSilence(silence, strings.Join(c.overlay.Problems(), "; "))
		return s
	}
	s.Self = g.Self.Node()
	for _, sid := range g.Self.SIDs() {
		s.SIDs = append(s.SIDs, fmt.Sprintf("%s %s", sid.SID, sid.Behavior))
	}
	s.Uplinks = c.overlay.UplinkNames()
	s.Problems = slices.Concat(c.overlay.Problems(), g.Problems)
	if silence != "" {
		s.Problems = append(s.Problems, silence)
	}
	for _, p := range g.Wanted.Peers {
		for _, why := range p.Problems {
			s.Problems = append(s.Problems, fmt.Sprintf("%s: %s", cmp.Or(p.Name, p.Address.String()), why))
		}
	}
	return s
}

// withSilence is a problem, and the silence that it may come from.
func withSilence(silence, problem string) string {
	if silence == "" {
		return problem
	}
	return silence + "; " + problem
}

// Nodes are the others of the cluster.
func (a *Agent) Nodes() (out []NodeStatus, err error) {
	c := a.core
	err = c.read(func() error {
		g := c.goal
		if !g.Desired.Process.Overlay.IsSet() {
			return ErrNoCluster
		}
		named := map[string]bool{}
		for _, n := range g.Nodes() {
			named[n.Name] = true
		}
		for _, p := range g.Wanted.Peers {
			s := NodeStatus{Node: p.Node, Origin: config.OverlayBGP, Problems: p.Problems, State: "ready"}
			if p.Name != "" && named[p.Name] {
				s.Origin = g.Desired.Process.Overlay.Mode
			}
			s.Policies, s.State = c.policiesTo(p)
			out = append(out, s)
		}
		return nil
	})
	return out, err
}

// policiesTo are the policies to a node, and why one of them does not lead there.
func (c *core) policiesTo(p overlay.Peer) (names []string, state string) {
	used := map[string]bool{}
	for _, s := range c.goal.Wanted.Steering {
		used[s.Policy] = true
	}
	state = "ready"
	for name, policy := range c.writer.Tables.Policies {
		if policy.Endpoint != p.Address || !used[name] {
			continue
		}
		names = append(names, name)
		verdicts := c.writer.Tables.Verdicts[name]
		if !slices.ContainsFunc(verdicts, func(v srpolicy.Verdict) bool { return v.Valid }) {
			state = "no path to it"
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
