// Package apitest is an agent without a data path, for tests of the management
// API and of the command line.
package apitest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Started is when every Agent was started.
var Started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Agent keeps what it is told. What it counted is made up from the position
// of a resource, so that tests see which number ends where.
type Agent struct {
	mu   sync.Mutex
	file *config.Config
	api  config.Config

	// Events are what a trace sends, before it waits for its end.
	Events []agent.TraceEvent
	// Filters are the traces that were asked for.
	Filters chan agent.TraceFilter
	// Readiness is of pods.
	Readiness agent.PodReadiness
	pods      []agent.PodStatus
	// Err, if set, is what every method fails with.
	Err error
}

var _ agent.Service = (*Agent)(nil)

// New is an agent that runs what c says.
func New(c *config.Config) *Agent {
	return &Agent{file: c, Filters: make(chan agent.TraceFilter, 16)}
}

func (a *Agent) merged() *config.Config {
	c := *a.file
	c.Interfaces = slices.Concat(a.file.Interfaces, a.api.Interfaces)
	c.Locators = slices.Concat(a.file.Locators, a.api.Locators)
	c.SIDs = slices.Concat(a.file.SIDs, a.api.SIDs)
	c.Policies = slices.Concat(a.file.Policies, a.api.Policies)
	c.CandidatePaths = slices.Concat(a.file.CandidatePaths, a.api.CandidatePaths)
	c.Steering = slices.Concat(a.file.Steering, a.api.Steering)
	c.Tunnels = slices.Concat(a.file.Tunnels, a.api.Tunnels)
	c.Slices = slices.Concat(a.file.Slices, a.api.Slices)
	c.SetDefaults()
	return &c
}

func (a *Agent) origin(i, ofFile int) agent.Origin {
	if i < ofFile {
		return agent.OriginFile
	}
	return agent.OriginAPI
}

func counted(kind uint64, i int) agent.Counter {
	n := kind*100 + uint64(i) + 1
	return agent.Counter{Packets: n, Bytes: 1000 * n}
}

// read gives each method the merged configuration, or the error.
func read[T any](a *Agent, f func(*config.Config) []T) ([]T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return nil, a.Err
	}
	return f(a.merged()), nil
}

// Running implements agent.Service, as do all the methods that follow.
func (a *Agent) Running() *config.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.merged()
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
			Sessions: 2, MaxSessions: int(c.Limits.Sessions), Associations: 2, Buffered: 3,
			Pools: []agent.PoolStatus{{NetworkInstance: "internet", Prefix: netip.MustParsePrefix("10.45.0.0/16"), Used: 2, Size: 65534}},
			Peers: []agent.PeerStatus{{Addr: netip.MustParseAddr("192.0.2.100"), Tunnels: 2}, {Addr: netip.MustParseAddr("192.0.2.101"), Tunnels: 1, Down: true}},
		}
	}
	return agent.Status{
		UPF:     upf,
		Overlay: overlayStatus(c),
		Version: "v1.2.3", Started: Started, DataPath: "0123abcd", PinPath: "/sys/fs/bpf/culvert",
		Interfaces: interfaces, Outcomes: outcomes,
		Resources: map[agent.Kind]int{
			agent.KindInterface: len(c.Interfaces), agent.KindLocator: len(c.Locators), agent.KindSID: len(c.SIDs),
			agent.KindPolicy: len(c.Policies), agent.KindSteering: len(c.Steering), agent.KindTunnel: len(c.Tunnels), agent.KindSlice: len(c.Slices),
		},
	}, err
}

// Interfaces lists the interfaces that the test set.
func (a *Agent) Interfaces() ([]agent.InterfaceStatus, error) {
	return read(a, func(c *config.Config) []agent.InterfaceStatus {
		out := []agent.InterfaceStatus{}
		for i, v := range c.Interfaces {
			out = append(out, agent.InterfaceStatus{Interface: v, Ifindex: i + 2, Attached: "native", MTU: 1500})
		}
		return out
	})
}

// Locators lists the locators of the configuration.
func (a *Agent) Locators() ([]agent.LocatorStatus, error) {
	return read(a, func(c *config.Config) (out []agent.LocatorStatus) {
		for i, v := range c.Locators {
			n := 0
			for _, s := range c.SIDs {
				if v.Prefix.Overlaps(s.SID) {
					n++
				}
			}
			out = append(out, agent.LocatorStatus{Locator: v, Origin: a.origin(i, len(a.file.Locators)), SIDs: n})
		}
		return out
	})
}

