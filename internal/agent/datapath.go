package agent

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf"
	"github.com/culvert-net/culvert/srv6"
)

// dataPath is what the agent needs of *dataplane.DataPlane. Every put is an
// upsert that writes nothing where nothing changes.
type dataPath interface {
	tableWriter
	sessions
	podTable
	Attach(ifindex int, mode dataplane.Mode) (dataplane.Mode, error)
	Detach(ifindex int) error
	Attached() map[int]dataplane.Mode
	AttachUplink(ifindex int) error
	DetachUplink(ifindex int) error
	AttachEntry(ifindex int) error
	DetachEntry(ifindex int) error
	Build() string
	Close() error

	Outcomes() ([]dataplane.Counter, error)
	SIDCounter(netip.Prefix) (dataplane.Counter, error)
	ListCounters(policy string) ([]dataplane.Counter, error)
	TunnelCounters(name string) (received, sent dataplane.Counter, err error)
	Usage() map[string]dataplane.Usage

	Punts(context.Context, func(dataplane.Punt)) error
	InjectToUE(session uint64, packet []byte, ifindex int) error
	SetTrace(*dataplane.TraceFilter) error
	Trace(context.Context, func(dataplane.TraceEvent)) error
}

// sessions is what the UPF needs of it, and the slow path: Inject.
type sessions = upf.DataPath

type tableWriter interface {
	SetSettings(dataplane.Settings) error
	SetPort(ifindex int, p dataplane.Port) error
	DeletePort(ifindex int) error
	PutPolicy(srpolicy.Policy) error
	DeletePolicy(name string) error
	PutTunnel(gtpu.Tunnel) error
	DeleteTunnel(name string) error
	PutSID(srv6.LocalSID) error
	DeleteSID(netip.Prefix) error
	PutSessionSID(netip.Prefix) error
	DeleteSessionSID(netip.Prefix) error
	PutLink(dataplane.Link) error
	DeleteLink(dataplane.Link) error
	PutSteering(srpolicy.Steering) error
	DeleteSteering(srpolicy.Steering) error
	PutLocal(netip.Addr) error
	DeleteLocal(netip.Addr) error
	AdjacencyKeys() []dataplane.AdjacencyKey
	AdjacencyChanges() (fresh, gone []dataplane.AdjacencyKey)
	SetNextHop(dataplane.AdjacencyKey, *dataplane.NextHop) error
	PutRoute(table uint32, p netip.Prefix, via []dataplane.AdjacencyKey) error
	DeleteRoute(table uint32, p netip.Prefix) error
	PutDevice(ifindex int) error
	DeleteDevice(ifindex int) error
	// Sweep removes what was taken over and not put since.
	Sweep() error
}

// watcher is what the agent needs of *netdev.Watcher.
type watcher interface {
	Run(context.Context) error
	SetTables([]uint32)
	KeepAlive([]netdev.Key)
	Close()
}
