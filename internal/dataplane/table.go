package dataplane

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// table is a map of which we know the contents, so that nothing is written
// where nothing changes, and an entry of an earlier daemon is recognised.
type table[K, V comparable] struct {
	name  string
	limit string
	m     *ebpf.Map
	have  map[K]V
	// kept holds what was put since Open, until Sweep.
	kept map[K]bool
	// changed, if any, runs after each write.
	changed func()
}

// openTable reads what is there.
func openTable[K, V comparable](name, limit string, m *ebpf.Map) (*table[K, V], error) {
	t := &table[K, V]{name: name, limit: limit, m: m, have: map[K]V{}, kept: map[K]bool{}}
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		t.have[k] = v
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read table %s: %w", name, err)
	}
	return t, nil
}

func (t *table[K, V]) put(k K, v V) error {
	if old, ok := t.have[k]; !ok || old != v {
		if err := t.m.Put(&k, &v); err != nil {
			if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
				return &FullError{Table: t.name, Max: t.m.MaxEntries(), Limit: t.limit}
			}
			return fmt.Errorf("write table %s: %w", t.name, err)
		}
		t.have[k] = v
		t.wrote()
	}
	if t.kept != nil {
		t.kept[k] = true
	}
	return nil
}

// del removes an entry; one that is not there is not an error.
func (t *table[K, V]) del(k K) error {
	if _, ok := t.have[k]; !ok {
		return nil
	}
	if err := t.m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete from table %s: %w", t.name, err)
	}
	delete(t.have, k)
	delete(t.kept, k)
	t.wrote()
	return nil
}

func (t *table[K, V]) wrote() {
	if t.changed != nil {
		t.changed()
	}
}

// stale lists what was not put since Open.
func (t *table[K, V]) stale() map[K]V {
	out := maps.Clone(t.have)
	for k := range t.kept {
		delete(out, k)
	}
	return out
}

// readArray is an array by index, in one call: the daemon is not in service before
// it has read them.
func readArray[V any](m *ebpf.Map) ([]V, error) {
	keys, values := make([]uint32, m.MaxEntries()), make([]V, m.MaxEntries())
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which is the end
		return nil, fmt.Errorf("read %s: %w", m, err)
	}
	return values[:n], nil
}

// names is what indices mean, for a daemon that starts again.
type names struct {
	table *table[abi.NameKey, [nameLength]byte]
}

const nameLength = 128

// Kinds of names (bpf/maps.h).
const (
	namePolicy    = 1
	nameTunnel    = 4
	nameAdjacency = 5
)

func (n *names) put(kind, index uint32, name string) error {
	var text [nameLength]byte
	if len(name) > nameLength {
		return fmt.Errorf("name %q is longer than %d bytes", name, nameLength)
	}
	copy(text[:], name)
	return n.table.put(abi.NameKey{Kind: kind, Index: index}, text)
}

func (n *names) del(kind, index uint32) error {
	return n.table.del(abi.NameKey{Kind: kind, Index: index})
}

// all is every name of a kind, by index.
func (n *names) all(kind uint32) map[uint32]string {
	out := map[uint32]string{}
	for k, text := range n.table.have {
		if k.Kind == kind {
			end := 0
			for end < len(text) && text[end] != 0 {
				end++
			}
			out[k.Index] = string(text[:end])
		}
	}
	return out
}