// SIDs lists the SIDs of the configuration.
func (a *Agent) SIDs() ([]agent.SIDStatus, error) {
	return read(a, func(c *config.Config) (out []agent.SIDStatus) {
		for i, v := range c.SIDs {
			s := agent.SIDStatus{LocalSID: v, Origin: a.origin(i, len(a.file.SIDs)), Counter: counted(1, i)}
			if v.NextHop.IsValid() {
				s.NextHop = "ready"
			}
			out = append(out, s)
		}
		return out
	})
}

// Policies lists the policies of the configuration.
func (a *Agent) Policies() ([]agent.PolicyStatus, error) {
	return read(a, func(c *config.Config) (out []agent.PolicyStatus) {
		for i, v := range c.Policies {
			s := agent.PolicyStatus{Policy: v, Origin: a.origin(i, len(a.file.Policies))}
			s.Policy, s.Paths = srpolicy.Choose(v, pathsOf(c, v.Name), "", func(netip.Addr) error { return nil })
			v = s.Policy
			for j := range v.SegmentLists {
				s.Lists = append(s.Lists, counted(2, 10*i+j))
				s.Counter.Packets += s.Lists[j].Packets
				s.Counter.Bytes += s.Lists[j].Bytes
			}
			out = append(out, s)
		}
		return out
	})
}

func pathsOf(c *config.Config, policy string) (out []srpolicy.Candidate) {
	for _, p := range c.CandidatePaths {
		if p.Policy == policy {
			out = append(out, srpolicy.Candidate{CandidatePath: p})
		}
	}
	return out
}

// self is the first node of a configuration's overlay.
func self(c *config.Config) overlay.Self {
	n := c.Overlay.Nodes[0]
	return overlay.Self{Name: n.Name, Address: n.Address, Prefixes: n.Prefixes, Locator: n.Locator}
}

func overlayStatus(c *config.Config) *agent.OverlayStatus {
	if !c.Overlay.IsSet() {
		return nil
	}
	return &agent.OverlayStatus{
		Mode: c.Overlay.Mode, Self: self(c).Node(), SIDs: []string{"fc00:0:1:4::/64 End.DT4", "fc00:0:1:6::/64 End.DT6"}, Uplinks: c.Overlay.Uplinks,
		MTU: 1396, Pods: 2, Nodes: 2, Problems: []string{"node-3: prefix 10.244.2.0/24 is already claimed by node-2"}, NetworkPolicy: "not enforced",
	}
}

// Nodes are those of the configuration but the first.
func (a *Agent) Nodes() ([]agent.NodeStatus, error) {
	if !a.file.Overlay.IsSet() {
		return nil, agent.ErrNoCluster
	}
	return read(a, func(c *config.Config) (out []agent.NodeStatus) {
		for _, n := range c.Overlay.Nodes[1:] {
			s := agent.NodeStatus{Node: overlay.Complete(n, false), Origin: c.Overlay.Mode, Policies: []string{n.Name + ":ipv4"}, State: "ready"}
			if len(n.Prefixes) == 1 {
				s.Problems = []string{"prefix 10.244.2.0/24 is already claimed by node-2"}
			}
			out = append(out, s)
		}
		return out
	})
}

// BGPPeers are two, of a configuration that has bgp.
func (a *Agent) BGPPeers() ([]agent.BGPPeerStatus, error) {
	if !a.file.BGP.IsSet() {
		return nil, agent.ErrNotBGP
	}
	return read(a, func(*config.Config) []agent.BGPPeerStatus {
		return []agent.BGPPeerStatus{
			{Address: netip.MustParseAddr("2001:db8::9"), ASN: 65001, RouterID: netip.MustParseAddr("10.0.0.9"), State: "established", Since: 90 * time.Second, Received: 2},
			{Address: netip.MustParseAddr("192.0.2.9"), ASN: 65002, State: "active", Reason: "hold timer expired"},
		}
	})
}

