package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// read calls f while nothing changes.
func (a *Agent) read(f func() error) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if err := a.isReady(); err != nil {
		return err
	}
	return f()
}

// each calls f for every resource that holds a T, in the order of the
// configuration.
func each[T any](d *desired, f func(resource, T) error) error {
	for r := range d.all() {
		if v, ok := r.value.(T); ok {
			if err := f(r, v); err != nil {
				return fmt.Errorf("%s: %w", r.Ref, err)
			}
		}
	}
	return nil
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
	s := Status{Interfaces: interfaces, Outcomes: outcomes}
	err = a.read(func() error {
		s.Version, s.Started, s.DataPath, s.PinPath = a.options.Version, a.started, a.dp.Build(), a.options.PinPath
		s.Resources = map[Kind]int{}
		for _, kind := range kinds {
			s.Resources[kind] = 0
		}
		for r := range a.desired.all() {
			s.Resources[r.Kind]++
		}
		s.UPF, s.Overlay = a.upf.status(), a.overlayStatus()
		return nil
	})
	if s.Overlay != nil {
		s.Overlay.BGPSessions, s.Overlay.BGPEstablished = a.bgpSessions()
	}
	return s, err
}

// Interfaces are those of the configuration, as they are.
func (a *Agent) Interfaces() (out []InterfaceStatus, err error) {
	err = a.read(func() error {
		return each(a.desired, func(r resource, v config.Interface) error {
			s := InterfaceStatus{Interface: v}
			l, there := a.links.Link(v.Name)
			mode, attached := a.modes[v.Name]
			failure := a.failures[r.Ref]
			switch {
			case !there:
				s.Attached = "not attached: there is no such interface"
			case failure != nil:
				s.Attached = "not attached: " + failure.Error()
			case attached:
				s.Attached = string(mode)
			}
			s.Ifindex, s.MTU = l.Index, l.MTU
			out = append(out, s)
			return nil
		})
	})
	return out, err
}

// Locators are the node's, with how many SIDs are in each.
func (a *Agent) Locators() (out []LocatorStatus, err error) {
	err = a.read(func() error {
		return each(a.desired, func(r resource, v config.Locator) error {
			s := LocatorStatus{Locator: v, Origin: r.origin}
			for _, sid := range a.tables.sids {
				if v.Prefix.Contains(sid.SID.Addr()) && sid.SID.Bits() >= v.Prefix.Bits() {
					s.SIDs++
				}
			}
			out = append(out, s)
			return nil
		})
	})
	return out, err
}

// SIDs are the local SIDs with their counters.
func (a *Agent) SIDs() (out []SIDStatus, err error) {
	err = a.read(func() error {
		return each(a.desired, func(r resource, v srv6.LocalSID) error {
			c, err := a.dp.SIDCounter(v.SID)
			out = append(out, SIDStatus{LocalSID: v, Origin: r.origin, Counter: Counter(c), NextHop: a.sidNextHop(v)})
			return err
		})
	})
	return out, err
}

// sidNextHop says how the SID's adjacency is resolved; it is empty for those
// that have none.
func (a *Agent) sidNextHop(v srv6.LocalSID) string {
	if !v.NextHop.IsValid() && v.Interface == "" {
		return ""
	}
	return resolve(a.links, dataplane.AdjacencyKey{NextHop: v.NextHop, Interface: v.Interface}).state()
}

// Policies are the SR policies, with what each segment list carried.
func (a *Agent) Policies() (out []PolicyStatus, err error) {
	err = a.read(func() error {
		return each(a.desired, func(r resource, v srpolicy.Policy) error {
			s := PolicyStatus{Policy: v, Origin: r.origin, Lists: []Counter{}, Paths: a.tables.verdicts[v.Name]}
			s.SegmentLists = a.tables.policies[v.Name].SegmentLists
			lists, err := a.dp.ListCounters(v.Name)
			for _, c := range lists {
				s.Lists = append(s.Lists, Counter(c))
				s.Counter.Packets += c.Packets
				s.Counter.Bytes += c.Bytes
			}
			out = append(out, s)
			return err
		})
	})
	return out, err
}

// CandidatePaths are those beside the policies' own segment lists.
func (a *Agent) CandidatePaths() (out []CandidatePathStatus, err error) {
	err = a.read(func() error {
		return each(a.desired, func(r resource, v srpolicy.CandidatePath) error {
			s := CandidatePathStatus{CandidatePath: v, Origin: r.origin}
			verdicts := a.tables.verdicts[v.Policy]
			if i := slices.IndexFunc(verdicts, func(d srpolicy.Verdict) bool { return d.Path == v.Name }); i >= 0 {
				s.Verdict = verdicts[i]
			}
			out = append(out, s)
			return nil
		})
	})
	return out, err
}

// Steerings are the steering entries.
func (a *Agent) Steerings() (out []SteeringStatus, err error) {
	err = a.read(func() error {
		return each(a.desired, func(r resource, v srpolicy.Steering) error {
			out = append(out, SteeringStatus{Steering: v, Origin: r.origin})
			return nil
		})
	})
	return out, err
}

// Tunnels are the GTP-U tunnels with their counters.
func (a *Agent) Tunnels() (out []TunnelStatus, err error) {
	err = a.read(func() error {
		return each(a.desired, func(r resource, v gtpu.Tunnel) error {
			received, sent, err := a.dp.TunnelCounters(v.Name)
			out = append(out, TunnelStatus{Tunnel: v, Origin: r.origin, Received: Counter(received), Sent: Counter(sent)})
			return err
		})
	})
	return out, err
}

// Adjacencies are the next hops that the tables refer to.
func (a *Agent) Adjacencies() (out []AdjacencyStatus, err error) {
	err = a.read(func() error {
		for key, h := range a.network.hops {
			s := AdjacencyStatus{Key: netdev.Key(key).String(), State: h.state()}
			if h.next != nil {
				l, _ := a.links.LinkByIndex(h.next.Ifindex)
				s.Interface, s.MTU = l.Name, h.next.MTU
				for _, v := range h.next.VLANs {
					s.VLANs = append(s.VLANs, int(v.ID))
				}
				if h.next.Dst != nil {
					s.MAC = h.next.Dst.String()
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
	err = a.read(func() error {
		counters, err := a.dp.Outcomes()
		if err != nil {
			return fmt.Errorf("outcomes: %w", err)
		}
		for i, reason := range dataplane.Reasons() {
			if i < len(counters) {
				out = append(out, Outcome{Reason: reason.String(), Drop: reason.Drop(), Text: reason.Text(), Counter: Counter(counters[i])})
			}
		}
		return nil
	})
	return out, err
}
