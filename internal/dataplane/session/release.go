package session

import (
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// releases are what packets may still see, and what is to be done about each
// once they have left.
type releases struct {
	periods *table.Periods
	pending []release            // in the order in which they are due
	due     [releaseKinds]uint64 // period of the last one of a kind
	settled uint64               // what was due until this period is done
	resting map[uint32]uint64    // entries of pdr, and the period that they wait for
}

// release is something to be done once no packet sees what was.
type release struct {
	due   uint64
	kind  uint8
	rule  uint16
	index uint32
	to    uint32 // releaseFold: the entry that counts now; releaseGone: the session's slot
	// releaseFold: what was counted at index when that was copied.
	volume, refused uint64
}

const (
	releaseFold       = iota // what late packets counted at index belongs to another entry
	releaseGone              // index has the last volume of a rule that is gone
	releasePDR               // index is free
	releaseRun               // the run that begins at index is
	releaseMeter             // index is
	releaseQuota             // index is
	releaseForwarding        // index is
	releaseRest              // index may be written again
	releaseSlot              // the session's slot is free
	releaseKinds
)

// settle calls f for each release that is due.
func (r *releases) settle(f func(*release)) {
	ended := r.periods.Ended()
	r.settled = ended
	n := 0
	for ; n < len(r.pending) && r.pending[n].due <= ended; n++ {
		p := &r.pending[n]
		if p.kind == releaseRest && r.resting[p.index] == p.due {
			delete(r.resting, p.index)
		}
		f(p)
	}
	if n > 0 {
		r.pending = r.pending[:copy(r.pending, r.pending[n:])]
	}
}

// busyError says that something is free only after a grace period.
type busyError struct{ until uint64 }

func (*busyError) Error() string { return "packets are still on their way" }

// rested is nil if an entry may be written, otherwise *busyError.
func (r *releases) rested(index uint32) error {
	if until, ok := r.resting[index]; ok {
		return &busyError{until}
	}
	return nil
}

// fullOrBusy is full, unless room in that table comes back which was given up
// lately: by releases of that kind.
func (r *releases) fullOrBusy(kind uint8, full *table.FullError) error {
	if due := r.due[kind]; due > r.settled {
		return &busyError{due}
	}
	return full
}

// take takes an entry of a table. The error is *busyError if an entry becomes
// free soon, else *table.FullError.
func (r *releases) take(x *indexStack) (uint32, error) {
	if n := len(x.free); n > 0 {
		i := x.free[n-1]
		x.free = x.free[:n-1]
		return i, nil
	}
	if x.next < x.end {
		x.next++
		return x.next - 1, nil
	}
	return 0, r.fullOrBusy(x.back, &table.FullError{Table: x.table, Max: x.end - x.first, Limit: x.limit})
}
