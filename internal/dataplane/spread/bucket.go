package spread

import (
	"errors"
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Buckets are what UEs hash to; those from Buckets on, what the flows hash to of UEs
// whose bucket is split.
const (
	Buckets    = int(abi.SpreadLimitsSPREAD_BUCKETS)
	SubBuckets = int(abi.SpreadLimitsSPREAD_FLOW_BUCKETS)
)

// Words of the tables' entries.
const (
	wordPlace = 0
	wordNext  = 1 // the place in the lower half, moves in the upper
	wordDone  = 8

	wordSent     = 0
	wordFull     = 2
	wordReceived = 8
)

// place is a SPREAD_PLACE of bpf/def/spread.h.
type place uint32

const (
	split  = place(abi.SpreadPlaceSPREAD_SPLIT)
	here   = place(abi.SpreadPlaceSPREAD_HERE)
	second = place(abi.SpreadPlaceSPREAD_SECOND)

	empties = place(abi.SpreadPlaceSPREAD_EMPTIES)

	counted = 1<<abi.SpreadLimitsSPREAD_PLACE_SHIFT - 1
)

func (p place) queued() bool { return p != split && p != here }
func (p place) cpu() int     { return int(p &^ second) }
func (p place) second() bool { return p&second != 0 }
func (p place) word() uint64 { return uint64(p) << abi.SpreadLimitsSPREAD_PLACE_SHIFT }

func (s *Spread) placeOf(cpu int) place {
	if s.second {
		return place(cpu) | second
	}
	return place(cpu)
}

func (s *Spread) at(i uint32) place {
	return place(s.t.Buckets.Load(i, wordPlace) >> abi.SpreadLimitsSPREAD_PLACE_SHIFT)
}

func (s *Spread) next(i uint32) place {
	return place(s.t.Buckets.LoadHalf(i, wordNext, 0)) &^ empties
}

func (s *Spread) aim(i uint32, p place) { s.t.Buckets.StoreHalf(i, wordNext, 0, uint32(p)) }

// Bucket is where packets go.
type Bucket struct {
	CPU   int  // that handles them; -1: the one that received them, or Split
	Next  int  // the CPU that it moves to; CPU unless it moves
	Split bool // flows go where their buckets say
	In    uint64
	Done  uint64 // packets of In that are handled
	Moves uint32 // that are done
}

// Buckets are all Buckets + SubBuckets.
func (s *Spread) Buckets() []Bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Bucket, s.t.Buckets.Len)
	for i := range out {
		done := s.t.Buckets.Load(uint32(i), wordDone)
		word := s.t.Buckets.Load(uint32(i), wordPlace)
		at, next := place(word>>abi.SpreadLimitsSPREAD_PLACE_SHIFT), s.next(uint32(i))
		out[i] = Bucket{
			CPU: cpuOf(at), Next: cpuOf(next), Split: at == split, In: word & counted, Done: done,
			Moves: s.t.Buckets.LoadHalf(uint32(i), wordNext, 1),
		}
	}
	return out
}

func cpuOf(p place) int {
	if !p.queued() {
		return -1
	}
	return p.cpu()
}

// Move sends a bucket to a CPU that Set named.
func (s *Spread) Move(bucket, cpu int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aim(uint32(bucket), s.placeOf(cpu))
}

// Split sends the flows of one of the first Buckets where their buckets say, until the
// bucket moves.
func (s *Spread) Split(bucket int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aim(uint32(bucket), split)
}

// scatter gives each bucket that is on no wanted CPU one of those, in turn.
func (s *Spread) scatter() {
	wanted, load := map[int]bool{}, map[int]int{}
	for _, cpu := range s.cpus {
		wanted[cpu] = true
	}
	var homeless []uint32
	for i := range s.t.Buckets.Len {
		switch p := s.next(i); {
		case p == split:
		case p.queued() && wanted[p.cpu()]:
			load[p.cpu()]++
		default:
			homeless = append(homeless, i)
		}
	}
	for _, i := range homeless {
		least := s.cpus[0]
		for _, cpu := range s.cpus {
			if load[cpu] < load[least] {
				least = cpu
			}
		}
		s.aim(i, s.placeOf(least))
		load[least]++
	}
}

// Queue is what a CPU gets.
type Queue struct {
	CPU  int
	In   uint64 // packets that were sent to it
	Done uint64 // packets of these that it handled
	Full uint64 // packets that had no room (reason queue_full)
}

