package counter

import (
	"sync/atomic"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

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
