package apply

import (
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Table writes one table of the data path. Put adds or updates an entry, and writes
// nothing where nothing changes.
type Table[V, K any] struct {
	Put    func(V) error
	Delete func(K) error
}

// DataPath is what this package calls of the data path.
type DataPath struct {
	SetSettings func(dataplane.Settings) error
	Policies    Table[srpolicy.Policy, string]
	Tunnels     Table[gtpu.Tunnel, string]
	SIDs        Table[srv6.LocalSID, netip.Prefix]
	SessionSIDs Table[netip.Prefix, netip.Prefix]
	Links       Table[dataplane.Link, dataplane.Link]
	Steering    Table[srpolicy.Steering, srpolicy.Steering]

	// Interfaces, by index: the program, its settings, and the overlay's programs.
	SetPort    func(ifindex int, p dataplane.Port) error
	DeletePort func(ifindex int) error
	Attach     func(ifindex int, mode dataplane.Mode) (dataplane.Mode, error)
	Detach     func(ifindex int) error
	Attached   func() map[int]dataplane.Mode
	Uplinks    Table[int, int]
	Entry      Table[int, int]

	// What the kernel says.
	Locals           Table[netip.Addr, netip.Addr]
	Devices          Table[int, int]
	PutRoute         func(table uint32, p netip.Prefix, via []dataplane.AdjacencyKey) error
	DeleteRoute      func(table uint32, p netip.Prefix) error
	AdjacencyKeys    func() []dataplane.AdjacencyKey
	AdjacencyChanges func() (fresh, gone []dataplane.AdjacencyKey)
	SetNextHop       func(dataplane.AdjacencyKey, *dataplane.NextHop) error
}
