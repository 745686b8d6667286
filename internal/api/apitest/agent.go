// Package apitest is an agent without a data path, for tests of the management
// API and of the command line.
package apitest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Started is when every Agent was started.
var Started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Agent keeps the desired state. What it counted is made up from the position
// of a resource, so that tests see which number ends where.
type Agent struct {
	mu    sync.Mutex
	state desired.State

	// Events are what a trace sends, before it waits for its end.
	Events []agent.TraceEvent
	// PodFlows are what the agent has recorded; nil: it records none.
	PodFlows []flow.Flow
	// Filters are the traces that were asked for.
	Filters chan agent.TraceFilter
	// Readiness is of pods.
	Readiness pods.Readiness
	pods      []pods.Status
	// Links are the states of interfaces' links; the others are up.
	Links map[string]agent.LinkState
	// Err, if set, is what every method fails with.
	Err error
}

var _ agent.Service = (*Agent)(nil)

// New is an agent that runs what c says.
func New(c *config.Config) *Agent {
	return &Agent{state: desired.State{}.WithFile(desired.Completed(c)), Filters: make(chan agent.TraceFilter, 16)}
}

func counted(kind uint64, i int) agent.Counter {
	n := kind*100 + uint64(i) + 1
	return agent.Counter{Packets: n, Bytes: 1000 * n}
}

// resources are the file's and then the API's.
func resources(s desired.State) []desired.Resource { return slices.Concat(s.File, s.API) }

// each is a list of what f makes of every resource that holds a V, the i-th of these.
func each[V, S any](a *Agent, f func(i int, v V, origin desired.Origin) S) ([]S, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return nil, a.Err
	}
	out := []S{}
	for _, r := range resources(a.state) {
		if v, ok := r.Value.(V); ok {
			out = append(out, f(len(out), v, r.Origin))
		}
	}
	return out, nil
}

// fixed is a list that is always the same, or the error.
func fixed[T any](a *Agent, list ...T) ([]T, error) {
	if a.Err != nil {
		return nil, a.Err
	}
	return list, nil
}

// Running implements agent.Service, as do all the methods that follow.
func (a *Agent) Running() *config.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.state.Config()
	c.SetDefaults()
	return c
}

// Status returns the status that the test set.
func (a *Agent) Status() (agent.Status, error) {
	interfaces, err := a.Interfaces()
	if err != nil {
		return agent.Status{}, err
	}
	outcomes, err := a.Outcomes()
	c := a.Running()
	var upf *agent.UPFStatus
	if c.UPF.IsSet() {
		upf = &agent.UPFStatus{
			N4: c.UPF.N4, NodeID: "upf1.example.net", AssociationsUp: 1, Slices: []string{"a", "b"},
			Sessions: 2, MaxSessions: int(c.Limits.Sessions), Associations: 2, Buffered: 3, Journal: "the disk of the session journal is full",
			Pools: []agent.PoolStatus{{NetworkInstance: "internet", Prefix: netip.MustParsePrefix("10.45.0.0/16"), Used: 2, Size: 65534}},
			Peers: []agent.PeerStatus{{Addr: netip.MustParseAddr("192.0.2.100"), Tunnels: 2}, {Addr: netip.MustParseAddr("192.0.2.101"), Tunnels: 1, Down: true}},
		}
	}
	return agent.Status{
		UPF:     upf,
		Spread:  spreadStatus(c),
		Overlay: overlayStatus(c),
		Version: "v1.2.3", Started: Started, DataPath: "0123abcd", PinPath: "/sys/fs/bpf/culvert",
		Interfaces: interfaces, Outcomes: outcomes, Injected: 5,
		Resources: map[desired.Kind]int{
			desired.KindInterface: len(c.Interfaces), desired.KindLocator: len(c.Locators), desired.KindSID: len(c.SIDs),
			desired.KindPolicy: len(c.Policies), desired.KindSteering: len(c.Steering), desired.KindClass: len(c.TrafficClasses), desired.KindTunnel: len(c.Tunnels), desired.KindSlice: len(c.Slices),
		},
	}, err
}

