package migrate

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// The largest arrays can be in our memory, so that entries which are 0 cost nothing: the system
// call takes a microsecond for each.

func isMapped(m *ebpf.Map) bool { return m.Flags()&unix.BPF_F_MMAPABLE != 0 && m.ValueSize()%8 == 0 }

// readMapped calls f for the entries that are not 0.
func readMapped(m *ebpf.Map, f func(index uint32, value []byte) error) (err error) {
	words, err := table.Map(m)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	defer func() { err = errors.Join(err, table.Unmap(words)) }()
	stride := int(m.ValueSize() / 8)
	for i := range m.MaxEntries() {
		entry := words[int(i)*stride:][:stride]
		used := uint64(0)
		for _, w := range entry {
			used |= w
		}
		if used == 0 {
			continue
		}
		if err := f(i, octetsOfWords(entry)); err != nil {
			return err
		}
	}
	return nil
}

// copyMapped copies an array into one that no packet reads.
func (t *Table) copyMapped() (err error) {
	words, err := table.Map(t.Map)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	defer func() { err = errors.Join(err, table.Unmap(words)) }()
	stride := int(t.Map.ValueSize() / 8)
	value := make([]byte, t.value.size)
	return readMapped(t.From, func(i uint32, from []byte) error {
		index := t.Moves.To(i)
		if index == 0 && i != 0 {
			return nil
		}
		clear(value)
		t.value.convert(value, from)
		if !isUsed(value) {
			return nil
		}
		for _, edit := range t.edits {
			if !edit(i, nil, value) {
				return nil
			}
		}
		if index >= t.Map.MaxEntries() {
			return fmt.Errorf("%w: it holds entry %d of %d", ErrTooSmall, index, t.Map.MaxEntries())
		}
		copy(octetsOfWords(words[int(index)*stride:][:stride]), value)
		return nil
	})
}

func octetsOfWords(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*len(w))
}