// CandidatePaths lists the candidate paths of the configuration.
func (a *Agent) CandidatePaths() ([]agent.CandidatePathStatus, error) {
	policies, err := a.Policies()
	if err != nil {
		return nil, err
	}
	return read(a, func(c *config.Config) (out []agent.CandidatePathStatus) {
		for i, v := range c.CandidatePaths {
			s := agent.CandidatePathStatus{CandidatePath: v, Origin: a.origin(i, len(a.file.CandidatePaths))}
			for _, p := range policies {
				for _, verdict := range p.Paths {
					if p.Name == v.Policy && verdict.Path == v.Name {
						s.Verdict = verdict
					}
				}
			}
			out = append(out, s)
		}
		return out
	})
}

// Steerings lists the steering entries of the configuration.
func (a *Agent) Steerings() ([]agent.SteeringStatus, error) {
	return read(a, func(c *config.Config) (out []agent.SteeringStatus) {
		for i, v := range c.Steering {
			out = append(out, agent.SteeringStatus{Steering: v, Origin: a.origin(i, len(a.file.Steering))})
		}
		return out
	})
}

// Tunnels lists the tunnels of the configuration.
func (a *Agent) Tunnels() ([]agent.TunnelStatus, error) {
	return read(a, func(c *config.Config) (out []agent.TunnelStatus) {
		for i, v := range c.Tunnels {
			out = append(out, agent.TunnelStatus{Tunnel: v, Origin: a.origin(i, len(a.file.Tunnels)), Received: counted(3, i), Sent: counted(4, i)})
		}
		return out
	})
}

// Adjacencies lists the adjacencies that the test set.
func (a *Agent) Adjacencies() ([]agent.AdjacencyStatus, error) {
	return read(a, func(*config.Config) []agent.AdjacencyStatus {
		return []agent.AdjacencyStatus{
			{Key: "2001:db8:12::2", State: "ready", Interface: "core0", MAC: "02:00:00:00:00:02", VLANs: []int{100, 7}, MTU: 1500},
			{Key: "2001:db8:13::2", State: "no route"},
		}
	})
}

// Outcomes lists the outcomes that the test set.
func (a *Agent) Outcomes() ([]agent.Outcome, error) {
	return read(a, func(*config.Config) []agent.Outcome {
		return []agent.Outcome{
			{Reason: "FORWARDED", Text: "sent on", Counter: agent.Counter{Packets: 1 << 60, Bytes: 1<<63 + 1}},
			{Reason: "PASSED", Text: "left to the kernel", Counter: agent.Counter{Packets: 7, Bytes: 700}},
			{Reason: "HOP_LIMIT", Drop: true, Text: "hop limit or TTL would become 0", Counter: agent.Counter{Packets: 3, Bytes: 300}},
			{Reason: "ECN", Drop: true, Text: "congestion on a path that cannot say so"},
		}
	})
}

// Apply replaces the configuration of the file.
func (a *Agent) Apply(_ context.Context, c *config.Config, dryRun bool) ([]agent.Change, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return nil, a.Err
	}
	before := a.file
	changes := difference(a.file.SIDs, c.SIDs)
	a.file = c
	if err := a.merged().Validate(); err != nil || dryRun {
		a.file = before
		return changes, err
	}
	return changes, nil
}

// difference is that of SIDs, which stand for all kinds here.
func difference(before, after []srv6.LocalSID) (out []agent.Change) {
	has := func(list []srv6.LocalSID, s srv6.LocalSID) bool {
		return slices.ContainsFunc(list, func(o srv6.LocalSID) bool { return o.SID == s.SID })
	}
	for _, s := range after {
		if !has(before, s) {
			out = append(out, agent.Change{Op: agent.OpAdd, Kind: agent.KindSID, Key: s.SID.String(), Detail: s.Behavior.String()})
		}
	}
	for _, s := range before {
		if !has(after, s) {
			out = append(out, agent.Change{Op: agent.OpDelete, Kind: agent.KindSID, Key: s.SID.String()})
		}
	}
	return out
}