func spreadStatus(c *config.Config) *agent.SpreadStatus {
	if !c.Spread.IsSet() {
		return nil
	}
	if c.Spread.Method == config.SpreadCard {
		return &agent.SpreadStatus{By: c.Spread.By, Cards: []string{"n3", "n6"}}
	}
	return &agent.SpreadStatus{
		By: c.Spread.By, Split: 1, Moves: 7, Lost: 2, Problem: "packets may be lost while the machine is busy: no permission",
		CPUs: []agent.CPUStatus{
			{CPU: 2, Rate: 1000, Share: 0.333, Load: 0.12, Buckets: 512, Moves: 3, Packets: 99, Queued: 3},
			{CPU: 3, Rate: 2000, Share: 0.667, Load: 0.98, Buckets: 511, Moves: 4, Packets: 98, Full: 4},
		},
		Busiest: []agent.BucketStatus{{Bucket: 17, CPU: -1, Rate: 1500, Packets: 70, Moves: 5}, {Bucket: 1, CPU: 2, Rate: 20, Packets: 10}},
		Moved:   []agent.BucketStatus{{Bucket: 17, CPU: -1, Rate: 1500, Packets: 70, Moves: 5}, {Bucket: 900, CPU: 3, Packets: 1, Moves: 2}},
	}
}

// Interfaces lists the interfaces of the configuration.
func (a *Agent) Interfaces() ([]agent.InterfaceStatus, error) {
	return each(a, func(i int, v config.Interface, _ desired.Origin) agent.InterfaceStatus {
		return agent.InterfaceStatus{Interface: v, Ifindex: i + 2, Attached: "native", MTU: 1500, Link: cmp.Or(a.Links[v.Name], "up")}
	})
}

// Locators lists the locators of the configuration.
func (a *Agent) Locators() ([]agent.LocatorStatus, error) {
	return each(a, func(_ int, v config.Locator, origin desired.Origin) agent.LocatorStatus {
		s := agent.LocatorStatus{Locator: v, Origin: origin}
		for _, r := range resources(a.state) {
			if sid, ok := r.Value.(srv6.LocalSID); ok && v.Prefix.Overlaps(sid.SID) {
				s.SIDs++
			}
		}
		return s
	})
}

// SIDs lists the SIDs of the configuration.
func (a *Agent) SIDs() ([]agent.SIDStatus, error) {
	return each(a, func(i int, v srv6.LocalSID, origin desired.Origin) agent.SIDStatus {
		s := agent.SIDStatus{LocalSID: v, Origin: origin, Counter: counted(1, i)}
		if v.NextHop.IsValid() {
			s.NextHop = "ready"
		}
		return s
	})
}

// Policies lists the policies of the configuration.
func (a *Agent) Policies() ([]agent.PolicyStatus, error) {
	return each(a, func(i int, v srpolicy.Policy, origin desired.Origin) agent.PolicyStatus {
		s := agent.PolicyStatus{Origin: origin}
		var paths []srpolicy.Candidate
		for _, r := range resources(a.state) {
			if p, ok := r.Value.(srpolicy.CandidatePath); ok && p.Policy == v.Name {
				paths = append(paths, srpolicy.Candidate{CandidatePath: p})
			}
		}
		s.Policy, s.Paths = srpolicy.Choose(v, paths, "", func(srpolicy.SegmentList) error { return nil }, nil)
		for _, l := range s.Policy.Protection {
			s.Protection = append(s.Protection, agent.ProtectionList{SegmentList: l})
		}
		s.Policy.Protection = nil
		for j := range s.SegmentLists {
			s.Lists = append(s.Lists, counted(2, 10*i+j))
			s.Counter.Add(s.Lists[j])
		}
		if len(s.SegmentLists) > 1 {
			s.PathMTUs = []agent.PathMTU{{MTU: 1400, Age: 61}, {}}
		}
		return s
	})
}

func overlayStatus(c *config.Config) *agent.OverlayStatus {
	if !c.Overlay.IsSet() {
		return nil
	}
	n := c.Overlay.Nodes[0]
	self := overlay.Self{Name: n.Name, Address: n.Address, Prefixes: n.Prefixes, Locator: n.Locator}
	return &agent.OverlayStatus{
		Mode: c.Overlay.Mode, Self: self.Node(), SIDs: []string{"fc00:0:1:4::/64 End.DT4", "fc00:0:1:6::/64 End.DT6"}, Uplinks: c.Overlay.Uplinks,
		MTU: 1396, Pods: 2, Nodes: 2, Problems: []string{"node-3: prefix 10.244.2.0/24 is already claimed by node-2"}, NetworkPolicy: "not enforced",
	}
}

