package port

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// user names an entry of a shared table: a port, or an origin of its packets.
type user struct {
	ifindex int
	origin  abi.Lpm6Key // key of class_by_source; the zero value: the port itself
}

// shared hands out the entries of a table that users name. Those that are equal are one;
// an entry that a user names is never changed.
type shared[V comparable] struct {
	m       *ebpf.Map
	index   *table.Indexes
	entries map[V]*sharedEntry
	values  map[uint32]V // by index
	of      map[user]map[uint32]bool
}

type sharedEntry struct {
	index uint32
	users int
}

// openShared finds the entries that the users of an earlier daemon name: they stay until
// this one has set or cleared each of these users.
func openShared[V comparable](m *ebpf.Map, name string, named map[user]uint32, grace *table.Grace) (*shared[V], error) {
	s := &shared[V]{m, table.NewIndexes(grace, name, "", 1, m.MaxEntries()), map[V]*sharedEntry{}, map[uint32]V{}, map[user]map[uint32]bool{}}
	taken := map[uint32]bool{}
	for u, index := range named {
		if index == 0 {
			continue
		}
		var entry V
		if err := m.Lookup(index, &entry); err != nil {
			return nil, fmt.Errorf("read table %s: %w", name, err)
		}
		if s.entries[entry] == nil {
			s.entries[entry], s.values[index] = &sharedEntry{index: index}, entry
		}
		s.use(u, s.entries[entry])
		taken[index] = true
	}
	s.index.Restore(taken)
	return s, nil
}

func (s *shared[V]) use(u user, e *sharedEntry) {
	if s.of[u] == nil {
		s.of[u] = map[uint32]bool{}
	}
	if !s.of[u][e.index] {
		s.of[u][e.index] = true
		e.users++
	}
}

// take returns the index of an entry for a user; 0 where there is nothing to say.
func (s *shared[V]) take(u user, want V) (uint32, error) {
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
		e = &sharedEntry{index: index}
		s.entries[want], s.values[index] = e, want
	}
	s.use(u, e)
	return e.index, nil
}

// leave takes a user off all entries but one, and gives back what no user names then.
func (s *shared[V]) leave(u user, but uint32) {
	for index := range s.of[u] {
		if index == but {
			continue
		}
		delete(s.of[u], index)
		entry := s.values[index]
		if e := s.entries[entry]; e.users > 1 {
			e.users--
			continue
		}
		delete(s.entries, entry)
		delete(s.values, index)
		s.index.Retire(index)
	}
	if len(s.of[u]) == 0 {
		delete(s.of, u)
	}
}
