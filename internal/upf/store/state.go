package store

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/upf/journal"
)

// MaxSlices bounds the slices that the data path counts and limits: those that
// exist, and those that existed since its tables were made.
const MaxSlices = 255

// SaveState keeps the state of the N4 server.
func (s *Store) SaveState(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = append([]byte(nil), b...)
	return s.journal.Append(journal.Record{Kind: journal.State, Body: s.state})
}

// State returns the state of the N4 server, or nil if any session was lost.
func (s *Store) State() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return nil
	}
	return s.state
}

// Lose notes that a session of the earlier process is lost.
func (s *Store) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

// SliceIndex returns the index of a slice, which its name keeps. A new name gets a
// free one, or else that of a slice that is not in stays.
func (s *Store) SliceIndex(name string, stays map[string]bool) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index, known := s.indices[name]; known {
		return index, nil
	}
	index := s.freeIndex(stays)
	if index == 0 {
		return 0, fmt.Errorf("the limit of %d slices is reached", MaxSlices)
	}
	if err := s.journal.Append(journal.Record{Kind: journal.Slice, SEID: uint64(index), Body: []byte(name)}); err != nil {
		return 0, err
	}
	s.indices[name] = index
	return index, nil
}

func (s *Store) freeIndex(stays map[string]bool) uint32 {
	names := map[uint32]string{}
	for name, index := range s.indices {
		names[index] = name
	}
	old := uint32(0)
	for index := uint32(1); index <= MaxSlices; index++ {
		name, taken := names[index]
		if !taken {
			return index
		}
		if !stays[name] && old == 0 {
			old = index
		}
	}
	if old != 0 {
		delete(s.indices, names[old])
	}
	return old
}
