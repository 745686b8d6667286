package table

import (
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Hash is a map of which we know the contents, so that nothing is written
// where nothing changes, and an entry of an earlier daemon is recognised.
type Hash[K, V comparable] struct {
	name  string
	limit string
	m     writer
	have  map[K]V
	// kept holds what was put since Open, until Sweep.
	kept map[K]bool
}

// writer is what a Hash needs of *ebpf.Map.
type writer interface {
	Put(key, value any) error
	Delete(key any) error
	MaxEntries() uint32
}

// memory stands for a map that no data path reads.
type memory struct{ max uint32 }

func (memory) Put(_, _ any) error   { return nil }
func (memory) Delete(any) error     { return nil }
func (m memory) MaxEntries() uint32 { return m.max }

// NewHash is an empty table that no data path reads.
func NewHash[K, V comparable](name string, max uint32) *Hash[K, V] {
	return &Hash[K, V]{name: name, m: memory{max}, have: map[K]V{}, kept: map[K]bool{}}
}

// open reads what is there.
func (t *Hash[K, V]) open(m *ebpf.Map, name, limit string) error {
	*t = Hash[K, V]{name: name, limit: limit, m: m, have: map[K]V{}, kept: map[K]bool{}}
	keys, values := make([]K, readAtOnce), make([]V, readAtOnce)
	var at ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&at, keys, values, nil)
		for i := range n {
			t.have[keys[i]] = values[i]
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist): // that was the last
			return nil
		case errors.Is(err, ebpf.ErrNotSupported): // by maps of this type
			return t.readEach(m)
		case err != nil:
			return fmt.Errorf("read: %w", err)
		}
	}
}

// readAtOnce is how many entries a system call reads. The kernel gives the entries of a
// bucket together, which are fewer.
const readAtOnce = 4096

// readEach reads one entry after the other.
func (t *Hash[K, V]) readEach(m *ebpf.Map) error {
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		t.have[k] = v
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

func (*Hash[K, V]) close() error { return nil }

// Put writes an entry, unless the table has the same (*FullError).
func (t *Hash[K, V]) Put(k K, v V) error {
	if old, ok := t.have[k]; !ok || old != v {
		if err := t.m.Put(&k, &v); err != nil {
			if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
				return &FullError{Table: t.name, Max: t.m.MaxEntries(), Limit: t.limit}
			}
			return fmt.Errorf("write table %s: %w", t.name, err)
		}
		t.have[k] = v
	}
	if t.kept != nil {
		t.kept[k] = true
	}
	return nil
}

// Delete removes an entry; one that is not there is not an error.
func (t *Hash[K, V]) Delete(k K) error {
	if _, ok := t.have[k]; !ok {
		return nil
	}
	if err := t.m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete from table %s: %w", t.name, err)
	}
	delete(t.have, k)
	delete(t.kept, k)
	return nil
}

// Get is the value of a key; the zero value where the table has none.
func (t *Hash[K, V]) Get(k K) V { return t.have[k] }

// Lookup is the value of a key, and whether the table has one.
func (t *Hash[K, V]) Lookup(k K) (V, bool) {
	v, ok := t.have[k]
	return v, ok
}

// Len is the number of entries.
func (t *Hash[K, V]) Len() int { return len(t.have) }

// Usage is how many entries there are, and how many there can be.
func (t *Hash[K, V]) Usage() Usage { return Usage{len(t.have), int(t.m.MaxEntries())} }

// All are the entries. Deleting some meanwhile is allowed.
func (t *Hash[K, V]) All() iter.Seq2[K, V] { return maps.All(t.have) }

// Stale lists what an earlier daemon put and this one has not: nothing after
// Settle.
func (t *Hash[K, V]) Stale() map[K]V {
	if t.kept == nil {
		return nil
	}
	out := maps.Clone(t.have)
	for k := range t.kept {
		delete(out, k)
	}
	return out
}

// Sweep deletes what is stale.
func (t *Hash[K, V]) Sweep() error {
	var errs []error
	for k := range t.Stale() {
		errs = append(errs, t.Delete(k))
	}
	return errors.Join(errs...)
}

// Settle ends the time in which entries may be stale.
func (t *Hash[K, V]) Settle() { t.kept = nil }

// ReadAll reads a map, an array by index, in one call: the daemon is not in service
// before it has read some of them.
func ReadAll[K, V any](m *ebpf.Map) ([]K, []V, error) {
	keys, values := make([]K, m.MaxEntries()), make([]V, m.MaxEntries())
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which is the end
		return nil, nil, fmt.Errorf("read %s: %w", m, err)
	}
	return keys[:n], values[:n], nil
}
