package agent

import (
	"cmp"
	"context"
	"net/netip"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/agent/punt"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf"
	"github.com/culvert-net/culvert/srv6"
)

// This file is the only one that knows where *dataplane.DataPlane has what.

// dataPath is the data path as the agent uses it, by who uses it.
type dataPath struct {
	apply.DataPath
	Pods     pods.Table
	Sessions upf.DataPath
	Punts    punt.DataPath
	Counters counters
	Trace    tracer
	Explain  func(frames [][]byte, ifindex int) ([]event.TraceEvent, error)
	Flows    recorder
	Spread   spreading
	N4       *n4.Table
	NAT      natTable
	// NetworkPolicies isolate pods.
	NetworkPolicies isolation.NetworkPolicies
	// SpreadCards are the interfaces whose cards spread in place of it.
	SpreadCards func() []string
	Sweep       func() error // removes what was taken over and not put since
	Renewing    func() bool  // packets meet tables of another layout until Sweep
	Build       func() string
	Close       func() error
	// MissingPins are those that somebody has removed.
	MissingPins func() []string
}

// counters are what people and metrics read of the data path.
type counters struct {
	Outcomes func() ([]counter.Counter, error)
	// Closed are of frames by closed interfaces, since the start.
	Closed func() ([]counter.Counter, error)
	SID    func(netip.Prefix) (counter.Counter, error)
	Class  func(name string) (counter.Counter, error)
	Lists  func(policy string) (lists []counter.Counter, all counter.Counter, err error)
	Tunnel func(name string) (received, sent counter.Counter, err error)
	Usage  func() map[string]table.Usage
	// Isolated is what NetworkPolicies did, by the ifindex of pods.
	Isolated func() (map[int]pod.PolicyCounts, error)
	// Signalling is of PFCP messages.
	Signalling func() (n4.Counts, error)
	// Lost are the frames that an interface did not send, and LossError why they are not
	// counted; nil: they are.
	Lost      func(ifindex int) (uint64, error)
	LossError func() error
	// Injected is how many frames this process sent through the data path.
	Injected func() uint64
}

// natTable has the ports of UEs.
type natTable interface {
	Counts(pool netip.Prefix) map[nat.Protocol]uint32
	Mappings(pool netip.Prefix, of nat.NAT, ue netip.Addr) []nat.Mapping
}

// tracer is the data path's one filter, and what it lets through.
type tracer interface {
	Set(*event.TraceFilter) error
	Read(context.Context, func(event.TraceEvent)) error
}

// recorder has records of flows.
type recorder struct {
	Read    func(ctx context.Context, each func(flow.Record), after func()) error
	LeftOut func() (map[int]uint64, error) // records, by the ifindex of pods; 0: of the node's packets
}

// watcher is what the agent needs of *netdev.Watcher.
type watcher interface {
	Run(context.Context) error
	SetTables([]uint32)
	KeepAlive([]netdev.Key)
	Close()
}

// host is what the agent needs of *netdev.Host.
type host interface {
	apply.Host
	pods.Host
}

// sessions is the data path as the user plane function uses it (upf.DataPath).
type sessions struct {
	dp *dataplane.DataPlane
	sliced
	*xdp.Program
}

// sliced is what has the same names in *dataplane.DataPlane.
type sliced interface {
	Stations() ([]dataplane.Station, error)
	SessionEvents(context.Context, func(datapath.Event)) error
	EndMarkers(context.Context, func(out uint64)) error
	SetSlice(slice uint32, up, down uint64) error
	SliceCounters(slice uint32) (up, down counter.Counter, err error)
	InjectGTPU(message []byte, tos, ttl uint8) error
	InjectFor(session uint64, frame []byte, ifindex int, kept bool) error
}

func (s sessions) IsSilent(ifindex int) bool { return s.dp.Ports.IsSilent(ifindex) }