// Nodes are those of the configuration but the first.
func (a *Agent) Nodes() ([]agent.NodeStatus, error) {
	o := a.Running().Overlay
	if !o.IsSet() {
		return nil, pods.ErrNoCluster
	}
	var out []agent.NodeStatus
	for _, n := range o.Nodes[1:] {
		s := agent.NodeStatus{Node: overlay.Complete(n, false), Origin: o.Mode, Policies: []string{n.Name + ":ipv4"}, State: "ready"}
		if len(n.Prefixes) == 1 {
			s.Problems = []string{"prefix 10.244.2.0/24 is already claimed by node-2"}
		}
		out = append(out, s)
	}
	return fixed(a, out...)
}

// BGPPeers are two, of a configuration that has bgp.
func (a *Agent) BGPPeers() ([]agent.BGPPeerStatus, error) {
	if !a.Running().BGP.IsSet() {
		return nil, agent.ErrNotBGP
	}
	return fixed(a,
		agent.BGPPeerStatus{Address: netip.MustParseAddr("2001:db8::9"), ASN: 65001, RouterID: netip.MustParseAddr("10.0.0.9"), State: "established", Since: 90 * time.Second, Received: 2},
		agent.BGPPeerStatus{Address: netip.MustParseAddr("192.0.2.9"), ASN: 65002, State: "active", Reason: "hold timer expired"})
}

// CandidatePaths lists the candidate paths of the configuration.
func (a *Agent) CandidatePaths() ([]agent.CandidatePathStatus, error) {
	policies, err := a.Policies()
	if err != nil {
		return nil, err
	}
	return each(a, func(_ int, v srpolicy.CandidatePath, origin desired.Origin) agent.CandidatePathStatus {
		s := agent.CandidatePathStatus{CandidatePath: v, Origin: origin}
		for _, p := range policies {
			for _, verdict := range p.Paths {
				if p.Name == v.Policy && verdict.Path == v.Name {
					s.Verdict = verdict
				}
			}
		}
		return s
	})
}

// Steerings lists the steering entries of the configuration.
func (a *Agent) Steerings() ([]agent.SteeringStatus, error) {
	return each(a, func(_ int, v srpolicy.Steering, origin desired.Origin) agent.SteeringStatus {
		return agent.SteeringStatus{Steering: v, Origin: origin}
	})
}

// Classes lists the traffic classes of the configuration.
func (a *Agent) Classes() ([]agent.ClassStatus, error) {
	return each(a, func(i int, v class.Class, origin desired.Origin) agent.ClassStatus {
		return agent.ClassStatus{Class: v, Origin: origin, Counter: agent.Counter{Packets: uint64(100 + i), Bytes: uint64(10000 + i)},
			Policies: []string{"gold"}, Without: []netip.Addr{}}
	})
}

// Tunnels lists the tunnels of the configuration.
func (a *Agent) Tunnels() ([]agent.TunnelStatus, error) {
	return each(a, func(i int, v gtpu.Tunnel, origin desired.Origin) agent.TunnelStatus {
		s := agent.TunnelStatus{Tunnel: v, Origin: origin, Received: counted(3, i), Sent: counted(4, i)}
		if v.Remote.IsValid() {
			s.PathMTU = agent.PathMTU{MTU: 1400, Age: 61}
		}
		return s
	})
}

// Adjacencies are always the same.
func (a *Agent) Adjacencies() ([]agent.AdjacencyStatus, error) {
	return fixed(a,
		agent.AdjacencyStatus{Key: "2001:db8:12::2", State: "ready", Interface: "core0", MAC: "02:00:00:00:00:02", VLANs: []int{100, 7}, MTU: 1500},
		agent.AdjacencyStatus{Key: "2001:db8:13::2", State: "no route"},
		agent.AdjacencyStatus{Key: "10.6.0.1 dev n6", State: "by the kernel: n6 is a bridge: the kernel chooses its port", Interface: "n6", MTU: 1500},
		agent.AdjacencyStatus{Key: "10.6.0.9 dev n6", State: "by the kernel: n6 is a bridge: the kernel chooses its port", Interface: "n6", MTU: 1500})
}

