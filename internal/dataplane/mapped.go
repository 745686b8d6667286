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

func (a *mapped[T]) store(i uint32, word int, v uint64) {
	atomic.StoreUint64(&a.words(i)[word], v)
	if a.stored != nil {
		a.stored()
	}
}

// get is a copy of entry i.
func (a *mapped[T]) get(i uint32) T {
	w := make([]uint64, a.stride/8)
	for n := range w {
		w[n] = a.load(i, n)
	}
	return *(*T)(unsafe.Pointer(unsafe.SliceData(w)))
}

// toWords is v as the words that mapped stores.
func toWords[T any](v T) []uint64 {
	size := unsafe.Sizeof(v)
	w := make([]uint64, size/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), size),
		unsafe.Slice((*byte)(unsafe.Pointer(&v)), size))
	return w
}
