package liveness

import (
	"slices"
	"time"
)

const (
	// window is how many probes may be on their way at a time, and how many round trips
	// are remembered.
	window = 256
	// firstAllowance is how long a probe may take as long as none has returned.
	firstAllowance = 200 * time.Millisecond
	// The delay of a list is the median of so many of its latest round trips; with fewer than
	// enough since it was dead it is not known.
	recent, enough = 32, 16
	// flows is how many flow labels the probes of a list take in turn: where paths have equal costs,
	// routers spread these over all of them.
	flows = 8
)

// monitor judges one list. Times are those of one monotonic clock.
type monitor struct {
	interval   time.Duration
	multiplier int

	next, settled uint32            // sequence numbers: of the next probe, and of the oldest that is not judged
	sent          [window]time.Time // by sequence number; zero: it has returned
	trips         [window]time.Duration
	trip          int // how many there were
	fresh         int // since it was dead

	slowest time.Duration // round trip, lately
	lost    int           // in a row
	back    int           // in a row
	dead    bool
}

// send notes that a probe leaves, and returns its sequence number. A full window means that
// the oldest is lost.
func (m *monitor) send(now time.Time) uint32 {
	if m.next-m.settled == window {
		m.lose()
	}
	seq := m.next
	m.sent[seq%window] = now
	m.next++
	return seq
}

// flow is which of the flows a probe is of. Each one has as many probes in a row as say that a list
// is dead: so it is dead where one flow is, and at once where all are.
func (m *monitor) flow(seq uint32) uint32 { return seq / uint32(m.multiplier) % flows }

// receive notes that a probe is back after a round trip. One that came before, or that nobody
// sent, says nothing.
func (m *monitor) receive(seq uint32, trip time.Duration) {
	if m.next-seq > window || seq >= m.next || m.sent[seq%window].IsZero() {
		return
	}
	m.sent[seq%window] = time.Time{}
	m.trips[m.trip%window] = trip
	m.trip++
	m.fresh++
	m.slowest = max(trip, m.slowest-m.slowest/64) // it grows at once and shrinks slowly
}

// allowance is how long a probe may take before it counts as lost.
func (m *monitor) allowance() time.Duration {
	if m.trip == 0 {
		return firstAllowance
	}
	return max(m.interval/2, 2*m.slowest)
}

// judge decides about the probes whose time is over, in the order in which they were sent.
// All that had arrived by now must have been received.
func (m *monitor) judge(now time.Time) {
	for m.settled != m.next {
		at := m.sent[m.settled%window]
		switch {
		case at.IsZero():
			m.settled++
			m.lost = 0
			if m.back++; m.back >= flows*m.multiplier { // those of all flows
				m.dead = false
			}
		case now.Sub(at) >= m.allowance():
			m.lose()
		default:
			return
		}
	}
}

// lose settles the oldest probe as lost. It may still return, and says how slow it was.
func (m *monitor) lose() {
	m.settled++
	m.back = 0
	if m.lost++; m.lost >= m.multiplier {
		m.dead, m.fresh = true, 0
	}
}

// median is of the latest round trips; zero: it is not known.
func (m *monitor) median() time.Duration {
	n := min(m.fresh, recent)
	if n < enough {
		return 0
	}
	var latest [recent]time.Duration
	for i := range n {
		latest[i] = m.trips[(m.trip-1-i)%window]
	}
	slices.Sort(latest[:n])
	return max(latest[n/2], 1)
}

// Delay is the round trip of the latest probes; zero: none has returned.
type Delay struct {
	Minimum time.Duration `json:"minimum"`
	Mean    time.Duration `json:"mean"`
	P99     time.Duration `json:"p99"`
}

func (m *monitor) delay() (d Delay) {
	n := min(m.trip, window)
	if n == 0 {
		return d
	}
	sorted := slices.Sorted(slices.Values(m.trips[:n]))
	var sum time.Duration
	for _, trip := range sorted {
		sum += trip
	}
	return Delay{sorted[0], sum / time.Duration(n), sorted[(n*99-1)/100]}
}
