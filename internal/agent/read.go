package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// read calls f while nothing changes.
func (c *core) read(f func() error) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.isReady(); err != nil {
		return err
	}
	return f()
}

// each is a list of what f makes of every resource that holds a V, in the order of
// the configuration.
func each[V, S any](c *core, f func(desired.Resource, V) (S, error)) (out []S, err error) {
	err = c.read(func() error {
		for r := range c.goal.All() {
			v, ok := r.Value.(V)
			if !ok {
				continue
			}
			s, err := f(r, v)
			if err != nil {
				return fmt.Errorf("%s: %w", r.Ref, err)
			}
			out = append(out, s)
		}
		return nil
	})
	return out, err
}

// Status is the daemon at a glance.
func (a *Agent) Status() (Status, error) {
	interfaces, err := a.Interfaces()
	if err != nil {
		return Status{}, err
	}
	outcomes, err := a.Outcomes()
	if err != nil {
		return Status{}, err
	}
	c := a.core
	s := Status{Interfaces: interfaces, Outcomes: outcomes, Resources: map[Kind]int{}}
	err = c.read(func() error {
		s.Version, s.Started, s.DataPath, s.PinPath = a.options.Version, a.started, c.dp.Build(), a.options.PinPath
		for _, kind := range desired.Kinds {
			s.Resources[kind] = 0
		}
		for r := range c.goal.All() {
			s.Resources[r.Kind]++
		}
		s.UPF, s.Overlay = c.upf.status(), c.overlayStatus(a.sources.Problem())
		return nil
	})
	if s.Overlay != nil {
		peers, _ := a.BGPPeers() // none: the node speaks no BGP, or no more
		s.Overlay.BGPSessions = len(peers)
		for _, p := range peers {
			if p.State == "established" {
				s.Overlay.BGPEstablished++
			}
		}
	}
	return s, err
}

// Interfaces are those of the configuration, as they are.
func (a *Agent) Interfaces() ([]InterfaceStatus, error) {
	return each(a.core, func(r desired.Resource, v config.Interface) (InterfaceStatus, error) {
		l, there := a.core.links.Link(v.Name)
		s := InterfaceStatus{Interface: v, Ifindex: l.Index, MTU: l.MTU}
		mode, attached := a.core.writer.Modes[v.Name]
		failure := a.core.writer.Failures[r.Ref]
		switch {
		case !there:
			s.Attached = "not attached: there is no such interface"
		case failure != nil:
			s.Attached = "not attached: " + failure.Error()
		case attached:
			s.Attached = string(mode)
		}
		return s, nil
	})
}

// Locators are the node's, with the number of SIDs in each.
func (a *Agent) Locators() ([]LocatorStatus, error) {
	return each(a.core, func(r desired.Resource, v config.Locator) (LocatorStatus, error) {
		s := LocatorStatus{Locator: v, Origin: r.Origin}
		for _, sid := range a.core.writer.Tables.SIDs {
			if v.Prefix.Contains(sid.SID.Addr()) && sid.SID.Bits() >= v.Prefix.Bits() {
				s.SIDs++
			}
		}
		return s, nil
	})
}

// SIDs are the local SIDs with their counters.
func (a *Agent) SIDs() ([]SIDStatus, error) {
	return each(a.core, func(r desired.Resource, v srv6.LocalSID) (SIDStatus, error) {
		n, err := a.core.dp.Counters.SIDCounter(v.SID)
		s := SIDStatus{LocalSID: v, Origin: r.Origin, Counter: Counter(n)}
		if v.NextHop.IsValid() || v.Interface != "" {
			s.NextHop = apply.Resolve(a.core.links, dataplane.AdjacencyKey{NextHop: v.NextHop, Interface: v.Interface}).State()
		}
		return s, err
	})
}

