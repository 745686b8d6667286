package trafficrun

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// buckets of the histogram: 128 of one ns, and 64 for each power of two up to
// 2^32 ns, so that none is wider than 1/64 of its values.
const buckets = 1728

// Bucket counts packets whose latency, in ns, was from Lower to Upper - 1.
type Bucket struct{ Lower, Upper, Count uint64 }

func bounds(i int) (lower, upper uint64) {
	if i < 128 {
		return uint64(i), uint64(i) + 1
	}
	octave, step := (i-128)/64, uint64(i-128)%64
	width := uint64(2) << octave
	return (64 + step) * width, (65 + step) * width
}

// Latency reads the buckets that are not empty, rising.
func (e *Engine) Latency() ([]Bucket, error) {
	var list []Bucket
	keys, counts := make([]uint32, buckets), make([]uint64, buckets*ebpf.MustPossibleCPU())
	var cursor ebpf.MapBatchCursor
	if _, err := e.objects.TrafficLatency.BatchLookup(&cursor, keys, counts, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read latencies: %w", err)
	}
	cpus := ebpf.MustPossibleCPU()
	for i, key := range keys {
		b := Bucket{}
		for _, n := range counts[i*cpus : (i+1)*cpus] {
			b.Count += n
		}
		if b.Count > 0 {
			b.Lower, b.Upper = bounds(int(key))
			list = append(list, b)
		}
	}
	return list, nil
}

func (e *Engine) resetLatency(cpus int) error {
	keys := make([]uint32, buckets)
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := e.objects.TrafficLatency.BatchUpdate(keys, make([]uint64, buckets*cpus), nil); err != nil {
		return fmt.Errorf("reset latencies: %w", err)
	}
	return nil
}
