package port

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// shared hands out the entries of a table that ports name. Those that are equal are one;
// an entry that a port names is never changed.
type shared[V comparable] struct {
	m       *ebpf.Map
	index   *table.Indexes
	entries map[V]*sharedEntry
}

type sharedEntry struct {
	index uint32
	ports map[int]bool // by ifindex
}

// openShared finds the entries that the ports of an earlier daemon name, by ifindex: they
// stay until this one has set or cleared each of these ports.
func openShared[V comparable](m *ebpf.Map, name string, named map[int]uint8, grace *table.Grace) (*shared[V], error) {
	s := &shared[V]{m, table.NewIndexes(grace, name, "", 1, m.MaxEntries()), map[V]*sharedEntry{}}
	taken := map[uint32]bool{}
	for ifindex, index := range named {
		if index == 0 {
			continue
		}
		var entry V
		if err := m.Lookup(uint32(index), &entry); err != nil {
			return nil, fmt.Errorf("read table %s: %w", name, err)
		}
		if s.entries[entry] == nil {
			s.entries[entry] = &sharedEntry{uint32(index), map[int]bool{}}
		}
		s.entries[entry].ports[ifindex] = true
		taken[uint32(index)] = true
	}
	s.index.Restore(taken)
	return s, nil
}

// take returns the index of an entry for a port; 0 where there is nothing to say.
func (s *shared[V]) take(ifindex int, want V) (uint8, error) {
	var nothing V
	if want == nothing {
		return 0, nil
	}
	e := s.entries[want]
	if e == nil {
		index, err := s.index.Alloc()
		if err != nil {
			return 0, err
		}
		if err := s.m.Put(index, &want); err != nil {
			s.index.Retire(index)
			return 0, fmt.Errorf("write %s: %w", s.m, err)
		}
		e = &sharedEntry{index, map[int]bool{}}
		s.entries[want] = e
	}
	e.ports[ifindex] = true
	return uint8(e.index), nil
}

// leave takes a port off all entries but one, and gives back what no port names then.
func (s *shared[V]) leave(ifindex int, but uint8) {
	for entry, e := range s.entries {
		if e.index == uint32(but) {
			continue
		}
		if delete(e.ports, ifindex); len(e.ports) == 0 {
			delete(s.entries, entry)
			s.index.Retire(e.index)
		}
	}
}