// Policies are the SR policies, with what each segment list carried.
func (a *Agent) Policies() ([]PolicyStatus, error) {
	return each(a.core, func(r desired.Resource, v srpolicy.Policy) (PolicyStatus, error) {
		t := a.core.writer.Tables
		s := PolicyStatus{Policy: v, Origin: r.Origin, Lists: []Counter{}, Paths: t.Verdicts[v.Name]}
		s.SegmentLists = t.Policies[v.Name].SegmentLists
		lists, err := a.core.dp.Counters.ListCounters(v.Name)
		for _, c := range lists {
			s.Lists = append(s.Lists, Counter(c))
			s.Counter.Packets += c.Packets
			s.Counter.Bytes += c.Bytes
		}
		return s, err
	})
}

// CandidatePaths are those beside the policies' own segment lists.
func (a *Agent) CandidatePaths() ([]CandidatePathStatus, error) {
	return each(a.core, func(r desired.Resource, v srpolicy.CandidatePath) (CandidatePathStatus, error) {
		s := CandidatePathStatus{CandidatePath: v, Origin: r.Origin}
		verdicts := a.core.writer.Tables.Verdicts[v.Policy]
		if i := slices.IndexFunc(verdicts, func(d srpolicy.Verdict) bool { return d.Path == v.Name }); i >= 0 {
			s.Verdict = verdicts[i]
		}
		return s, nil
	})
}

// Steerings are the steering entries.
func (a *Agent) Steerings() ([]SteeringStatus, error) {
	return each(a.core, func(r desired.Resource, v srpolicy.Steering) (SteeringStatus, error) {
		return SteeringStatus{Steering: v, Origin: r.Origin}, nil
	})
}

// Tunnels are the GTP-U tunnels with their counters.
func (a *Agent) Tunnels() ([]TunnelStatus, error) {
	return each(a.core, func(r desired.Resource, v gtpu.Tunnel) (TunnelStatus, error) {
		received, sent, err := a.core.dp.Counters.TunnelCounters(v.Name)
		return TunnelStatus{Tunnel: v, Origin: r.Origin, Received: Counter(received), Sent: Counter(sent)}, err
	})
}

// Adjacencies are the next hops that the tables refer to.
func (a *Agent) Adjacencies() (out []AdjacencyStatus, err error) {
	err = a.core.read(func() error {
		for key, h := range a.core.network.Hops() {
			s := AdjacencyStatus{Key: netdev.Key(key).String(), State: h.State()}
			if h.Next != nil {
				l, _ := a.core.links.LinkByIndex(h.Next.Ifindex)
				s.Interface, s.MTU = l.Name, h.Next.MTU
				for _, v := range h.Next.VLANs {
					s.VLANs = append(s.VLANs, int(v.ID))
				}
				if h.Next.Dst != nil {
					s.MAC = h.Next.Dst.String()
				}
			}
			out = append(out, s)
		}
		slices.SortFunc(out, func(x, y AdjacencyStatus) int { return strings.Compare(x.Key, y.Key) })
		return nil
	})
	return out, err
}

// Outcomes are how packets' journeys ended, in the order of the reasons'
// numbers.
func (a *Agent) Outcomes() (out []Outcome, err error) {
	err = a.core.read(func() error {
		counters, err := a.core.dp.Counters.Outcomes()
		if err != nil {
			return fmt.Errorf("outcomes: %w", err)
		}
		for i, reason := range reason.All() {
			if i < len(counters) {
				out = append(out, Outcome{Reason: reason.String(), Drop: reason.Drop(), Text: reason.Text(), Counter: Counter(counters[i])})
			}
		}
		return nil
	})
	return out, err
}

// BGPPeers are the node's BGP sessions.
func (a *Agent) BGPPeers() ([]BGPPeerStatus, error) {
	if err := a.core.isReady(); err != nil {
		return nil, err
	}
	h := a.sources.BGP()
	if h == nil {
		return nil, ErrNotBGP
	}
	peers, err := h.Peers(context.Background())
	if err != nil {
		return nil, err
	}
	out := make([]BGPPeerStatus, len(peers))
	for i, p := range peers {
		out[i] = BGPPeerStatus{Address: p.Address, ASN: p.ASN, RouterID: p.RouterID, State: p.State, Reason: p.Reason,
			Since: p.Since, Received: int(p.Received)}
	}
	return out, nil
}
