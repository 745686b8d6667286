package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// batch is what bpf(2) takes for many entries at once.
type batch struct {
	in, out, keys, values unsafe.Pointer
	count, fd             uint32
	elemFlags, flags      uint64
}

// The commands of bpf(2) for a batch.
const (
	lookupBatch = 24
	updateBatch = 26
)

// stride is how many octets a call takes of a value: a per-CPU map's for each CPU.
func stride(m *ebpf.Map) uint32 {
	if m.Type() == ebpf.PerCPUArray {
		return (m.ValueSize() + 7) &^ 7 * uint32(ebpf.MustPossibleCPU())
	}
	return m.ValueSize()
}

// wholeArray reads or writes an array in one call.
func wholeArray(m *ebpf.Map, command uintptr, values []byte) error {
	keys, next := make([]byte, 4*m.MaxEntries()), new(uint32)
	for i := range m.MaxEntries() {
		binary.NativeEndian.PutUint32(keys[4*i:], i)
	}
	attr := &batch{out: unsafe.Pointer(next), keys: unsafe.Pointer(&keys[0]), values: unsafe.Pointer(&values[0]), count: m.MaxEntries(), fd: uint32(m.FD())}
	if command == updateBatch {
		attr.out = nil
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	runtime.KeepAlive(m)
	if errno != 0 && errno != unix.ENOENT { // which is the end
		return errno
	}
	return nil
}

func writeArray(m *ebpf.Map, values []byte) error { return wholeArray(m, updateBatch, values) }

// entry is one of a map.
type entry struct{ key, value []byte }

// contents are the entries of a map that are not zero; a ring has none.
func contents(t *testing.T, m *ebpf.Map) (out []entry) {
	t.Helper()
	switch m.Type() {
	case ebpf.RingBuf:
	case ebpf.Array, ebpf.PerCPUArray:
		size := int(stride(m))
		all, zero := make([]byte, int(m.MaxEntries())*size), make([]byte, size)
		must(t, wholeArray(m, lookupBatch, all))
		for i := range int(m.MaxEntries()) {
			if v := all[i*size : (i+1)*size]; !bytes.Equal(v, zero) {
				out = append(out, entry{binary.NativeEndian.AppendUint32(nil, uint32(i)), v})
			}
		}
	default:
		key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
		it := m.Iterate()
		for it.Next(&key, &value) {
			out = append(out, entry{bytes.Clone(key), bytes.Clone(value)})
		}
		must(t, it.Err())
	}
	return out
}

// empty makes a map as it was when it was made.
func empty(m *ebpf.Map) error {
	if m.Type() == ebpf.Array && m.Flags()&unix.BPF_F_MMAPABLE != 0 { // ten times as fast as the system call
		words, err := table.Map(m)
		clear(words)
		return errors.Join(err, table.Unmap(words))
	}
	switch m.Type() {
	case ebpf.Array, ebpf.PerCPUArray:
		return writeArray(m, make([]byte, m.MaxEntries()*stride(m)))
	case ebpf.DevMap, ebpf.CPUMap, ebpf.ProgramArray:
		for i := range m.MaxEntries() {
			if err := m.Delete(i); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
		}
		return nil
	case ebpf.RingBuf:
		return ring(m, func(read, written *uint64) { atomic.StoreUint64(read, atomic.LoadUint64(written)) })
	}
	for key := make([]byte, m.KeySize()); ; {
		if err := m.NextKey(nil, &key); errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if err := m.Delete(key); err != nil {
			return err
		}
	}
}

// ring shows how far a ring is read and written.
func ring(m *ebpf.Map, f func(read, written *uint64)) error {
	page := os.Getpagesize()
	read, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	written, err := unix.Mmap(m.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(err, unix.Munmap(read))
	}
	f((*uint64)(unsafe.Pointer(&read[0])), (*uint64)(unsafe.Pointer(&written[0])))
	return errors.Join(unix.Munmap(read), unix.Munmap(written))
}

// unread is how many octets of a ring nobody has read.
func unread(t *testing.T, m *ebpf.Map) (octets uint64) {
	t.Helper()
	must(t, ring(m, func(read, written *uint64) { octets = atomic.LoadUint64(written) - atomic.LoadUint64(read) }))
	return octets
}
