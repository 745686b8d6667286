package adjacency

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Sources is the table source: outer source addresses that tunnels share. Its
// callers hold the data path's lock.
type Sources struct {
	m       *ebpf.Map
	indexes *table.Indexes
	entries map[abi.In6]*source
}

type source struct {
	index uint32
	refs  int
}

// OpenSources takes the map and reads what an earlier daemon put.
func OpenSources(m *ebpf.Map, grace *table.Grace) (*Sources, error) {
	s := &Sources{m: m, entries: map[abi.In6]*source{}, indexes: table.NewIndexes(grace, abi.MapSource, "", 1, m.MaxEntries())}
	taken := map[uint32]bool{}
	indexes, addresses, err := table.ReadAll[uint32, abi.In6](m)
	for i, a := range addresses {
		if index := indexes[i]; index != 0 && a != (abi.In6{}) && s.entries[a] == nil {
			taken[index] = true
			s.entries[a] = &source{index: index}
		}
	}
	s.indexes.Restore(taken)
	return s, err
}

// Acquire refers to an outer source and returns its index; 0 for none.
func (s *Sources) Acquire(a abi.In6) (uint32, error) {
	if a == (abi.In6{}) {
		return 0, nil
	}
	if e := s.entries[a]; e != nil {
		e.refs++
		return e.index, nil
	}
	index, err := s.indexes.Alloc()
	if err != nil {
		return 0, err
	}
	if err := s.m.Put(index, &a); err != nil {
		s.indexes.Retire(index)
		return 0, fmt.Errorf("write table source: %w", err)
	}
	s.entries[a] = &source{index: index, refs: 1}
	return index, nil
}

// Release ends a reference.
func (s *Sources) Release(a abi.In6) {
	e := s.entries[a]
	if e == nil {
		return
	}
	if e.refs--; e.refs <= 0 {
		delete(s.entries, a)
		s.indexes.Retire(e.index)
	}
}

// Sweep forgets what nothing refers to.
func (s *Sources) Sweep() {
	for a, e := range s.entries {
		if e.refs == 0 {
			delete(s.entries, a)
			s.indexes.Retire(e.index)
		}
	}
}

// Usage says how full the table is.
func (s *Sources) Usage() table.Usage { return s.indexes.Usage() }

// IndexOf is the index of a source that something refers to; 0: none.
func (s *Sources) IndexOf(a abi.In6) uint32 {
	if e := s.entries[a]; e != nil {
		return e.index
	}
	return 0
}
