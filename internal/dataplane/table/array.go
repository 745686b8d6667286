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
	mem    []byte
	stride uint32
	Len    uint32 // number of entries
	// Stored, if set, is called after each word: tests look at the entry as
	// the data path would.
	Stored func()
}

// OpenArray maps the array m into our memory. Its values have the layout of T.
func OpenArray[T any](m *ebpf.Map) (*Array[T], error) {
	stride := (m.ValueSize() + 7) &^ 7
	var t T
	if unsafe.Sizeof(t) != uintptr(m.ValueSize()) || stride != m.ValueSize() {
		return nil, fmt.Errorf("map %s: values of %d bytes, want %d, a multiple of 8", m, m.ValueSize(), unsafe.Sizeof(t))
	}
	page := unix.Getpagesize()
	size := (int(stride)*int(m.MaxEntries()) + page - 1) / page * page
	mem, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: mmap: %w", m, err)
	}
	return &Array[T]{mem: mem, stride: stride, Len: m.MaxEntries()}, nil
}

// NewArray is an array of n entries that no data path reads.
func NewArray[T any](n uint32) *Array[T] {
	var t T
	stride := uint32(unsafe.Sizeof(t))
	words := make([]uint64, n*stride/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n*stride)
	return &Array[T]{mem: mem, stride: stride, Len: n}
}

// Close ends the use of the array.
func (a *Array[T]) Close() error {
	if a == nil || a.mem == nil {
		return nil
	}
	mem := a.mem
	a.mem = nil
	return unix.Munmap(mem)
}

// Words is entry i as the data path sees it.
func (a *Array[T]) Words(i uint32) []uint64 {
	entry := a.mem[int(i)*int(a.stride):][:a.stride]
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(entry))), a.stride/8)
}

// Load reads a word of entry i.
func (a *Array[T]) Load(i uint32, word int) uint64 {
	return atomic.LoadUint64(&a.Words(i)[word])
}

// Swap stores v if the word still is what it was, and says whether.
func (a *Array[T]) Swap(i uint32, word int, was, v uint64) bool {
	return atomic.CompareAndSwapUint64(&a.Words(i)[word], was, v)
}

// Store writes a word of entry i.
func (a *Array[T]) Store(i uint32, word int, v uint64) {
	atomic.StoreUint64(&a.Words(i)[word], v)
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

// half is one of the two halves of a word, 0 the lower.
func (a *Array[T]) half(i uint32, word, half int) *uint32 {
	return (*uint32)(unsafe.Add(unsafe.Pointer(&a.Words(i)[word]), 4*half))
}

// LoadHalf reads one half of a word, 0 the lower.
func (a *Array[T]) LoadHalf(i uint32, word, half int) uint32 {
	return atomic.LoadUint32(a.half(i, word, half))
}

// StoreHalf writes one half of a word and leaves the other to the data path.
func (a *Array[T]) StoreHalf(i uint32, word, half int, v uint32) {
	atomic.StoreUint32(a.half(i, word, half), v)
	if a.Stored != nil {
		a.Stored()
	}
}

// Get is a copy of entry i.
func (a *Array[T]) Get(i uint32) T {
	var v T
	for n := range a.stride / 8 {
		*(*uint64)(unsafe.Add(unsafe.Pointer(&v), 8*n)) = a.Load(i, int(n))
	}
	return v
}

// Put writes all words of entry i, which no packet reaches.
func (a *Array[T]) Put(i uint32, v *T) {
	for w, word := range unsafe.Slice((*uint64)(unsafe.Pointer(v)), a.stride/8) {
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
