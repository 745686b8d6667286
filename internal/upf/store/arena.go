package upf

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// store holds what is packed outside of Go's heap. At a million sessions it is
// most of the memory: the collector would look at each piece time and again,
// and let the heap grow by a part of it. What was released is used again, and
// nothing is given back to the system.
type store struct {
	mu   sync.Mutex
	rest []byte // of the last chunk
	// free are pieces by their size in grains.
	free [storeMost/storeGrain + 1][]*byte
}

const (
	storeGrain = 32
	storeRoom  = 32   // to grow: a session does, with its gNB's tunnel and what it used
	storeMost  = 4096 // what is longer is on the heap: few sessions are
	storeChunk = 1 << 20
)

// memory is for all sessions of the process.
var memory store

// put is a copy of b, until it is released: nobody may look at it later.
func (s *store) put(b []byte) []byte {
	if len(b) > storeMost {
		return append([]byte(nil), b...)
	}
	size := min(len(b)+storeRoom, storeMost)
	return append(s.take((size+storeGrain-1)/storeGrain), b...)
}

// replace is put and release.
func (s *store) replace(old, b []byte) []byte {
	if len(b) <= cap(old) && cap(old) <= 2*len(b) {
		return append(old[:0], b...)
	}
	s.release(old)
	return s.put(b)
}

// take is an empty piece of a number of grains.
func (s *store) take(n int) []byte {
	size := n * storeGrain
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.free[n]) - 1; last >= 0 {
		p := s.free[n][last]
		s.free[n] = s.free[n][:last]
		return unsafe.Slice(p, size)[:0]
	}
	if len(s.rest) < size {
		chunk, err := unix.Mmap(-1, 0, storeChunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil { // as where Go's heap cannot grow
			panic("no memory for sessions: " + err.Error())
		}
		s.rest = chunk
	}
	p := s.rest[:0:size]
	s.rest = s.rest[size:]
	return p
}

// release takes back what put returned.
func (s *store) release(b []byte) {
	n := cap(b) / storeGrain
	if n == 0 || cap(b) > storeMost {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[n] = append(s.free[n], unsafe.SliceData(b))
}
