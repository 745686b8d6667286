package slowpath

import (
	"iter"
	"reflect"
	"sync/atomic"
)

// Counters count what happened to the packets that were handed up.
type Counters struct {
	Fragments           atomic.Uint64 `metric:"fragments"`            // received to be put together
	Reassembled         atomic.Uint64 `metric:"reassembled"`          // datagrams that became whole and were sent in again
	AtomicFragments     atomic.Uint64 `metric:"atomic_fragments"`     // of them, those that were whole at once (RFC 6946)
	ReassemblyTimeout   atomic.Uint64 `metric:"reassembly_timeout"`   // datagrams whose time was over
	ReassemblyEvicted   atomic.Uint64 `metric:"reassembly_evicted"`   // datagrams that gave way to newer ones
	ReassemblyOverlap   atomic.Uint64 `metric:"reassembly_overlap"`   // datagrams with overlapping fragments (RFC 5722)
	ReassemblyTooLong   atomic.Uint64 `metric:"reassembly_too_long"`  // datagrams longer than a frame can be
	ReassemblyMalformed atomic.Uint64 `metric:"reassembly_malformed"` // fragments whose header makes no sense
	ReassemblyECN       atomic.Uint64 `metric:"reassembly_ecn"`       // datagrams with contradictory marks (RFC 3168)
	FragmentsDiscarded  atomic.Uint64 `metric:"fragments_discarded"`  // fragments of datagrams already given up

	Fragmented           atomic.Uint64 `metric:"fragmented"`            // packets that were cut
	FragmentsMade        atomic.Uint64 `metric:"fragments_made"`        // into so many
	FragmentationRefused atomic.Uint64 `metric:"fragmentation_refused"` // DF, no room, or not an IPv4 packet

	ICMPSent       atomic.Uint64 `metric:"icmp_sent"`
	ICMPSuppressed atomic.Uint64 `metric:"icmp_suppressed"` // about errors, multicast and the like
	ICMPLimited    atomic.Uint64 `metric:"icmp_limited"`    // beyond ErrorsPerSecond
	ICMPNoRoute    atomic.Uint64 `metric:"icmp_no_route"`   // no way back in the table that the packet is of

	ErrorIndicationsSent atomic.Uint64 `metric:"error_indications_sent"`

	NeighbourHeld     atomic.Uint64 `metric:"neighbour_held"`     // frames that waited for a neighbour
	NeighbourResolved atomic.Uint64 `metric:"neighbour_resolved"` // of them, those that were sent in again
	NeighbourTimeout  atomic.Uint64 `metric:"neighbour_timeout"`  // of them, those whose neighbour did not answer
	NeighbourOverflow atomic.Uint64 `metric:"neighbour_overflow"` // frames that there was no room for

	Malformed    atomic.Uint64 `metric:"malformed"` // records that make no sense
	InjectFailed atomic.Uint64 `metric:"inject_failed"`
	SendFailed   atomic.Uint64 `metric:"send_failed"`
}

// All yields the counters with their metric names, in the order of the fields.
func (c *Counters) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		all := reflect.ValueOf(c).Elem()
		for i := range all.NumField() {
			if !yield(all.Type().Field(i).Tag.Get("metric"), all.Field(i).Addr().Interface().(*atomic.Uint64).Load()) {
				return
			}
		}
	}
}
