package session

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// Node is the rest of the data path, as far as sessions refer to it. Its methods
// are called with the lock of Sessions held.
type Node interface {
	// Acquire refers to the adjacency of a next hop, Release ends that.
	Acquire(adjacency.Key) (uint32, error)
	Release(...adjacency.Key) error
	// Toward is the key of the next hop to a remote end.
	Toward(remote netip.Addr) adjacency.Key
	// Policy finds an SR policy; layer2: it carries frames.
	Policy(name string) (index uint32, layer2, found bool)
	// ClassNumber is that of a traffic class; 0: no class has that name.
	ClassNumber(name string) uint8
	// UsePolicy notes whether sessions refer to a policy.
	UsePolicy(name string, used bool)
	// UsePeer notes that rules send G-PDUs to an address, UnusePeer ends that.
	UsePeer(netip.Addr) error
	UnusePeer(netip.Addr) error
	// LinkNumber is that of a link; 0: nobody has put it.
	LinkNumber(Link) uint32
	// OuterSource is the node's own source address for what a rule forwards.
	OuterSource(*Forwarding) netip.Addr
	// Targets are where packets to framed routes go.
	Targets() *target.Table
	// Steered says whether steering, or the node itself, has a prefix.
	Steered(netip.Prefix) bool
	// TunnelOf is the tunnel that has a TEID.
	TunnelOf(teid uint32) (name string, found bool)
	// ForgetPorts forgets the public ports of a UE behind a NAT.
	ForgetPorts(ue netip.Addr)
	// SetUEs writes to the settings how ue_bucket is indexed; 0: pdr_by_ue is empty.
	SetUEs(uint32)
	// ForgetLookups makes packets look again whether UEs may reach where they send.
	ForgetLookups()
}

// Tables are the tables of sessions, as packets see them.
type Tables struct {
	PDR         *table.Array[abi.Pdr]         `map:"pdr"`
	Refused     *table.Array[abi.Refused]     `map:"refused"`
	Quota       *table.Array[abi.Quota]       `map:"quota"`
	Filter      *table.Array[abi.Filter]      `map:"filter"`
	FrameFilter *table.Array[abi.FrameFilter] `map:"frame_filter"`
	Meter       *table.Array[abi.Meter]       `map:"meter"`
	Forwarding  *table.Array[abi.Forwarding]  `map:"forwarding"`
	TEIDs       *table.Hash[uint32, uint32]   `map:"pdr_by_teid" limit:"sessions"`
	UEs         *table.Hash[abi.In6, uint32]  `map:"pdr_by_ue" limit:"sessions"`
	UEBucket    *table.Array[abi.UeBucket]    `map:"ue_bucket"`
}

// tables are Tables, and what the lookups of packets in them depend on (key.go).
type tables struct {
	Tables
	node  Node
	ues   ueBuckets
	slots uint32 // of pdr that TEIDs lead to by index
	pools []settings.Pool
}

// loadDo is what an entry of pdr says of what becomes of packets.
func (t *tables) loadDo(index uint32) uint64 { return t.PDR.Load(index, wordPDRDo) }

// maxStations bounds the MAC addresses of Ethernet sessions that are known at
// once: the data path forgets those first that have been silent for longest.
const maxStations = 65536

// What a session has of the tables that its filters do not size: TEIDs or UE addresses
// (IPv4 and IPv6) that a hash finds, meters that rules share (of the session and of a
// QoS flow, up and down), and, where few sessions share any, forwardings.
const (
	keysOfSession        = 2
	metersOfSession      = 4
	spareQuotas          = 256 // while a session has new ones and packets see the old ones
	forwardingsOfSession = 4
)

// maxReachPrefixes is how many prefixes the configuration may close or open to UEs,
// beside the peers of forwardings.
const maxReachPrefixes = 65536

// Beside is where the entries of pdr begin that are for rules beside TEIDs: that of TEID slot i is
// Beside + i. A packet that expects its rule there need not wait for what the TEID's own entry says.
// They are the last ones of the table.
func Beside(l settings.Limits) uint32 {
	_, _, free := l.PDRRanges()
	return free + l.Sessions + l.Filters - min(l.Filters, settings.FiltersOfSession*l.Sessions)/2
}

// PutSettings says where packets find the entries of TEIDs, and those beside.
func PutSettings(e *abi.Settings, l settings.Limits) {
	slots, _, _ := l.PDRRanges()
	e.PdrSlots, e.TeidFold, e.PdrBeside = slots, teidFold(slots), Beside(l)
}

// MapSizes are the entries that the maps of sessions must have. In pdr each
// session has two for TEIDs, two for UE addresses, IPv4 and IPv6, in pools, and
// one for an address outside; behind filters there is a rule for every second of
// those that sessions usually have, and for each one more; and one beside each TEID.
func MapSizes(l settings.Limits) map[string]uint32 {
	slots, _, _ := l.PDRRanges()
	pdrs := Beside(l) + slots
	return map[string]uint32{
		abi.MapPdr: pdrs, abi.MapRefused: pdrs, abi.MapQuota: 1 + l.Sessions + spareQuotas,
		abi.MapPdrByTeid: keysOfSession * l.Sessions, abi.MapPdrByUe: keysOfSession * l.Sessions, abi.MapUeBucket: bucketsFor(l.Sessions),
		abi.MapFilter: firstFilter + l.Filters, abi.MapFrameFilter: firstFilter + l.Filters,
		abi.MapStation: min(l.Sessions, maxStations), abi.MapMeter: metersOfSession*l.Sessions + 1,
		abi.MapForwarding:   firstForwarding + min(forwardingsOfSession*l.Sessions, maxForwardings),
		abi.MapUeReach:      min(forwardingsOfSession*l.Sessions, maxForwardings) + maxReachPrefixes,
		abi.MapSliceCounter: 2 * MaxSlices, abi.MapSliceMeter: 2 * MaxSlices,
	}
}

// Clear empties an entry of pdr that no key leads to.
func Clear(pdr *table.Array[abi.Pdr], index uint32) { pdr.Change(index, wordPDRDo, 0) }
