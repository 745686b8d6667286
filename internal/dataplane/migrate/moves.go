package migrate

import (
	"fmt"
	"unsafe"
)

// Moves are the new indices of an array's entries, by their former ones; 0: the entry is left
// out. Entry 0 stays where it is. nil: all do.
type Moves []uint32

// To is the new index of an entry; 0: it has none.
func (m Moves) To(i uint32) uint32 {
	switch {
	case m == nil:
		return i
	case i < uint32(len(m)):
		return m[i]
	}
	return 0
}

// Range is a part of a table: [First, End).
type Range struct{ First, End uint32 }

// Shift moves all entries of a range to those that begin with another one.
func (m Moves) Shift(from Range, to uint32) {
	for i := from.First; i < from.End; i++ {
		m[i] = to + i - from.First
	}
}

// Fit moves the used entries of a range into another range, and more from elsewhere behind
// them. An entry is as far behind the beginning as it was, unless the range ends before. It
// returns how many entries there are: if there is no room for them, some have not moved.
func (m Moves) Fit(from, to Range, used func(uint32) bool, more []uint32) (n uint32) {
	room := to.End - to.First
	taken := make([]bool, room)
	var late []uint32
	for i := from.First; i < from.End; i++ {
		if !used(i) {
			continue
		}
		if at := i - from.First; at < room {
			m[i], taken[at] = to.First+at, true
		} else {
			late = append(late, i)
		}
		n++
	}
	late = append(late, more...)
	next := uint32(0)
	for _, i := range late {
		for next < room && taken[next] {
			next++
		}
		if next < room {
			m[i], taken[next] = to.First+next, true
		}
	}
	return n + uint32(len(more))
}

// LimitError says that what is in use does not fit the tables of a smaller limit.
type LimitError struct {
	Limit      string // its name in the configuration
	Now        uint32 // as it is configured
	What       string // is in use
	Used, Room uint32
	Want       uint32 // the limit that would do
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("limits.%s is %d, which has room for %d %s, and %d are in use: set it to at least %d, or remove some while it is as it was",
		e.Limit, e.Now, e.Room, e.What, e.Used, e.Want)
}

// Set is the tables that are copied, by name.
type Set map[string]*Table

// Each calls f for the entries of a table (Table.Each). One that is missing has none.
func (s Set) Each(name string, f func(index uint32, key, value []byte)) error {
	t := s[name]
	if t == nil {
		return nil
	}
	if err := t.Each(f); err != nil {
		return fmt.Errorf("table %s: %w", name, err)
	}
	return nil
}

// Edit adds an edit to those of a table. One that is missing needs none.
func (s Set) Edit(name string, f Edit) {
	if t := s[name]; t != nil {
		t.edits = append(t.edits, f)
	}
}

// Move gives the entries of some tables new indices.
func (s Set) Move(m Moves, names ...string) {
	for _, name := range names {
		if t := s[name]; t != nil {
			t.Moves = m
		}
	}
}

// Sizes are how many entries a table had, and is to have. One that is missing has none.
func (s Set) Sizes(name string) (was, now uint32) {
	if t := s[name]; t != nil {
		return t.From.MaxEntries(), t.Spec.MaxEntries
	}
	return 0, 0
}

// Add has Copy put an entry more into a table that has keys.
func Add[K, V any](s Set, name string, key K, value V) {
	if t := s[name]; t != nil {
		t.more = append(t.more, entry{octetsOf(&key), octetsOf(&value)})
	}
}

func octetsOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// As is a key or value as what it is in the layout of this build.
func As[T any](octets []byte) *T { return (*T)(unsafe.Pointer(unsafe.SliceData(octets))) }
