package slowpath

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Neighbour is a next hop on a link; or, without a link, a destination by the main table, whose
// next hop the data path could not ask the kernel for.
type Neighbour struct {
	Ifindex int
	Addr    netip.Addr
}

const (
	holdTime         = 3 * time.Second  // a frame: the kernel asks its neighbour three times, a second apart
	notAgain         = 10 * time.Second // to a destination without a link
	framesANeighbour = 101              // as Linux's own queue (unres_qlen)
	waitingBytes     = 4 << 20          // of all frames that wait
)

// held is a frame that waits for its next hop.
type held struct {
	Packet // with a copy of the frame
	until  time.Time
}

// waiting holds the frames that wait for neighbours.
type waiting struct {
	mu     sync.Mutex
	frames map[Neighbour][]held
	bytes  int
	// sent are destinations without a link whose frames were sent in again, and when: if they
	// come back, the data path has no such route, and would hand them up for ever.
	sent map[Neighbour]time.Time
}

// awaitNeighbour holds a frame and asks the kernel to resolve its next hop. If the
// neighbour has too many, the oldest one is dropped (RFC 4861 section 7.2.2); for too
// many neighbours, or too many bytes, the frame itself.
func (s *SlowPath) awaitNeighbour(p Packet) {
	if !p.NextHop.Addr.IsValid() || p.NextHop.Addr.IsUnspecified() || p.NextHop.Ifindex < 0 {
		s.Counters.Malformed.Add(1)
		return
	}
	w := &s.waiting
	w.mu.Lock()
	if at, sent := w.sent[p.NextHop]; sent && s.options.Now().Sub(at) < notAgain {
		w.mu.Unlock()
		s.Counters.NeighbourOverflow.Add(1)
		return
	}
	frames, there := w.frames[p.NextHop]
	if !there && len(w.frames) >= s.options.MaxNeighbours || w.bytes+len(p.Data) > waitingBytes {
		w.mu.Unlock()
		s.Counters.NeighbourOverflow.Add(1)
		return
	}
	if len(frames) >= framesANeighbour {
		s.Counters.NeighbourOverflow.Add(1)
		w.bytes -= len(frames[0].Data)
		frames = frames[1:]
	}
	w.bytes += len(p.Data)
	p.Data = bytes.Clone(p.Data)
	w.frames[p.NextHop] = append(frames, held{p, s.options.Now().Add(holdTime)})
	w.mu.Unlock()
	s.Counters.NeighbourHeld.Add(1)
	s.options.Resolve(p.NextHop)
}

// Retry sends the frames whose neighbours are known now through the data path, and gives
// up those that have waited too long, with an error to their sender. Call it when the
// network changes; Run calls it now and then.
func (s *SlowPath) Retry() {
	ready, late := s.take(s.options.Now())
	for _, h := range ready {
		if s.inject(h.Data, h.Ifindex) {
			s.Counters.NeighbourResolved.Add(1)
		}
	}
	for _, h := range late {
		s.Counters.NeighbourTimeout.Add(1)
		r := requestAbout(h.Packet)
		r.kind, r.code = destinationUnreachable, addressUnreachable
		s.ownError(r)
	}
}

// take removes the frames whose neighbour is known, and those that have waited too long.
func (s *SlowPath) take(now time.Time) (ready, late []held) {
	w := &s.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.sent, func(_ Neighbour, at time.Time) bool { return now.Sub(at) >= notAgain })
	for n, frames := range w.frames {
		if s.options.Resolved(n) {
			if n.Ifindex == 0 {
				w.sent[n] = now
			}
			ready = append(ready, frames...)
			delete(w.frames, n)
			continue
		}
		for len(frames) > 0 && !now.Before(frames[0].until) {
			late = append(late, frames[0])
			frames = frames[1:]
		}
		if w.frames[n] = frames; len(frames) == 0 {
			delete(w.frames, n)
		}
	}
	for _, h := range slices.Concat(ready, late) {
		w.bytes -= len(h.Data)
	}
	return ready, late
}
