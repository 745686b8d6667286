package migrate

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// ErrUnlike says that entries of one map cannot become entries of another.
var ErrUnlike = errors.New("the tables are too different")

// ErrTooSmall says that a map has not enough entries for those of another.
var ErrTooSmall = errors.New("the table is too small for what the former one holds")

// batch is how many entries of an array are read at once.
const batch = 4096

// Table is a map of this build that is to hold what one of another build does.
type Table struct {
	Map  *ebpf.Map
	Spec *ebpf.MapSpec
	From *ebpf.Map
	// FormerKey and FormerValue are the types of From; nil: the kernel knows them, and tells
	// them to who has CAP_SYS_ADMIN.
	FormerKey, FormerValue btf.Type
	// Moves are the new indices of an array's entries.
	Moves Moves

	edits      []Edit
	more       []entry
	counted    []counter.Counter // by former index: see Counts
	key, value conversion
}

// Edit changes an entry, in the layout of this build, before it is written. index is the former
// one of an array's entry. It returns false for an entry that is left out.
type Edit func(index uint32, key, value []byte) bool

type entry struct{ key, value []byte }

// Copy fills the table, which no packet reads. (ErrUnlike, ErrTooSmall.)
func (t *Table) Copy() error {
	if err := t.compare(); err != nil {
		return err
	}
	switch t.Spec.Type {
	case ebpf.Array:
		return t.copyArray(1)
	case ebpf.PerCPUArray:
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		return t.copyArray(cpus)
	case ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie:
		return t.copyEntries()
	default:
		return fmt.Errorf("%w: of type %s", ErrUnlike, t.Spec.Type)
	}
}

// Each calls f for the entries of the former table, as they are in the layout of this build:
// of an array those that are not 0, with their former index. key and value are good until f
// returns.
func (t *Table) Each(f func(index uint32, key, value []byte)) error {
	if err := t.compare(); err != nil {
		return err
	}
	switch t.Spec.Type {
	case ebpf.Array:
		value := make([]byte, t.value.size)
		each := func(index uint32, from []byte) {
			clear(value)
			t.value.convert(value, from)
			f(index, nil, value)
		}
		if isMapped(t.From) {
			return readMapped(t.From, func(index uint32, from []byte) error {
				each(index, from)
				return nil
			})
		}
		return t.readArray(1, func(keys []uint32, values reflect.Value) error {
			for i, key := range keys {
				if from := values.Index(i).Bytes(); isUsed(from) {
					each(key, from)
				}
			}
			return nil
		})
	case ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie:
		return t.readEntries(func(key, value []byte) error {
			f(0, key, value)
			return nil
		})
	default:
		return fmt.Errorf("%w: of type %s", ErrUnlike, t.Spec.Type)
	}
}

// compare finds out what of the former entries becomes what of the new ones.
func (t *Table) compare() error {
	if t.Spec.Type != t.From.Type() {
		return fmt.Errorf("%w: %s, formerly %s", ErrUnlike, t.Spec.Type, t.From.Type())
	}
	if err := t.findTypes(); err != nil {
		return err
	}
	if !hasSize(t.FormerKey, t.From.KeySize()) || !hasSize(t.FormerValue, t.From.ValueSize()) {
		return fmt.Errorf("%w: the former types are of another size than the entries", ErrUnlike)
	}
	if t.FormerKey == nil && t.Spec.KeySize != t.From.KeySize() || t.FormerValue == nil && t.Spec.ValueSize != t.From.ValueSize() {
		return fmt.Errorf("%w: the former types are not known", ErrUnlike)
	}
	if t.FormerValue != nil && isStruct(t.Spec.Value) && t.FormerValue.TypeName() != t.Spec.Value.TypeName() {
		return fmt.Errorf("%w: %s, formerly %s", ErrUnlike, t.Spec.Value.TypeName(), t.FormerValue.TypeName())
	}
	var err error
	if t.key, err = newConversion(t.Spec.Key, t.FormerKey, t.Spec.KeySize, t.From.KeySize()); err != nil {
		return err
	}
	t.value, err = newConversion(t.Spec.Value, t.FormerValue, t.Spec.ValueSize, t.From.ValueSize())
	return err
}

// hasSize says whether a type has a size; one that is not known may have any.
func hasSize(t btf.Type, octets uint32) bool {
	if t == nil {
		return true
	}
	size, err := btf.Sizeof(t)
	return err == nil && uint32(size) == octets
}

func isStruct(t btf.Type) bool {
	_, is := t.(*btf.Struct)
	return is
}

// findTypes asks the kernel for types that are not known.
func (t *Table) findTypes() error {
	if t.FormerKey != nil || t.FormerValue != nil {
		return nil
	}
	types, err := typesOf(t.From)
	if err != nil {
		return err
	}
	t.FormerKey = formerType(types, t.Spec.Key, t.From.KeySize())
	t.FormerValue = formerType(types, t.Spec.Value, t.From.ValueSize())
	return nil
}

