package counter

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Counter counts packets and bytes (which bytes: docs/reference/semantics.md section 1).
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Add adds what o counted.
func (c *Counter) Add(o Counter) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
}

// Read sums an entry of a per-CPU array over the CPUs.
func Read(m *ebpf.Map, index uint32) (Counter, error) {
	var sum Counter
	each, err := readCPUs(m, index)
	for _, c := range each {
		sum.Add(Counter{c.Packets, c.Bytes})
	}
	return sum, err
}

// ReadAll sums each entry of a per-CPU array over the CPUs. It takes one call of the kernel.
func ReadAll(m *ebpf.Map) ([]Counter, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	keys, each := make([]uint32, m.MaxEntries()), make([]abi.Counter, int(m.MaxEntries())*cpus)
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, each, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which is the end
		return nil, fmt.Errorf("read %s: %w", m, err)
	}
	out := make([]Counter, n)
	for i := range out {
		for _, c := range each[i*cpus : (i+1)*cpus] {
			out[i].Add(Counter{c.Packets, c.Bytes})
		}
	}
	return out, nil
}

func readCPUs(m *ebpf.Map, index uint32) (each []abi.Counter, err error) {
	if err := m.Lookup(index, &each); err != nil {
		return nil, fmt.Errorf("read %s: %w", m, err)
	}
	return each, nil
}

// Zero sets an entry to zero on all CPUs.
func Zero(m *ebpf.Map, index uint32) error {
	return Write(m, index, make([]abi.Counter, ebpf.MustPossibleCPU()))
}

// Copy lets one entry go on counting where another stopped.
func Copy(m *ebpf.Map, from, to uint32) error {
	each, err := readCPUs(m, from)
	if err != nil {
		return err
	}
	return Write(m, to, each)
}

// Write sets an entry on each CPU.
func Write(m *ebpf.Map, index uint32, each []abi.Counter) error {
	if err := m.Put(index, each); err != nil {
		return fmt.Errorf("write %s: %w", m, err)
	}
	return nil
}

// A volume (struct volume in bpf/def/tables.h) counts packets and bytes in one
// word, which the data path adds to atomically: packets << 40 + bytes, modulo
// 2^64. So the lower 40 bits are those of the bytes. The upper 24 are those of
// the packets and of what the bytes carried into them. Each time that the
// highest bit of either part turns, the data path then adds one to the count of
// that part's halves, which thus has the turned bit as its lowest, unless it is
// one behind for the moment.
const (
	VolumeByteBits   = 40
	volumePacketBits = 64 - VolumeByteBits
	VolumeWords      = 2 // that it takes in an entry: word, halves
)

// VolumeOf is the volume that has counted c: packets to 2^55, bytes to 2^64.
func VolumeOf(c Counter) abi.Volume {
	upper := c.Packets + c.Bytes>>VolumeByteBits
	return abi.Volume{
		Word:         c.Packets<<VolumeByteBits + c.Bytes,
		ByteHalves:   uint32(c.Bytes >> (VolumeByteBits - 1)),
		PacketHalves: uint32(upper >> (volumePacketBits - 1)),
	}
}

// Of is what a volume has counted.
func Of(v abi.Volume) Counter {
	bytes := whole(v.Word&(1<<VolumeByteBits-1), v.ByteHalves, VolumeByteBits)
	upper := whole(v.Word>>VolumeByteBits, v.PacketHalves, volumePacketBits)
	return Counter{Packets: upper - bytes>>VolumeByteBits, Bytes: bytes}
}

// whole puts the `bits` lower bits of a number together with how often the
// highest of them has turned, or one less than that.
func whole(lower uint64, halves uint32, bits int) uint64 {
	turned := uint64(halves)
	turned += turned&1 ^ lower>>(bits-1)
	return turned>>1<<bits | lower
}

// ReadVolume reads a volume that the data path adds to meanwhile, at the two
// words that begin with `at`. The halves must be the same before the word and
// after it: then no more than what turned last can be missing in them.
func ReadVolume(at []uint64) Counter {
	for {
		halves := atomic.LoadUint64(&at[1])
		word := atomic.LoadUint64(&at[0])
		if atomic.LoadUint64(&at[1]) == halves {
			return Of(abi.Volume{Word: word, ByteHalves: uint32(halves), PacketHalves: uint32(halves >> 32)})
		}
	}
}

// AddVolume adds to a volume, at the two words that begin with `at`, as the data path does
// meanwhile: less than half of what the word can count.
func AddVolume(at []uint64, word uint64) {
	now := atomic.AddUint64(&at[0], word)
	turned := now ^ (now - word)
	if turned>>(VolumeByteBits-1)&1 != 0 {
		atomic.AddUint64(&at[1], 1)
	}
	if turned>>63 != 0 {
		atomic.AddUint64(&at[1], 1<<32)
	}
}