func (s sessions) SetSliceSID(sid netip.Prefix, slice uint32, vpn bool) {
	s.dp.SIDs.SetSlice(sid, uint16(slice), vpn)
}
func (s sessions) NewTEID() (uint32, error)            { return s.dp.Sessions.NewTEID() }
func (s sessions) TakeTEID(teid uint32) error          { return s.dp.Sessions.TakeTEID(teid) }
func (s sessions) FreeTEID(teid uint32)                { s.dp.Sessions.FreeTEID(teid) }
func (s sessions) PutSession(v datapath.Session) error { return s.dp.Sessions.Put(v) }
func (s sessions) DropSession(id uint64) error         { return s.dp.Sessions.Drop(id) }
func (s sessions) SessionOf(teid uint32) uint64        { return s.dp.Sessions.OfTEID(teid) }
func (s sessions) Taken(entry uint32)                  { s.dp.Sessions.Turns.Taken(entry) }
func (s sessions) Shut(id uint64, rule uint16)         { s.dp.Sessions.Turns.Shut(id, rule) }

func (s sessions) Open(id uint64, rule uint16, force bool) bool {
	return s.dp.Sessions.Turns.Open(id, rule, force)
}

func (s sessions) Out(entry uint32) uint64 { return s.dp.Sessions.Turns.Out(entry) }

func (s sessions) LeadsTo(out uint64) (netip.Addr, uint32, bool) {
	return s.dp.Sessions.Turns.LeadsTo(out)
}

func (s sessions) Turn(id uint64, forward, buffer *datapath.Rule) (datapath.Turn, bool) {
	return s.dp.Sessions.Turns.Turn(id, forward, buffer)
}

func (s sessions) RecoverTurn(template uint16, gnb netip.Addr, entry uint32) (bool, error) {
	return s.dp.Sessions.Turns.Recover(template, gnb, entry)
}

func (s sessions) OwnerOf(entry uint32) uint64 {
	id, _ := s.dp.Sessions.RuleAt(entry)
	return id
}

func (s sessions) RemoveSession(id uint64, done func([]datapath.RuleUsage, error)) error {
	return s.dp.Sessions.Remove(id, done)
}

func (s sessions) SessionUsage(id uint64) ([]datapath.RuleUsage, error) {
	return s.dp.Sessions.Usage(id)
}

func (s sessions) SetRuleLimits(id uint64, rule uint16, l datapath.RuleLimits) error {
	return s.dp.Sessions.SetLimits(id, rule, l)
}

func (s sessions) SetQuotas(id uint64, q []datapath.Quota) error {
	return s.dp.Sessions.SetQuotas(id, q)
}

// closedPort is an interface as it is closed.
func closedPort(p plan.Port) dataplane.ClosedPort {
	a := p.Port.Access
	a.Peers = nil
	return dataplane.ClosedPort{Ifindex: p.Ifindex, Mode: attach.Mode(cmp.Or(p.Mode, "auto")), Access: a, MAC: p.Port.MAC}
}

// closedPorts are the interfaces of a configuration that are closed until packets meet the
// tables.
func closedPorts(c *config.Config) ([]dataplane.ClosedPort, error) {
	inspector, err := netdev.NewInspector()
	if err != nil {
		return nil, err
	}
	defer inspector.Close()
	links, err := inspector.Links()
	if err != nil {
		return nil, err
	}
	var out []dataplane.ClosedPort
	for _, p := range plan.ClosedPorts(c, links) {
		out = append(out, closedPort(p))
	}
	return out, nil
}

