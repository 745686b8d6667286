package agent

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/agent/punt"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
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
	Trace    tracePoint
	Sweep    func() error // removes what was taken over and not put since
	Build    func() string
	Close    func() error
}

// counters are what people and metrics read of the data path.
type counters interface {
	Outcomes() ([]dataplane.Counter, error)
	SIDCounter(netip.Prefix) (dataplane.Counter, error)
	ListCounters(policy string) ([]dataplane.Counter, error)
	TunnelCounters(name string) (received, sent dataplane.Counter, err error)
	Usage() map[string]dataplane.Usage
}

// tracePoint is the data path's one filter, and what it lets through.
type tracePoint interface {
	SetTrace(*dataplane.TraceFilter) error
	Trace(context.Context, func(dataplane.TraceEvent)) error
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

func openDataPath(o dataplane.Options) (*dataPath, error) {
	dp, err := dataplane.Open(o)
	if err != nil {
		return nil, err
	}
	return joined(concepts{dp}), nil
}

// joined is the real data path by who uses it.
func joined(dp *dataplane.DataPlane) *dataPath {
	return &dataPath{
		DataPath: apply.DataPath{
			SetSettings: dp.SetSettings,
			Policies:    apply.Table[srpolicy.Policy, string]{Put: dp.PutPolicy, Delete: dp.DeletePolicy},
			Tunnels:     apply.Table[gtpu.Tunnel, string]{Put: dp.PutTunnel, Delete: dp.DeleteTunnel},
			SIDs:        apply.Table[srv6.LocalSID, netip.Prefix]{Put: dp.PutSID, Delete: dp.DeleteSID},
			SessionSIDs: apply.Table[netip.Prefix, netip.Prefix]{Put: dp.PutSessionSID, Delete: dp.DeleteSessionSID},
			Links:       apply.Table[dataplane.Link, dataplane.Link]{Put: dp.PutLink, Delete: dp.DeleteLink},
			Steering:    apply.Table[srpolicy.Steering, srpolicy.Steering]{Put: dp.PutSteering, Delete: dp.DeleteSteering},
			SetPort:     dp.SetPort, DeletePort: dp.DeletePort,
			Attach: dp.Attach, Detach: dp.Detach, Attached: dp.Attached,
			Uplinks:  apply.Table[int, int]{Put: dp.AttachUplink, Delete: dp.DetachUplink},
			Entry:    apply.Table[int, int]{Put: dp.AttachEntry, Delete: dp.DetachEntry},
			Locals:   apply.Table[netip.Addr, netip.Addr]{Put: dp.PutLocal, Delete: dp.DeleteLocal},
			Devices:  apply.Table[int, int]{Put: dp.PutDevice, Delete: dp.DeleteDevice},
			PutRoute: dp.PutRoute, DeleteRoute: dp.DeleteRoute,
			AdjacencyKeys: dp.AdjacencyKeys, AdjacencyChanges: dp.AdjacencyChanges, SetNextHop: dp.SetNextHop,
		},
		Pods: dp, Sessions: dp, Punts: dp, Counters: dp, Trace: dp, Sweep: dp.Sweep, Build: dp.Build, Close: dp.Close,
	}
}
