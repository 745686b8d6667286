package dataplane

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mapped is an array map in our address space. Its entries are written a
// 64-bit word at a time, so that the data path sees each word old or new, and
// the order in which they change is ours. The update system call would copy
// whole entries, over counters that the data path adds to meanwhile.
type mapped[T any] struct {
	mem    []byte
	stride uint32
	len    uint32
	// stored, if set, is called after each word: tests look at the entry as
	// the data path would.
	stored func()
}

func mapArray[T any](m *ebpf.Map) (*mapped[T], error) {
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
	return &mapped[T]{mem: mem, stride: stride, len: m.MaxEntries()}, nil
}

func (a *mapped[T]) close() error {
	if a == nil || a.mem == nil {
		return nil
	}
	mem := a.mem
	a.mem = nil
	return unix.Munmap(mem)
}

// words is entry i as the data path sees it.
func (a *mapped[T]) words(i uint32) []uint64 {
	entry := a.mem[int(i)*int(a.stride):][:a.stride]
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(entry))), a.stride/8)
}

func (a *mapped[T]) load(i uint32, word int) uint64 {
	return atomic.LoadUint64(&a.words(i)[word])
}

// swap stores a word if it still is what it was.
func (a *mapped[T]) swap(i uint32, word int, was, v uint64) bool {
	return atomic.CompareAndSwapUint64(&a.words(i)[word], was, v)
}

func (a *mapped[T]) store(i uint32, word int, v uint64) {
	atomic.StoreUint64(&a.words(i)[word], v)
	if a.stored != nil {
		a.stored()
	}
}

// change stores where the entry says something else.
func (a *mapped[T]) change(i uint32, word int, v uint64) {
	if a.load(i, word) != v {
		a.store(i, word, v)
	}
}

// half is one of the two halves of a word, 0 the lower.
func (a *mapped[T]) half(i uint32, word, half int) *uint32 {
	return (*uint32)(unsafe.Add(unsafe.Pointer(&a.words(i)[word]), 4*half))
}

func (a *mapped[T]) loadHalf(i uint32, word, half int) uint32 {
	return atomic.LoadUint32(a.half(i, word, half))
}

// storeHalf leaves the other half to the data path.
func (a *mapped[T]) storeHalf(i uint32, word, half int, v uint32) {
	atomic.StoreUint32(a.half(i, word, half), v)
	if a.stored != nil {
		a.stored()
	}
}

// get is a copy of entry i.
func (a *mapped[T]) get(i uint32) T {
	var v T
	for n := range a.stride / 8 {
		*(*uint64)(unsafe.Add(unsafe.Pointer(&v), 8*n)) = a.load(i, int(n))
	}
	return v
}

// put fills in entry i, which no packet reaches.
func (a *mapped[T]) put(i uint32, v *T) {
	for w, word := range unsafe.Slice((*uint64)(unsafe.Pointer(v)), a.stride/8) {
		a.store(i, w, word)
	}
}

// toWords is v as the words that mapped stores.
func toWords[T any](v T) []uint64 {
	size := unsafe.Sizeof(v)
	w := make([]uint64, size/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), size),
		unsafe.Slice((*byte)(unsafe.Pointer(&v)), size))
	return w
}