// openDataPath also reads from the state file what cards were.
func openDataPath(o dataplane.Options, state *bbolt.DB) (*dataPath, error) {
	cards, err := openCardBook(state)
	if err != nil {
		return nil, err
	}
	former, err := cards.load()
	if err != nil {
		return nil, err
	}
	dp, err := dataplane.Open(o)
	if err != nil {
		return nil, err
	}
	steering := newSteering(dp.Spread.Set, dp.XDP.Attached, openCard, cards, former)
	return &dataPath{
		DataPath: apply.DataPath{
			SetSettings: ofPools(dp.SetSettings), CheckSettings: ofPools(func(s settings.Settings) error { return dataplane.CheckSettings(dp, s) }), SetSpread: steering.apply,
			Policies:    apply.Table[srpolicy.Policy, string]{Put: dp.Policies.Put, Delete: dp.Policies.Delete},
			TurnLists:   dp.Policies.Turn,
			Tunnels:     apply.Table[gtpu.Tunnel, string]{Put: dp.Tunnels.Put, Delete: dp.Tunnels.Delete},
			SIDs:        apply.Table[srv6.LocalSID, netip.Prefix]{Put: dp.SIDs.Put, Delete: dp.SIDs.Delete},
			SessionSIDs: apply.Table[netip.Prefix, netip.Prefix]{Put: dp.SIDs.PutForSessions, Delete: dp.SIDs.DeleteForSessions},
			Links:       apply.Table[ethernet.Link, ethernet.Link]{Put: dp.Links.Put, Delete: dp.Links.Delete},
			Steering:    apply.Table[class.Entry, srpolicy.Steering]{Put: dp.Steering.PutClassified, Delete: dp.Steering.Delete},
			SetClasses:  dp.Classes.Set, SetSessionWays: dp.Sessions.SetWays,
			SetPort: dp.Ports.Set, DeletePort: dp.Ports.Delete,
			Attach: dp.XDP.Attach, Detach: dp.XDP.Detach, Attached: dp.XDP.Attached,
			Closing: apply.Closing{
				Put:    func(p plan.Port) error { return dataplane.ClosePort(dp, closedPort(p)) },
				Delete: func(ifindex int) error { return dp.Closed.Delete(ifindex) },
				On:     func() map[int]attach.Mode { return dp.Closed.Attached() },
			},
			Uplinks: apply.Table[int, int]{Put: dp.TCX.AttachUplink, Delete: dp.TCX.DetachUplink},
			Members: apply.Table[overlay.Member, overlay.Member]{Put: dp.Members.Put, Delete: dp.Members.Delete}, GuardForwarded: dp.GuardForwarded,
			Entry:    apply.Table[int, int]{Put: dp.TCX.AttachEntry, Delete: dp.TCX.DetachEntry},
			Locals:   apply.Table[netip.Prefix, netip.Prefix]{Put: dp.Steering.PutLocal, Delete: dp.Steering.DeleteLocal},
			Devices:  apply.Table[int, int]{Put: dp.Ports.PutDevice, Delete: dp.Ports.DeleteDevice},
			PutRoute: dp.Routes.Put, DeleteRoute: dp.Routes.Delete,
			Rehearse: dp.Adjacencies.Rehearse, AdjacencyKeys: dp.Adjacencies.Keys, AdjacencyChanges: dp.Adjacencies.Changes, SetNextHop: dp.Adjacencies.SetNextHop, SetShared: dp.Adjacencies.SetShared,
		},
		Pods: dp.Pods, Sessions: sessions{dp, dp, dp.Frames}, Trace: dp.Trace, Explain: func(frames [][]byte, ifindex int) ([]event.TraceEvent, error) {
			return dataplane.Explain(dp, frames, ifindex)
		}, Flows: recorder{dp.Flows.Read, dp.Pods.LeftOut}, NetworkPolicies: dp.NetworkPolicies, Spread: dp.Spread, N4: dp.N4, NAT: dp.NAT, SpreadCards: steering.cards,
		Punts: punt.DataPath{
			Injector: dp, InjectToUE: dp.InjectToUE, Read: dp.Punts.Read, Steered: dp.Steering.Leads, InjectSteered: dp.InjectSteered,
			FindPaths:  func(match func(*dataplane.Path) bool) []dataplane.Path { return dataplane.FindPaths(dp, match) },
			SetPathMTU: func(mtu int, ends ...netip.Addr) error { return dataplane.SetPathMTU(dp, mtu, ends...) },
		},
		Counters: counters{Outcomes: dp.Outcomes, SID: dp.SIDs.Counter, Lists: dp.Policies.Counters, Class: dp.Classes.Read, Tunnel: dp.Tunnels.Counters, Usage: dp.Usage, Isolated: dp.Pods.PolicyCounts, Signalling: dp.Signalling, Lost: dp.Ports.Lost, LossError: dp.Loss.Err, Closed: func() ([]counter.Counter, error) { return dp.Closed.Outcomes() }, Injected: dp.Frames.Injected},
		Sweep:    dp.Sweep, Renewing: func() bool { return dataplane.Renewing(dp) }, Build: dp.Build, Close: dp.Close, MissingPins: func() []string { return dataplane.MissingPins(dp) },
	}, nil
}