// typesOf are the types that a map was made with; nil: none.
func typesOf(m *ebpf.Map) (*btf.Spec, error) {
	info, err := m.Info()
	if err != nil {
		return nil, err
	}
	id, ok := info.BTFID()
	if !ok || id == 0 {
		return nil, nil
	}
	handle, err := btf.NewHandleFromID(id)
	if err != nil {
		return nil, fmt.Errorf("types of %s: %w", m, err)
	}
	defer handle.Close()
	return handle.Spec(nil)
}

// formerType is the type of the same name and of the map's size. Types without a name are
// the same in all builds.
func formerType(types *btf.Spec, of btf.Type, size uint32) btf.Type {
	if of == nil || types == nil {
		return nil
	}
	if of.TypeName() == "" {
		return of
	}
	named, err := types.AnyTypesByName(of.TypeName())
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(named, func(t btf.Type) bool {
		n, err := btf.Sizeof(t)
		return err == nil && uint32(n) == size
	})
	if i < 0 {
		return nil
	}
	return named[i]
}

// copyArray copies entries, each to its index. each is how many values an entry has.
func (t *Table) copyArray(each int) error {
	if each > 1 && (t.value.size%8 != 0 || t.value.was%8 != 0) { // the kernel rounds them up
		return fmt.Errorf("%w: values of CPUs of %d octets, formerly %d", ErrUnlike, t.value.size, t.value.was)
	}
	if each == 1 && isMapped(t.From) && isMapped(t.Map) {
		return t.copyMapped()
	}
	return t.readArray(each, func(keys []uint32, values reflect.Value) error { return t.putBatch(keys, values, each) })
}

// readArray calls f for a batch of entries after another.
func (t *Table) readArray(each int, f func(keys []uint32, values reflect.Value) error) error {
	var cursor ebpf.MapBatchCursor
	keys := make([]uint32, batch)
	values := octets(batch*each, t.value.was)
	for end := false; !end; {
		n, err := t.From.BatchLookup(&cursor, keys, values.Interface(), nil)
		if end = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !end {
			return fmt.Errorf("read: %w", err)
		}
		if err := f(keys[:n], values); err != nil {
			return err
		}
	}
	return nil
}

func isUsed(value []byte) bool {
	return slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
}

// octets is a slice of n values of a size.
func octets(n int, size uint32) reflect.Value {
	return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(size), reflect.TypeFor[byte]())), n, n)
}

// putBatch writes the entries that are not 0: the others are already.
func (t *Table) putBatch(keys []uint32, values reflect.Value, each int) error {
	var put []uint32
	next := octets(len(keys)*each, t.value.size)
	for i, key := range keys {
		index := t.Moves.To(key)
		if index == 0 && key != 0 {
			continue
		}
		used, kept := false, true
		var sum counter.Counter
		for cpu := range each {
			from, to := values.Index(i*each+cpu).Bytes(), next.Index(len(put)*each+cpu).Bytes()
			clear(to)
			t.value.convert(to, from)
			used = used || isUsed(to)
			if t.counted != nil {
				sum.Add(counterOf(from))
			}
			for _, edit := range t.edits {
				kept = kept && edit(key, nil, to)
			}
		}
		if t.counted != nil {
			t.counted[key] = sum
		}
		if !used || !kept {
			continue
		}
		if index >= t.Map.MaxEntries() {
			return fmt.Errorf("%w: it holds entry %d of %d", ErrTooSmall, index, t.Map.MaxEntries())
		}
		put = append(put, index)
	}
	if len(put) == 0 {
		return nil
	}
	if _, err := t.Map.BatchUpdate(put, next.Slice(0, len(put)*each).Interface(), nil); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// copyEntries copies entries of the same key, and adds more.
func (t *Table) copyEntries() error {
	err := t.readEntries(func(key, value []byte) error {
		for _, edit := range t.edits {
			if !edit(0, key, value) {
				return nil
			}
		}
		return t.put(key, value)
	})
	for _, e := range t.more {
		if err == nil {
			err = t.put(e.key, e.value)
		}
	}
	return err
}

func (t *Table) put(key, value []byte) error {
	if err := t.Map.Put(key, value); errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w: it has %d entries", ErrTooSmall, t.Map.MaxEntries())
	} else if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// readEntries calls f for each entry.
func (t *Table) readEntries(f func(key, value []byte) error) error {
	var key, value []byte
	it := t.From.Iterate()
	for it.Next(&key, &value) {
		k, v := make([]byte, t.key.size), make([]byte, t.value.size)
		t.key.convert(k, key)
		t.value.convert(v, value)
		if err := f(k, v); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}