// Outcomes are always the same.
func (a *Agent) Outcomes() ([]agent.Outcome, error) {
	return fixed(a,
		agent.Outcome{Reason: "FORWARDED", Text: "sent on", Counter: agent.Counter{Packets: 1 << 60, Bytes: 1<<63 + 1}},
		agent.Outcome{Reason: "PASSED", Text: "left to the kernel", Counter: agent.Counter{Packets: 7, Bytes: 700}},
		agent.Outcome{Reason: "HOP_LIMIT", Drop: true, Text: "hop limit or TTL would become 0", Counter: agent.Counter{Packets: 3, Bytes: 300}},
		agent.Outcome{Reason: "ECN", Drop: true, Text: "congestion on a path that cannot say so"})
}

// change goes to the state that next returns, if its configuration is valid.
func (a *Agent) change(dryRun bool, next func(desired.State) (desired.State, error)) ([]desired.Change, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return nil, a.Err
	}
	to, err := next(a.state)
	if err != nil {
		return nil, err
	}
	c := to.Config()
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", desired.ErrInvalid, err)
	}
	changes, err := desired.Diff(resources(a.state), resources(to), a.state.Process, to.Process)
	if err == nil && !dryRun {
		a.state = to
	}
	return changes, err
}

// Apply replaces the configuration of the file.
func (a *Agent) Apply(_ context.Context, c *config.Config, dryRun bool) ([]desired.Change, error) {
	return a.change(dryRun, func(s desired.State) (desired.State, error) { return s.WithFile(desired.Completed(c)), nil })
}

// Add adds resources of the API.
func (a *Agent) Add(_ context.Context, fragment *config.Config) ([]desired.Change, error) {
	changes, err := a.change(false, func(s desired.State) (desired.State, error) {
		next, _, err := s.WithAPI(desired.Completed(fragment))
		return next, err
	})
	for i := range changes {
		changes[i].Detail = ""
	}
	return changes, err
}

// Delete deletes resources of the API.
func (a *Agent) Delete(_ context.Context, list []desired.Ref) ([]desired.Change, error) {
	var out []desired.Change
	_, err := a.change(false, func(s desired.State) (desired.State, error) {
		for _, ref := range list {
			ref = ref.Normalize()
			if !slices.ContainsFunc(resources(s), func(r desired.Resource) bool { return r.Ref == ref }) {
				return s, fmt.Errorf("%w: there is no %s", desired.ErrNotFound, ref)
			}
			out = append(out, desired.Change{Op: desired.OpDelete, Kind: ref.Kind, Key: ref.Key})
		}
		next, _, err := s.Without(list)
		return next, err
	})
	return out, err
}

// Explain says of each frame what became of the event with the same number.
func (a *Agent) Explain(name string, frames [][]byte) ([]agent.TraceEvent, error) {
	if a.Err != nil {
		return nil, a.Err
	}
	var out []agent.TraceEvent
	for i, frame := range frames {
		e := a.Events[i%len(a.Events)]
		e.Interface, e.In, e.InLength = name, frame, len(frame)
		out = append(out, e)
	}
	return out, nil
}

// Trace sends the events that the test set and the filter means.
func (a *Agent) Trace(ctx context.Context, filter agent.TraceFilter, f func(agent.TraceEvent) error) error {
	if a.Err != nil {
		return a.Err
	}
	a.Filters <- filter
	for _, e := range a.Events {
		wanted := filter
		if e.SID.IsValid() && filter.SID.Overlaps(e.SID) { // a part of the SID means the SID, too
			wanted.SID = netip.Prefix{}
		}
		if !wanted.Matches(e) {
			continue
		}
		if err := f(e); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// GPDU is a frame with a G-PDU to the given TEID: IPv6, UDP, GTP-U with a
// container of QFI 5, and the beginning of an IPv4 packet.
func GPDU(teid uint32) []byte {
	inner := []byte{0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 45, 0, 1, 198, 51, 100, 9, 0xc0, 0, 0, 53, 0, 8, 0, 0}
	message, err := gtpu.AppendGPDU(nil, teid, gtpu.PDUSessionContainer{Type: srv6.ContainerUplink, QFI: 5}, inner)
	if err != nil {
		panic(err) // it is the same every time
	}
	length := byte(8 + len(message))
	frame := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0x00, 0x12, 0x34, 0, length, 17, 64}
	src, dst := netip.MustParseAddr("2001:db8:f::9").As16(), netip.MustParseAddr("2001:db8:f::1").As16()
	frame = append(append(frame, src[:]...), dst[:]...)
	frame = append(frame, 0xc1, 0x23, 0x08, 0x68, 0, length, 0, 0)
	return append(frame, message...)
}
