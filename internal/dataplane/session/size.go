package session

import (
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// maxStations bounds the MAC addresses of Ethernet sessions that are known at
// once: those not heard of for longest are forgotten first.
const maxStations = 65536

// MapSizes are the entries that the maps of sessions must have. In pdr each
// session has one for a TEID, two for UE addresses, IPv4 and IPv6, in pools, and
// one for an address outside, and each filter one for its rule.
func MapSizes(l settings.Limits) map[string]uint32 {
	_, _, free := l.PDRRanges()
	pdrs := free + l.Sessions + l.Filters
	return map[string]uint32{
		abi.MapPdr: pdrs, abi.MapRefused: pdrs,
		abi.MapPdrByTeid: l.Sessions, abi.MapPdrByUe: l.Sessions,
		abi.MapFilter: firstFilter + l.Filters, abi.MapFrameFilter: firstFilter + l.Filters,
		abi.MapStation: min(l.Sessions, maxStations), abi.MapMeter: l.Sessions + 1,
		abi.MapForwarding:   firstForwarding + min(l.Sessions, maxForwardings),
		abi.MapSliceCounter: 2 * MaxSlices, abi.MapSliceMeter: 2 * MaxSlices,
	}
}

// Clear empties an entry of pdr that no key leads to.
func Clear(pdr *table.Array[abi.Pdr], index uint32) { pdr.Change(index, wordPDRDo, 0) }
