package table

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Array is an array map in our memory. We write its entries one 64-bit word at a
// time: the data path sees each word old or new, and we choose the order. The
// update system call would copy whole entries, over counters that the data path
// adds to meanwhile.
type Array[T any] struct {
	words  []uint64
	stride int    // words of an entry
	Len    uint32 // number of entries
	// Stored, if set, is called after each word: tests look at the entry as
	// the data path would.
	Stored func()
}

// open maps the array m into our memory. Its values have the layout of T.
func (a *Array[T]) open(m *ebpf.Map, _, _ string) error {
	*a = *NewArray[T](0)
	if size := 8 * uint32(a.stride); size != m.ValueSize() {
		return fmt.Errorf("values of %d bytes, want %d, a multiple of 8", m.ValueSize(), size)
	}
	words, err := Map(m)
	a.words, a.Len = words, m.MaxEntries()
	return err
}

// Map maps an array, whose values are whole words, into our memory.
func Map(m *ebpf.Map) ([]uint64, error) {
	page := unix.Getpagesize()
	size := (int(m.ValueSize())*int(m.MaxEntries()) + page - 1) / page * page
	mem, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), size/8), nil
}

// Unmap ends the use of an array that Map mapped; of none is not an error.
func Unmap(words []uint64) error {
	if len(words) == 0 {
		return nil
	}
	return unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words)))
}

// NewArray is an array of n entries that no data path reads.
func NewArray[T any](n uint32) *Array[T] {
	var t T
	stride := int(unsafe.Sizeof(t) / 8)
	return &Array[T]{words: make([]uint64, int(n)*stride), stride: stride, Len: n}
}

// close ends the use of an array that Open mapped.
func (a *Array[T]) close() error {
	words := a.words
	a.words = nil
	return Unmap(words)
}

// Words is entry i as the data path sees it.
func (a *Array[T]) Words(i uint32) []uint64 { return a.words[int(i)*a.stride:][:a.stride] }

// word is a word of entry i.
func (a *Array[T]) word(i uint32, word int) *uint64 { return &a.words[int(i)*a.stride+word] }

// Load reads a word of entry i.
func (a *Array[T]) Load(i uint32, word int) uint64 {
	return atomic.LoadUint64(a.word(i, word))
}

// Swap stores v if the word still is what it was, and says whether.
func (a *Array[T]) Swap(i uint32, word int, was, v uint64) bool {
	return atomic.CompareAndSwapUint64(a.word(i, word), was, v)
}

// Store writes a word of entry i.
func (a *Array[T]) Store(i uint32, word int, v uint64) {
	atomic.StoreUint64(a.word(i, word), v)
	if a.Stored != nil {
		a.Stored()
	}
}

// Change stores a word that differs.
func (a *Array[T]) Change(i uint32, word int, v uint64) {
	if a.Load(i, word) != v {
		a.Store(i, word, v)
	}
}

// Half is one of the two halves of a word, 0 the lower.
func (a *Array[T]) Half(i uint32, word, half int) *uint32 {
	return (*uint32)(unsafe.Add(unsafe.Pointer(a.word(i, word)), 4*half))
}

// LoadHalf reads one half of a word, 0 the lower.
func (a *Array[T]) LoadHalf(i uint32, word, half int) uint32 {
	return atomic.LoadUint32(a.Half(i, word, half))
}

// StoreHalf writes one half of a word and leaves the other to the data path.
func (a *Array[T]) StoreHalf(i uint32, word, half int, v uint32) {
	atomic.StoreUint32(a.Half(i, word, half), v)
	if a.Stored != nil {
		a.Stored()
	}
}

// Get is a copy of entry i.
func (a *Array[T]) Get(i uint32) T {
	var v T
	for n := range a.stride {
		*(*uint64)(unsafe.Add(unsafe.Pointer(&v), 8*n)) = a.Load(i, n)
	}
	return v
}

// Put writes all words of entry i, which no packet reaches.
func (a *Array[T]) Put(i uint32, v *T) {
	for w, word := range unsafe.Slice((*uint64)(unsafe.Pointer(v)), a.stride) {
		a.Store(i, w, word)
	}
}

// ToWords is v as the words that Array stores.
func ToWords[T any](v T) []uint64 {
	size := unsafe.Sizeof(v)
	w := make([]uint64, size/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), size),
		unsafe.Slice((*byte)(unsafe.Pointer(&v)), size))
	return w
}