// Queues are those of the CPUs that Set named.
func (s *Spread) Queues() []Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Queue, 0, len(s.cpus))
	for _, cpu := range s.cpus {
		q := Queue{CPU: cpu}
		for _, i := range []uint32{2 * uint32(cpu), 2*uint32(cpu) + 1} {
			q.Done += s.t.Queues.Load(i, wordReceived)
			q.In += s.t.Queues.Load(i, wordSent)
			q.Full += s.t.Queues.Load(i, wordFull)
		}
		out = append(out, q)
	}
	return out
}

// Settle moves the buckets that wait for a packet that does not come, and ends queues
// that nobody uses. Call it now and then. lost is how many packets, since Open, the
// kernel is known to have dropped between the CPUs.
func (s *Spread) Settle() (lost uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settle() == 0 {
		err = s.reap()
	}
	return s.lost, err
}

// settle does what the next packet of a bucket would do, and returns how many buckets
// still wait.
func (s *Spread) settle() (waiting int) {
	for i := range s.t.Buckets.Len {
		next := s.next(i)
		done := s.t.Buckets.Load(i, wordDone) // first, so that no more seem done than came
		word := s.t.Buckets.Load(i, wordPlace)
		at := place(word >> abi.SpreadLimitsSPREAD_PLACE_SHIFT)
		if at == next {
			delete(s.waits, i)
			continue
		}
		if word&counted != done {
			waiting++
			s.unstick(i, at, next, word&counted-done)
			continue
		}
		if !s.t.Buckets.Swap(i, wordPlace, word, next.word()|done) {
			waiting++
		} else if at != here { // from one CPU to another
			add(s.t.Buckets, i, wordNext, 1<<32)
		}
	}
	return waiting
}

// A packet between two CPUs is on its way for less than patience: after so long and as
// many looks the kernel has dropped it.
const (
	patience = 100 * time.Millisecond
	looks    = 10
)

// missing is what a bucket or a queue lacks, each time that one looks.
type missing struct {
	packets uint64
	same    int // looks
	from    time.Time
}

// isLost says whether packets of a bucket or queue are not on their way any more.
func (m *missing) isLost(packets uint64, now time.Time) bool {
	if m.packets != packets {
		*m = missing{packets: packets, from: now}
	}
	m.same++
	return m.same >= looks && now.Sub(m.from) >= patience
}

// wait is a bucket that is to move.
type wait struct {
	missing

	since time.Time
	full  uint64 // packets that its queue had no room for then
	busy  bool   // it gets no room
}

// unstick lets a bucket go on that waits for packets which the kernel dropped, or in a
// queue that has been overflowing: then it gets no room there until it moves.
func (s *Spread) unstick(i uint32, at, next place, lacks uint64) {
	now := time.Now()
	w := s.waits[i]
	if w == nil {
		w = &wait{since: now, full: s.fullAt(at)}
		s.waits[i] = w
	}
	if !w.busy && now.Sub(w.since) >= patience && s.fullAt(at) > w.full {
		w.busy = true
		s.aim(i, next|empties)
	}
	if !w.isLost(lacks, now) {
		return
	}
	delete(s.waits, i)
	add(s.t.Buckets, i, wordDone, lacks)
	s.lost += lacks
}

// fullAt is how many packets a queue had no room for.
func (s *Spread) fullAt(p place) uint64 {
	if !p.queued() {
		return 0
	}
	return s.t.Queues.Load(2*uint32(p.cpu())+uint32(index(p.second())), wordFull)
}

// add does so while packets are counted.
func add[T any](t *table.Array[T], i uint32, word int, n uint64) {
	for v := t.Load(i, word); !t.Swap(i, word, v, v+n); v = t.Load(i, word) {
	}
}

// reap ends the queues that no bucket is in, once they are empty.
func (s *Spread) reap() error {
	used := map[place]bool{}
	for i := range s.t.Buckets.Len {
		used[s.at(i)], used[s.next(i)] = true, true
	}
	for _, cpu := range s.cpus {
		used[s.placeOf(cpu)] = true
	}
	var errs []error
	for i := range s.t.Queues.Len {
		p := place(i / 2)
		if i%2 == 1 {
			p |= second
		}
		if used[p] || s.t.Queues.Load(i, wordSent) != s.t.Queues.Load(i, wordReceived) {
			continue
		}
		if s.hasQueue(p.cpu(), p.second()) {
			errs = append(errs, s.closeQueue(p))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end unused queues: %w", err)
	}
	return nil
}
