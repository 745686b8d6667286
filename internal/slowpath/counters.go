package slowpath

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// Counters count what happened to the packets that were handed up.
type Counters struct {
	Fragments           atomic.Uint64 // received to be put together
	Reassembled         atomic.Uint64 // datagrams that became whole and were sent in again
	AtomicFragments     atomic.Uint64 // of them, those that were whole at once (RFC 6946)
	ReassemblyTimeout   atomic.Uint64 // datagrams whose time was over
	ReassemblyEvicted   atomic.Uint64 // datagrams that gave way to newer ones
	ReassemblyOverlap   atomic.Uint64 // datagrams with overlapping fragments (RFC 5722)
	ReassemblyTooLong   atomic.Uint64 // datagrams longer than a frame can be
	ReassemblyMalformed atomic.Uint64 // fragments whose header makes no sense
	ReassemblyECN       atomic.Uint64 // datagrams with contradictory marks (RFC 3168)
	FragmentsDiscarded  atomic.Uint64 // fragments of datagrams already given up

	Fragmented           atomic.Uint64 // packets that were cut
	FragmentsMade        atomic.Uint64 // into so many
	FragmentationRefused atomic.Uint64 // DF, no room, or not an IPv4 packet

	ICMPSent       atomic.Uint64
	ICMPSuppressed atomic.Uint64 // about errors, multicast and the like
	ICMPLimited    atomic.Uint64 // beyond ErrorsPerSecond
	ICMPNoRoute    atomic.Uint64 // no way back in the table that the packet is of

	ErrorIndicationsSent atomic.Uint64

	NeighbourHeld     atomic.Uint64 // frames that waited for a neighbour
	NeighbourResolved atomic.Uint64 // of them, those that were sent in again
	NeighbourTimeout  atomic.Uint64 // of them, those whose neighbour did not answer
	NeighbourOverflow atomic.Uint64 // frames that there was no room for

	Malformed    atomic.Uint64 // records that make no sense
	InjectFailed atomic.Uint64
	SendFailed   atomic.Uint64
}

// All yields the counters with their metric names, in a stable order.
func (c *Counters) All() iter.Seq2[string, uint64] {
	rows := []struct {
		name string
		v    *atomic.Uint64
	}{
		{"fragments", &c.Fragments},
		{"reassembled", &c.Reassembled},
		{"atomic_fragments", &c.AtomicFragments},
		{"reassembly_timeout", &c.ReassemblyTimeout},
		{"reassembly_evicted", &c.ReassemblyEvicted},
		{"reassembly_overlap", &c.ReassemblyOverlap},
		{"reassembly_too_long", &c.ReassemblyTooLong},
		{"reassembly_malformed", &c.ReassemblyMalformed},
		{"reassembly_ecn", &c.ReassemblyECN},
		{"fragments_discarded", &c.FragmentsDiscarded},
		{"fragmented", &c.Fragmented},
		{"fragments_made", &c.FragmentsMade},
		{"fragmentation_refused", &c.FragmentationRefused},
		{"icmp_sent", &c.ICMPSent},
		{"icmp_suppressed", &c.ICMPSuppressed},
		{"icmp_limited", &c.ICMPLimited},
		{"icmp_no_route", &c.ICMPNoRoute},
		{"error_indications_sent", &c.ErrorIndicationsSent},
		{"neighbour_held", &c.NeighbourHeld},
		{"neighbour_resolved", &c.NeighbourResolved},
		{"neighbour_timeout", &c.NeighbourTimeout},
		{"neighbour_overflow", &c.NeighbourOverflow},
		{"malformed", &c.Malformed},
		{"inject_failed", &c.InjectFailed},
		{"send_failed", &c.SendFailed},
	}
	return func(yield func(string, uint64) bool) {
		for _, r := range rows {
			if !yield(r.name, r.v.Load()) {
				return
			}
		}
	}
}

// budget is a token bucket that holds one second's errors.
type budget struct {
	mu     sync.Mutex
	rate   int
	now    func() time.Time
	tokens float64
	last   time.Time
}

func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.last.IsZero() {
		b.tokens = float64(b.rate)
	} else {
		b.tokens = min(float64(b.rate), b.tokens+now.Sub(b.last).Seconds()*float64(b.rate))
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
