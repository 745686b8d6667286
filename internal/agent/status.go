package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/agent/punt"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/slice"
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
	s := Status{Interfaces: interfaces, Outcomes: outcomes, Resources: map[desired.Kind]int{}}
	err = c.read(func() error {
		s.Version, s.Started, s.DataPath, s.PinPath = a.options.Version, a.started, c.dp.Build(), a.options.PinPath
		s.Injected = c.dp.Counters.Injected()
		for _, kind := range desired.Kinds {
			s.Resources[kind] = 0
		}
		for r := range c.goal.All() {
			s.Resources[r.Kind]++
		}
		s.UPF, s.Overlay = c.upf.status(), c.overlayStatus(a.sources.Problem())
		if s.Overlay != nil {
			for _, o := range a.sources.Refused() {
				s.Overlay.Problems = append(s.Overlay.Problems, ProblemRefused+o)
			}
		}
		if s.UPF != nil {
			s.UPF.Slices = sliceNames(c.goal)
		}
		s.Spread = c.spread.status(c.writer.Tables.Spread.By)
		s.Problems = c.problems()
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

// mostProblems of a sort are listed: of a table that is full each entry fails.
const mostProblems = 5

// problems are what keeps the data path from the desired state. The caller holds the lock.
func (c *core) problems() (out []string) {
	refs := slices.SortedFunc(maps.Keys(c.writer.Failures), func(a, b desired.Ref) int { return cmp.Compare(a.String(), b.String()) })
	for _, ref := range refs[:min(len(refs), mostProblems)] {
		out = append(out, fmt.Sprintf("%s: %v; it is tried again", ref, c.writer.Failures[ref]))
	}
	if more := len(refs) - mostProblems; more > 0 {
		out = append(out, fmt.Sprintf("and %d more resources", more))
	}
	if n, first := c.network.Failures(); n > 0 {
		out = append(out, fmt.Sprintf("%d routes, addresses or next hops of the kernel are not in the data path, and are tried again; the first: %s", n, first))
	}
	if err := c.dp.Counters.LossError(); err != nil {
		out = append(out, fmt.Sprintf("what interfaces fail to send is not counted: %v", err))
	}
	if missing := c.dp.missingPins(); missing != "" {
		out = append(out, missing)
	}
	return out
}

// missingPins says that somebody has removed pins; empty: nobody has.
func (dp *dataPath) missingPins() string {
	if dp == nil || dp.MissingPins == nil {
		return ""
	}
	pins := dp.MissingPins()
	if len(pins) == 0 {
		return ""
	}
	return fmt.Sprintf("%d pins are gone, such as %s: forwarding would end with the daemon; restart culvert while it runs", len(pins), pins[0])
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

// SIDs are the local SIDs with their counters, those of slices last.
func (a *Agent) SIDs() ([]SIDStatus, error) {
	out, err := each(a.core, func(r desired.Resource, v srv6.LocalSID) (SIDStatus, error) {
		n, err := a.core.dp.Counters.SID(v.SID)
		s := SIDStatus{LocalSID: v, Origin: r.Origin, Counter: n}
		if v.NextHop.IsValid() || v.Interface != "" {
			s.NextHop = apply.Resolve(a.core.links, adjacency.Key{NextHop: v.NextHop, Interface: v.Interface}).State(a.core.goal.Desired.Process.Overlay.IsSet())
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	ofSlices, err := each(a.core, func(r desired.Resource, v slice.Slice) (list []SIDStatus, err error) {
		for _, sid := range v.SIDs() {
			s := SIDStatus{LocalSID: srv6.LocalSID{SID: sid, Behavior: srv6.EndDT46}, Slice: v.Name, Origin: r.Origin}
			if s.Counter, err = a.core.dp.Counters.SID(sid); err != nil {
				return nil, err
			}
			list = append(list, s)
		}
		return list, nil
	})
	return append(out, slices.Concat(ofSlices...)...), err
}

// Policies are the SR policies, with what each segment list carried.
func (a *Agent) Policies() ([]PolicyStatus, error) {
	delays := a.core.probing.delays()
	delay := func(l srpolicy.SegmentList) Delay {
		d := delays[l.Key()]
		return Delay{uint64(d.Minimum.Microseconds()), uint64(d.Mean.Microseconds()), uint64(d.P99.Microseconds())}
	}
	return each(a.core, func(r desired.Resource, v srpolicy.Policy) (PolicyStatus, error) {
		now := a.core.writer.Tables.Policies[v.Name]
		s := PolicyStatus{Policy: v, Origin: r.Origin, Paths: a.core.writer.Tables.Verdicts[v.Name]}
		s.SegmentLists = now.SegmentLists
		lists, all, err := a.core.dp.Counters.Lists(v.Name)
		n := min(len(s.SegmentLists), len(lists))
		s.Lists, s.Counter, s.Down = append([]Counter{}, lists[:n]...), all, now.Down[:min(len(s.SegmentLists), len(now.Down))]
		s.Slow = now.Slow[:min(len(s.SegmentLists), len(now.Slow))]
		for _, l := range s.SegmentLists {
			if delays != nil {
				s.Delays = append(s.Delays, delay(l))
			}
			s.PathMTUs = append(s.PathMTUs, pathMTU(a.punts, l.Segments...))
		}
		if !slices.ContainsFunc(s.PathMTUs, func(p PathMTU) bool { return p.MTU != 0 }) {
			s.PathMTUs = nil
		}
		for i, l := range now.Protection {
			at := len(s.SegmentLists) + i
			ready := ProtectionList{SegmentList: l, Down: now.DownAt(at), Slow: now.SlowAt(at), Delay: delay(l), PathMTU: pathMTU(a.punts, l.Segments...)}
			if n+i < len(lists) {
				ready.Counter = lists[n+i]
			}
			s.Protection = append(s.Protection, ready)
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
	var vpns map[uint8]string // slices, by the numbers of their VPNs
	return each(a.core, func(r desired.Resource, v srpolicy.Steering) (SteeringStatus, error) {
		if v.Tenant != 0 && vpns == nil {
			vpns = map[uint8]string{}
			for name, number := range slice.VPNNumbers(a.core.goal.Slices()) {
				vpns[number] = name
			}
		}
		return SteeringStatus{Steering: v, Origin: r.Origin, VPN: vpns[v.Tenant], Problem: a.core.writer.Tables.Unreached(v)}, nil
	})
}

// Tunnels are the GTP-U tunnels with their counters.
func (a *Agent) Tunnels() ([]TunnelStatus, error) {
	return each(a.core, func(r desired.Resource, v gtpu.Tunnel) (TunnelStatus, error) {
		received, sent, err := a.core.dp.Counters.Tunnel(v.Name)
		return TunnelStatus{Tunnel: v, Origin: r.Origin, Received: received, Sent: sent, PathMTU: pathMTU(a.punts, v.Remote)}, err
	})
}

// pathMTU is what routers said of a path.
func pathMTU(punts *punt.Handler, ends ...netip.Addr) PathMTU {
	if punts == nil {
		return PathMTU{}
	}
	m := punts.PathMTU(ends...)
	return PathMTU{MTU: uint32(m.MTU), Age: uint32(m.Age.Seconds())}
}

// Adjacencies are the next hops that the tables refer to.
func (a *Agent) Adjacencies() (out []AdjacencyStatus, err error) {
	err = a.core.read(func() error {
		for key, h := range a.core.network.Hops() {
			s := AdjacencyStatus{Key: apply.KeyName(key), State: h.State(a.core.goal.Desired.Process.Overlay.IsSet()), Interface: h.Interfaces()}
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
// numbers. A UPF adds what it drops itself.
func (a *Agent) Outcomes() (out []Outcome, err error) {
	err = a.core.read(func() error {
		counters, err := a.core.dp.Counters.Outcomes()
		if err != nil {
			return fmt.Errorf("outcomes: %w", err)
		}
		u := a.core.upf
		for i, r := range reason.All() {
			if i < len(counters) {
				o := Outcome{Reason: r.String(), Drop: r.Drop(), Text: r.Text(), Counter: counters[i]}
				if u.server != nil && r == reason.BufferFull {
					o.Add(u.bufferFull())
				}
				out = append(out, o)
			}
		}
		if u.server != nil {
			out = append(out, u.rateLimited())
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
	return h.Peers(context.Background())
}

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
	// Isolated are pods that NetworkPolicies select. Closed are those that the Kubernetes API
	// has not reported: they reach this node only.
	Isolated int `json:"isolated,omitempty"`
	Closed   int `json:"closed,omitempty"`
	// BGP sessions that there are to be, and those that are established.
	BGPSessions    int `json:"bgp_sessions,omitempty"`
	BGPEstablished int `json:"bgp_established,omitempty"`
}

// How problems in OverlayStatus begin.
const (
	ProblemOthers  = "other nodes " // of what the others do not use of this node
	ProblemRefused = "refused: "    // of objects of the Kubernetes API
)

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
		Mode: g.Desired.Process.Overlay.Mode, MTU: c.overlay.MTU(), Pods: len(c.pods.List()), Nodes: len(g.Wanted.Peers),
	}
	problems := c.policing.isolationStatus(s)
	s.Problems = problems
	if g.Self.Name == "" {
		s.Problem = withSilence(silence, strings.Join(c.overlay.Problems(), "; "))
		return s
	}
	s.Self = g.Self.Node()
	for _, sid := range g.Self.SIDs() {
		s.SIDs = append(s.SIDs, fmt.Sprintf("%s %s", sid.SID, sid.Behavior))
	}
	s.Uplinks = c.overlay.UplinkNames()
	s.Problems = slices.Concat(c.overlay.Problems(), c.uplinkProblems(s.Uplinks), g.Problems, roomProblems(c.pods), problems)
	if silence != "" {
		s.Problems = append(s.Problems, silence)
	}
	s.Problems = append(s.Problems, unvouched(g)...)
	for _, p := range g.Wanted.Peers {
		for _, why := range p.Problems {
			s.Problems = append(s.Problems, fmt.Sprintf("%s: %s", cmp.Or(p.Name, p.Address.String()), why))
		}
	}
	return s
}

// unvouched says what of this node the others do not use, because Kubernetes does not vouch
// for it.
func unvouched(g *plan.Goal) (problems []string) {
	o := &g.Desired.Process.Overlay
	if o.Mode != config.OverlayKube || g.Observed.Self.UID == "" {
		return nil
	}
	k := &g.Observed.Self
	self := g.Self.Node()
	self.Former = netip.Addr{} // they knew it
	n := overlay.Vouch(self, overlay.Vouched{
		Addresses: k.Addresses, PodCIDRs: k.PodCIDRs, Pool: o.LocatorPool, Locator: k.Locator, Holder: func(netip.Prefix) string { return "" },
	}, o.Accept)
	for _, why := range n.Faults {
		problems = append(problems, ProblemOthers+"do not use what this node says of itself: "+why)
	}
	if n.Refused != "" {
		problems = []string{ProblemOthers + "refuse this node: " + n.Refused}
	}
	return problems
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
			return pods.ErrNoCluster
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
	if p.Unused {
		return nil, strings.Join(p.Problems, "; ")
	}
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

// Gauges are the figures that only metrics show.
type Gauges struct {
	Version   string // of the program
	DataPath  string // hash of the loaded build; "": Run is not ready, and nothing else is set
	Failures  int    // what is tried again
	Tables    map[string]table.Usage
	Resources map[Owned]int
	Modes     map[string]string // of the configuration's interfaces; "": not attached
	Up        map[string]int    // 1 if such an interface, or an uplink, is up and has a carrier, 0 if not
	Lost      map[string]uint64 // frames not sent, by interface: the configuration's, and others that lost some
	Closed    map[string]string // of the configuration's interfaces that are closed: how
	ClosedFor map[string]uint64 // frames that came by closed interfaces, by outcome
	Hops      map[string]int    // adjacencies by state
	SlowPath  map[string]uint64 // events
	Injected  uint64            // frames that the daemon sent through the data path
	Paths     int               // candidate paths that others advertise
	Disputed  int               // nodes that say of themselves what is not used
	UPF       *UPFGauges        // of a node that is one
	Spread    *SpreadStatus     // where packets are spread over CPUs
	// NetworkPolicies is of a node that enforces them.
	NetworkPolicies *isolation.Status
	Isolated        []IsolatedPod
	Flows           *FlowGauges // of a node that records them
}

// Owned is what resources are counted by.
type Owned struct {
	Kind   desired.Kind
	Origin desired.Origin
}

// UPFGauges are those of a user plane function.
type UPFGauges struct {
	Events        map[string]uint64
	BufferedBytes int64
	PFCP          pfcp.Stats
	N4Fast        n4.Counts // zero where the data path answers nothing
	// Withdrawals counts how often BGP withdrew UE prefixes, by network instance.
	Withdrawals map[string]uint64
}

// Gauges reads them. Before Run is ready there is the version only.
func (a *Agent) Gauges() Gauges {
	g := Gauges{Version: a.options.Version}
	c := a.core
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.isReady() != nil {
		return g
	}
	if s := c.policing.keeper.Status(); s.Enforced {
		g.NetworkPolicies, g.Isolated = &s, c.policing.isolated()
	}
	g.Flows = c.flows.gauges()
	g.Spread = c.spread.status(c.writer.Tables.Spread.By)
	ofKernel, _ := c.network.Failures()
	g.DataPath, g.Failures, g.Tables = c.dp.Build(), len(c.writer.Failures)+ofKernel, c.dp.Counters.Usage()
	g.SlowPath, g.Paths = a.punts.Counters(), len(c.goal.Observed.Paths)
	if w := c.goal.Wanted; w != nil {
		for _, p := range w.Peers {
			if len(p.Problems) > 0 {
				g.Disputed++
			}
		}
	}
	g.Resources, g.Modes = map[Owned]int{}, map[string]string{}
	for _, kind := range desired.Kinds {
		g.Resources[Owned{kind, desired.OriginFile}], g.Resources[Owned{kind, desired.OriginAPI}] = 0, 0
	}
	for r := range c.goal.All() {
		g.Resources[Owned{r.Kind, r.Origin}]++
		if v, ok := r.Value.(config.Interface); ok {
			g.Modes[v.Name] = string(c.writer.Modes[v.Name])
		}
	}
	g.Lost, g.Injected = c.lost(g.Modes), c.dp.Counters.Injected()
	g.Closed, g.ClosedFor = c.closed(g.Modes)
	g.Up = c.up(g.Modes)
	g.Hops = map[string]int{"ready": 0, "kernel": 0, "not_ready": 0}
	for _, h := range c.network.Hops() {
		switch {
		case h.IsShared():
			g.Hops["ready"]++
		case h.Next == nil:
			g.Hops["not_ready"]++
		case h.Next.Pass:
			g.Hops["kernel"]++
		default:
			g.Hops["ready"]++
		}
	}
	if u := c.upf; u.server != nil {
		stats := u.upf.Stats()
		g.UPF = &UPFGauges{Events: maps.Collect(stats.All()), BufferedBytes: stats.BufferedBytes.Load(), PFCP: u.server.Stats(), Withdrawals: c.announcing.withdrawn()}
		if answered := u.answered(); answered != nil {
			g.UPF.N4Fast = *answered
		}
	}
	return g
}
