package store

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arena holds packed sessions outside of Go's heap. At a million sessions they are
// most of the memory: the collector would look at each time and again, and let the
// heap grow by a part of it. Released pieces are used again; the system gets
// nothing back.
type arena struct {
	mu   sync.Mutex
	rest []byte // of the last chunk
	// free has the released pieces, by their size in grains.
	free [arenaMost/arenaGrain + 1][]*byte
}

const (
	arenaGrain = 32
	arenaRoom  = 32   // a session grows, by its gNB's tunnel and by what it used
	arenaMost  = 4096 // longer pieces, which are few, are on the heap
	arenaChunk = 1 << 20
)

// memory is the arena of the process.
var memory arena

// put returns a copy of b. It is valid until release.
func (s *arena) put(b []byte) []byte {
	if len(b) > arenaMost {
		return append([]byte(nil), b...)
	}
	size := min(len(b)+arenaRoom, arenaMost)
	return append(s.take((size+arenaGrain-1)/arenaGrain), b...)
}

// replace is release of old and put of b.
func (s *arena) replace(old, b []byte) []byte {
	if len(b) <= cap(old) && cap(old) <= 2*len(b) {
		return append(old[:0], b...)
	}
	s.release(old)
	return s.put(b)
}

// take returns an empty piece of a number of grains.
func (s *arena) take(n int) []byte {
	size := n * arenaGrain
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.free[n]) - 1; last >= 0 {
		p := s.free[n][last]
		s.free[n] = s.free[n][:last]
		return unsafe.Slice(p, size)[:0]
	}
	if len(s.rest) < size {
		// All of it is used soon: a page fault for each page takes longer.
		chunk, err := unix.Mmap(-1, 0, arenaChunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		if err != nil { // as when Go's heap cannot grow
			panic("no memory for sessions: " + err.Error())
		}
		s.rest = chunk
	}
	p := s.rest[:0:size]
	s.rest = s.rest[size:]
	return p
}

// release takes back a piece that put returned.
func (s *arena) release(b []byte) {
	n := cap(b) / arenaGrain
	if n == 0 || cap(b) > arenaMost {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[n] = append(s.free[n], unsafe.SliceData(b))
}