// Add adds resources of the API.
func (a *Agent) Add(_ context.Context, fragment *config.Config) ([]agent.Change, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return nil, a.Err
	}
	before := a.api
	a.api.Interfaces = slices.Concat(a.api.Interfaces, fragment.Interfaces)
	a.api.Locators = slices.Concat(a.api.Locators, fragment.Locators)
	a.api.SIDs = slices.Concat(a.api.SIDs, fragment.SIDs)
	a.api.Policies = slices.Concat(a.api.Policies, fragment.Policies)
	a.api.CandidatePaths = slices.Concat(a.api.CandidatePaths, fragment.CandidatePaths)
	a.api.Steering = slices.Concat(a.api.Steering, fragment.Steering)
	a.api.Tunnels = slices.Concat(a.api.Tunnels, fragment.Tunnels)
	if err := a.merged().Validate(); err != nil {
		a.api = before
		return nil, fmt.Errorf("%w: %w", agent.ErrInvalid, err)
	}
	var out []agent.Change
	for _, r := range refs(fragment) {
		out = append(out, agent.Change{Op: agent.OpAdd, Kind: r.Kind, Key: r.Key})
	}
	return out, nil
}

func refs(c *config.Config) (out []agent.Ref) {
	for _, v := range c.Interfaces {
		out = append(out, agent.Ref{Kind: agent.KindInterface, Key: v.Name})
	}
	for _, v := range c.Locators {
		out = append(out, agent.Ref{Kind: agent.KindLocator, Key: v.Name})
	}
	for _, v := range c.Policies {
		out = append(out, agent.Ref{Kind: agent.KindPolicy, Key: v.Name})
	}
	for _, v := range c.CandidatePaths {
		out = append(out, agent.Ref{Kind: agent.KindCandidatePath, Key: v.Name})
	}
	for _, v := range c.Tunnels {
		out = append(out, agent.Ref{Kind: agent.KindTunnel, Key: v.Name})
	}
	for _, v := range c.SIDs {
		out = append(out, agent.Ref{Kind: agent.KindSID, Key: v.SID.String()})
	}
	for _, v := range c.Steering {
		out = append(out, agent.Ref{Kind: agent.KindSteering, Key: v.Key()})
	}
	return out
}

// Delete deletes resources of the API.
func (a *Agent) Delete(_ context.Context, list []agent.Ref) ([]agent.Change, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return nil, a.Err
	}
	added, fixed := refs(&a.api), refs(a.file)
	for _, r := range list {
		if slices.Contains(fixed, r) {
			return nil, fmt.Errorf("%w: %s is in the configuration file: remove it there, and apply", agent.ErrConflict, r)
		}
		if !slices.Contains(added, r) {
			return nil, fmt.Errorf("%w: there is no %s", agent.ErrNotFound, r)
		}
	}
	var out []agent.Change
	for _, r := range list {
		a.remove(r)
		out = append(out, agent.Change{Op: agent.OpDelete, Kind: r.Kind, Key: r.Key})
	}
	return out, nil
}

func (a *Agent) remove(r agent.Ref) {
	c := &a.api
	c.Interfaces = slices.DeleteFunc(c.Interfaces, func(v config.Interface) bool { return r == agent.Ref{Kind: agent.KindInterface, Key: v.Name} })
	c.Locators = slices.DeleteFunc(c.Locators, func(v config.Locator) bool { return r == agent.Ref{Kind: agent.KindLocator, Key: v.Name} })
	c.SIDs = slices.DeleteFunc(c.SIDs, func(v srv6.LocalSID) bool { return r == agent.Ref{Kind: agent.KindSID, Key: v.SID.String()} })
	c.Policies = slices.DeleteFunc(c.Policies, func(v srpolicy.Policy) bool { return r == agent.Ref{Kind: agent.KindPolicy, Key: v.Name} })
	c.CandidatePaths = slices.DeleteFunc(c.CandidatePaths, func(v srpolicy.CandidatePath) bool {
		return r == agent.Ref{Kind: agent.KindCandidatePath, Key: v.Name}
	})
	c.Steering = slices.DeleteFunc(c.Steering, func(v srpolicy.Steering) bool { return r == agent.Ref{Kind: agent.KindSteering, Key: v.Key()} })
	c.Tunnels = slices.DeleteFunc(c.Tunnels, func(v gtpu.Tunnel) bool { return r == agent.Ref{Kind: agent.KindTunnel, Key: v.Name} })
}

// Trace sends the events that the test set.
func (a *Agent) Trace(ctx context.Context, filter agent.TraceFilter, f func(agent.TraceEvent) error) error {
	if a.Err != nil {
		return a.Err
	}
	a.Filters <- filter
	for _, e := range a.Events {
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
